"""Token trees: drafts that branch, who sees whom among them, and how they are judged.

A tree has N drafts. Its root is the row's pending token, column 0 of a verification; draft j is
column j + 1. A draft's parent comes before it, so a chain is the tree in which each draft follows
the one before. Pure tensor arithmetic, without models and caches.

Sources: SpecInfer (Miao et al., arXiv 2305.09781), of which `judge_children` is algorithm 2 for
children drawn independently of each other; EAGLE-2 (Li et al., arXiv 2406.16858); Jeon et al.
(arXiv 2402.14160) and Yang et al. (arXiv 2404.11532) for drawing without replacement.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad


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


class Walk(NamedTuple):
    """What a round accepts.

    Attributes:
        accepted: (b,) int64, how many drafts are accepted.
        emitted: (b, N+1) int64, the accepted drafts in order, then the target's own token. What
            comes behind it has no meaning.
        path: (b, N) int64, of trees the accepted drafts from the root on, -1 behind them; None for
            chains, whose first drafts these are.
    """

    accepted: Tensor
    emitted: Tensor
    path: Tensor | None


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


def follow_choices(
    drafts: Tensor, tree: Tree, choice: Tensor, lengths: Tensor | None = None
) -> Walk:
    """Accept the drafts that the target chooses itself.

    Siblings differ, so there is one such path.

    Args:
        drafts: (b, N) int64.
        choice: (b, N+1) int64, the target's choice after each column.
        lengths: (b,), how many of each row's first drafts are judged; None for all.
    """
    right = drafts == choice.gather(1, tree.parents + 1)  # (b, N)
    if lengths is not None:
        right &= torch.arange(right.shape[1], device=right.device) < lengths[:, None]
    is_reached = ~(tree.ancestors & pad(~right, (1, 0))[:, None]).any(2)  # (b, N+1)
    last = tree.depths.masked_fill(~is_reached, -1).argmax(1)  # (b,), a column
    return walk_to(drafts, tree, last, choice.gather(1, last[:, None])[:, 0])


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
    return pad(path + 1, (1, 0))


def judge_children(
    drafts: Tensor,
    tree: Tree,
    p: Tensor,
    q: Tensor,
    uniforms: Tensor,
    lengths: Tensor | None = None,
    *,
    renormalise: bool = True,
    drawn: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Judge siblings one after the other, as rejection sampling does on trees.

    At each node the first child c is accepted with probability min(1, p(c) / q(c)). If it is
    rejected, p becomes max(p - q, 0), normalised, and q loses c, normalised again: then the next
    child is judged. After the last one the token is drawn from what p has become. This is exact if
    the children were drawn from q without replacement, in this order.

    Args:
        drafts: (b, N) int64. Siblings stand in the order in which they were drawn.
        p: (b, N+1, V) float64, the target's distribution after each column.
        q: (b, N, V) float64, the distribution that each draft's first sibling was drawn from.
        uniforms: (b, N) in (0, 1), for each draft.
        lengths: (b,), how many of each row's first drafts are judged; None for all.
        renormalise: whether a rejected child is taken out of q, as it must be for children that
            were drawn without replacement, and must not for those drawn independently.
        drawn: (b, N), what was drawn in the place of each draft, see `without_repeats`; None for
            the drafts themselves. Where it is another token, the draft is not accepted, but what
            was drawn counts: it is rejected once more, and p loses q once more.

    Returns:
        The last accepted column (b,), and the weights (b, V) of the token that follows it.
    """
    b, n = drafts.shape
    rows = torch.arange(b, device=drafts.device)
    last = torch.zeros(b, dtype=torch.long, device=drafts.device)
    weights = p[:, 0]
    total = torch.ones_like(weights[:, 0])
    tried = torch.zeros_like(weights, dtype=torch.bool)
    drawn = drafts if drawn is None else drawn
    for j in range(n):
        token = drawn[:, j]
        is_judged = tree.parents[:, j] + 1 == last  # (b,)
        if lengths is not None:
            is_judged &= j < lengths
        q_here = q[:, j]
        if renormalise:
            q_here = _without(q_here, tried)
        q_token = q_here[rows, token]
        # The multiplied form of u < (p / total) / q, as for chains.
        is_accepted = is_judged & (q_token > 0) & (token == drafts[:, j])
        is_accepted &= uniforms[:, j] * q_token * total < weights[rows, token]
        is_rejected = is_judged & ~is_accepted

        rest = (weights / total[:, None] - q_here).clamp(min=0)
        # Where nothing is left, p and q are equal but for rounding, and p is as good.
        rest = torch.where(rest.sum(1, keepdim=True) > 0, rest, weights)
        weights = torch.where(is_rejected[:, None], rest, weights)
        weights = torch.where(is_accepted[:, None], p[:, j + 1], weights)
        total = torch.where(is_rejected, weights.sum(1), total)
        total = torch.where(is_accepted, 1.0, total)
        tried[rows, token] |= is_rejected
        tried &= ~is_accepted[:, None]
        last = torch.where(is_accepted, j + 1, last)
    return last, weights


def without_repeats(drawn: Tensor, scores: Tensor) -> Tensor:
    """Return what was drawn (..., C) with other tokens where one was drawn before.

    The likeliest tokens that were not drawn take the places, so that all C differ.

    Args:
        scores: (..., V), log-probabilities.
    """
    count = drawn.shape[-1]
    lowest = torch.finfo(scores.dtype).min
    others = scores.clamp(min=lowest).scatter(-1, drawn, -torch.inf).topk(count, -1).indices
    same = drawn[..., :, None] == drawn[..., None, :]  # (..., C, C)
    is_repeated = same.tril(-1).any(-1)
    # One after the other, so that V >= C tokens are enough.
    place = (is_repeated.cumsum(-1) - 1).clamp(min=0)
    return torch.where(is_repeated, others.gather(-1, place), drawn)


def _without(q: Tensor, tried: Tensor) -> Tensor:
    """Return q (b, V) without the tokens `tried`, normalised again; zeros where none is left."""
    rest = q.masked_fill(tried, 0)
    mass = rest.sum(1, keepdim=True)
    # A q that has lost nothing stays as it is, to the bit.
    scaled = torch.where(mass > 0, rest / mass, rest)
    return torch.where(tried.any(1, keepdim=True), scaled, q)


def sibling_ranks(parents: Tensor) -> Tensor:
    """Return how many drafts of the same parent stand before each draft, (b, N) int64."""
    same = parents[:, :, None] == parents[:, None]  # (b, N, N)
    return same.tril(-1).sum(2)
