"""Acceptance on trees where the target makes one choice after each node.

It follows the target's choices from the pending token as long as a draft with the chosen token is
there. Siblings differ, so there is one such path.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from specviz.engine.trees.shape import Tree


class Walk(NamedTuple):
    """What a round accepts of the trees of a batch.

    Attributes:
        accepted: (b,) int64, how many drafts are accepted.
        emitted: (b, N+1) int64, the accepted drafts from the root on, then the target's own token.
            What comes behind it has no meaning.
        path: (b, N) int64, the accepted drafts from the root on, -1 behind them.
    """

    accepted: Tensor
    emitted: Tensor
    path: Tensor


def follow(drafts: Tensor, tree: Tree, choice: Tensor, lengths: Tensor | None = None) -> Walk:
    """Accept the drafts that the target chooses itself.

    Args:
        drafts: (b, N) int64.
        choice: (b, N+1) int64, the target's choice after each column.
        lengths: (b,), how many of each row's first drafts are judged; None for all.
    """
    chosen = drafts == choice.gather(1, tree.parents + 1)  # (b, N)
    is_reached = reached(tree, chosen, lengths)
    last = tree.depths.masked_fill(~is_reached, -1).argmax(1)  # (b,), a column
    return walk_to(drafts, tree, last, choice.gather(1, last[:, None])[:, 0])


def reached(tree: Tree, right: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Return the columns (b, N+1) whose whole branch is right; the pending token's always is.

    Args:
        right: bool (b, N), of each draft.
        lengths: (b,), how many of each row's first drafts are judged; None for all.
    """
    if lengths is not None:
        right = right & (torch.arange(right.shape[1], device=right.device) < lengths[:, None])
    wrong = torch.nn.functional.pad(~right, (1, 0))  # (b, N+1)
    return ~(tree.ancestors & wrong[:, None]).any(2)


def walk_to(drafts: Tensor, tree: Tree, last: Tensor, own: Tensor) -> Walk:
    """Return the walk that ends at column `last` (b,), with the target's own token (b,)."""
    b, n = drafts.shape
    rows = torch.arange(b, device=drafts.device)
    accepted = tree.depths[rows, last]
    on_path = tree.ancestors[rows, last, 1:]  # (b, N)
    number = torch.arange(n, device=drafts.device)
    # Parents come before their children, so the order of the drafts is that of the path.
    path = number.masked_fill(~on_path, n).sort(1).values
    tokens = drafts.gather(1, path.clamp(max=max(n - 1, 0)))
    emitted = torch.cat([tokens, own[:, None]], 1)
    emitted = emitted.scatter(1, accepted[:, None], own[:, None])
    return Walk(accepted, emitted, path.masked_fill(path == n, -1))


def columns_of(path: Tensor) -> Tensor:
    """Return the columns (b, N+1) that a path (b, N) visits, from the pending token's on.

    Behind the path they are 0.
    """
    return torch.nn.functional.pad(path + 1, (1, 0))
