"""The shape of a token tree: who follows whom, how deep, and who sees whom.

A tree has N drafts. Its root is the row's pending token, column 0 of a verification; draft j is
column j + 1. A draft's parent comes before it, so a chain is the tree in which each draft follows
the one before.

Sources: SpecInfer (Miao et al., arXiv 2305.09781); EAGLE-2 (Li et al., arXiv 2406.16858).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from specviz.util.validate import require_int, require_kind, short


class Tree(NamedTuple):
    """The trees of a batch.

    Attributes:
        parents: (b, N) int64, the draft that each draft follows, -1 for the pending token.
        depths: (b, N+1) int64, by column: 0 for the pending token, 1 for what follows it.
        ancestors: bool (b, N+1, N+1), the columns on each column's branch, itself included.
        height: the host's bound on the depths.
    """

    parents: Tensor
    depths: Tensor
    ancestors: Tensor
    height: int


def find_tree(parents: Tensor, height: int | None = None) -> Tree:
    """Return depths and ancestors for parents (b, N). Nothing is read on the host.

    height: the largest depth, if it is known.
    """
    b, n = parents.shape
    reach = torch.eye(n + 1, device=parents.device).repeat(b, 1, 1)  # each column and its parent
    reach[:, 1:].scatter_(2, parents[:, :, None] + 1, 1.0)
    # Each product doubles the number of generations that are reached.
    for _ in range(n.bit_length()):
        reach = (reach @ reach > 0).to(reach.dtype)
    ancestors = reach > 0
    depths = ancestors.sum(2) - 1
    return Tree(parents, depths, ancestors, n if height is None else height)


def check_parents(parents: object, tokens: Tensor, height: object = None) -> None:
    """Raise ValueError unless these are the parents of trees whose siblings differ.

    On other devices than the CPU only the shape is checked: to read the values would be a wait.

    Args:
        parents: (b, N) int64.
        tokens: (b, N), the drafts.
        height: as for `find_tree`.
    """
    require_kind("Draft.parents", parents, Tensor, "pass a tensor (b, N) of ints")
    assert isinstance(parents, Tensor)
    if parents.shape != tokens.shape or parents.dtype != torch.long:
        raise ValueError(
            f"Draft.parents must be int64 of shape {tuple(tokens.shape)}, as Draft.tokens, got "
            f"{str(parents.dtype).removeprefix('torch.')} of shape {tuple(parents.shape)}; "
            "pass one parent for each draft"
        )
    if height is not None:
        height = require_int("Draft.height", height, minimum=min(1, parents.shape[1]))
    if parents.device.type != "cpu" or tokens.device.type != "cpu":
        return
    number = torch.arange(parents.shape[1])
    if not bool(((parents >= -1) & (parents < number)).all()):
        raise ValueError(
            f"Draft.parents must name -1 or an earlier draft, got {short(parents.tolist())}; "
            "put each draft behind the one that it follows"
        )
    # A pair of siblings with one token: the same key.
    keys = tokens * (parents.shape[1] + 1) + parents + 1
    ordered = keys.sort(1).values
    if bool((ordered[:, 1:] == ordered[:, :-1]).any()):
        raise ValueError(
            f"drafts of one parent must be different tokens, got {short(tokens.tolist())} with "
            f"Draft.parents {short(parents.tolist())}; propose each continuation once"
        )
    if height is not None and height < parents.shape[1]:
        deepest = int(find_tree(parents).depths.max())
        if deepest > height:
            raise ValueError(
                f"Draft.height must be at least {deepest}, the most drafts on one branch, got "
                f"{height}; pass None where it is not known"
            )
