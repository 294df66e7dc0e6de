"""Rejection sampling of chains: which drafts are accepted, and what is drawn in place of the rest.

Pure tensor arithmetic. B rows, K draft tokens, V vocabulary; p is the target's distribution, q the
draft's. Of trees, see `trees/rejection.py`.
"""

import torch
from torch import Tensor

from specviz.engine.accept import count_leading, judged


def accept_drafts(
    drafts: Tensor, p: Tensor, q: Tensor, uniforms: Tensor, lengths: Tensor | None = None
) -> Tensor:
    """Return how many drafts (b,) are accepted: those before the first with u q(d) >= p(d).

    Args:
        drafts: (b, K) int64.
        p: (b, K+1, V) or (b, K, V).
        q: (b, K, V).
        uniforms: (b, K) in (0, 1).
        lengths: (b,), how many drafts of each row are judged; None for all.
    """
    at = drafts[:, :, None]
    q_draft = q.gather(2, at)[:, :, 0]  # (b, K)
    p_draft = p[:, : drafts.shape[1]].gather(2, at)[:, :, 0]  # (b, K)
    # u < p / q without the division, so that q = 0 needs no care. Strict, so that a draft that the
    # target rules out (p = 0) is never accepted.
    return count_leading(judged(uniforms * q_draft < p_draft, lengths))


def residual(p: Tensor, q: Tensor) -> Tensor:
    """Return max(p - q, 0) for p and q (b, V), not normalised."""
    rest = (p - q).clamp(min=0)
    # Where nothing is left, p and q are equal but for rounding, and p is as good.
    return torch.where(rest.sum(-1, keepdim=True) > 0, rest, p)


def draw(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Draw tokens (b,) by inverse CDF: the first whose cumulative weight exceeds u times the total.

    A token of weight 0 is never drawn, whatever the rounding.

    Args:
        weights: (b, V) float64, not necessarily normalised.
        uniforms: (b,) in (0, 1).
    """
    cumulative = weights.cumsum(-1)
    # Times the sum as it was rounded, so that the threshold stays below the last entry.
    threshold = uniforms[:, None] * cumulative[:, -1:]  # (b, 1)
    # right=True: a token of weight 0 shares its cumulative weight with the one before, and is
    # passed over.
    found = torch.searchsorted(cumulative, threshold, right=True)
    found = found.clamp(max=weights.shape[-1] - 1)
    # A parallel cumsum need not rise everywhere, so the search may end on weight 0 after all.
    likeliest = weights.argmax(-1, keepdim=True)
    return torch.where(weights.gather(1, found) > 0, found, likeliest)[:, 0]
