"""Rejection sampling on trees: children are judged one after the other.

At each node the first child c is accepted with probability min(1, p(c) / q(c)). If it is rejected,
p becomes max(p - q, 0), normalised, and q loses c, normalised again: then the next child is judged.
After the last one the token is drawn from what p has become. This is exact if the children were
drawn from q without replacement, in this order. With `renormalise=False` q stays whole, which is
exact for children that were drawn independently of each other.

Sources: SpecInfer (arXiv 2305.09781), algorithm 2, for children drawn independently of each other;
Jeon et al. (arXiv 2402.14160) and Yang et al. (arXiv 2404.11532) for drawing without replacement.
"""

import torch
from torch import Tensor

from specviz.engine.trees.shape import Tree


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
    """Return the last accepted column (b,), and the weights (b, V) of the token that follows it.

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
