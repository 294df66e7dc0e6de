"""Which rows are prefilled together: rows of similar length, since shorter ones are filled up.

Arithmetic on lengths. Not known here: models, caches and tokens.
"""

from collections.abc import Sequence


def similar_lengths(
    lengths: Sequence[int], most: int, forward_tokens: int | None
) -> list[list[int]]:
    """Divide rows into groups, so that prefilling group by group costs least.

    A group costs its rows times its longest row, in tokens, and `forward_tokens` on top. Rows of
    equal length stay together.

    Args:
        lengths: tokens to read of each row.
        most: rows that a forward may take.
        forward_tokens: what one more forward costs, in tokens; None: as few forwards as possible,
            with rows in their order.

    Returns:
        The rows of each group, as places in `lengths`. Each group is in order.
    """
    rows = list(range(len(lengths)))
    if forward_tokens is None:
        return [rows[first : first + most] for first in range(0, len(rows), most)]
    rows.sort(key=lengths.__getitem__)
    # Sorted rows lie next to each other in the best groups. costs[end] is the least cost of the
    # first `end` rows, and begins[end] where the last of their groups begins.
    costs = [0]
    begins = [0]
    for end, row in enumerate(rows, 1):
        options = []
        for begin in range(max(0, end - most), end):
            group = forward_tokens + (end - begin) * lengths[row]
            options.append((costs[begin] + group, begin))
        cost, begin = min(options)
        costs.append(cost)
        begins.append(begin)
    groups = []
    end = len(rows)
    while end:
        groups.append(sorted(rows[begins[end] : end]))
        end = begins[end]
    return groups[::-1]
