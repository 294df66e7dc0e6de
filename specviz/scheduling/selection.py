"""Which drafts of a batch are verified, given their scores."""

from typing import Any


def largest(scores: Any, usable: Any, capacity: Any) -> Any:
    """Return how many scores of each row are among the `capacity` largest of its batch, (..., b).

    Where scores are equal, the earlier position comes first, and then the earlier row. So scores
    that never rise along a row give its first ones, and never more than `capacity` in all.

    Args:
        scores: (..., b, K), a tensor or a NumPy array, -inf where they are not usable.
        usable: bool (..., b, K), true for the first ones of each row.
        capacity: an int, or an array (..., 1).
    """
    *batches, rows, depth = scores.shape
    # Position by position, all rows of one before the next: a stable sort keeps that order.
    by_position = scores.swapaxes(-1, -2).reshape(*batches, depth * rows)
    rank = (-by_position).argsort(stable=True).argsort()
    chosen = (rank < capacity).reshape(*batches, depth, rows).swapaxes(-1, -2)
    # What is not usable was chosen only where fewer than `capacity` are.
    return (chosen & usable).sum(-1)
