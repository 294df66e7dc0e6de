"""Typical acceptance, as in Medusa: keep drafts that the target finds likely enough.

It is faster than lossless sampling and does not keep the target's distribution: what is drafted is
written more often than the target would write it. A run that uses it promises nothing.

It knows no model and no cache. B rows, K draft tokens, V vocabulary.

Source: Medusa (Cai et al., arXiv 2401.10774), section on typical acceptance. There the token behind
the accepted drafts is the target's likeliest one. Here it is drawn from the target's distribution,
so that drafts alone make the difference.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from specviz.engine.accept import count_leading, judged, likeliest
from specviz.engine.chooser import best_tokens
from specviz.engine.gumbel import Gumbel
from specviz.engine.trees.shape import Tree
from specviz.engine.trees.walk import Walk, reached, walk_to
from specviz.util.validate import is_share, short

# As in Medusa's code.
EPSILON, DELTA = 0.09, 0.3


class Typical(Gumbel):
    """Accept draft d where p(d) > min(epsilon, delta * exp(-H(p))); H is the entropy of p.

    Drafts are the draft's likeliest tokens. The token behind the accepted ones is drawn from p by
    Gumbel noise, so that without drafts the text is that of coupling="gumbel".
    """

    weighs_drafts = True
    exact = False

    def __init__(
        self, warp: Callable[[Tensor], Tensor], seed: int, epsilon: float, delta: float
    ) -> None:
        super().__init__(warp, seed)
        self._epsilon = epsilon
        self._delta = delta

    def draft(self, logits: Tensor, requests: Sequence[int], indices: Sequence[int]) -> Tensor:
        """Return the likeliest token; see `Chooser`."""
        return likeliest(logits)

    def accept(
        self,
        drafts: Tensor,
        draft_logits: Tensor | None,
        logits: Tensor,
        requests: Sequence[int],
        indices: Sequence[int],
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """See `Chooser`."""
        _, choice = super().accept(drafts, draft_logits, logits, requests, indices, lengths)
        log_p = self._log_p(logits[:, :-1])  # (b, K, V)
        is_typical = self._of(drafts, log_p).exp() > self._threshold(log_p)
        accepted = count_leading(judged(is_typical, lengths))
        is_draft = torch.arange(logits.shape[1], device=drafts.device) < accepted[:, None]
        return accepted, torch.where(is_draft, F.pad(drafts, (0, 1)), choice)

    def branch(
        self, logits: Tensor, requests: Sequence[int], indices: Sequence[int], count: int
    ) -> tuple[Tensor, Tensor]:
        """Return the likeliest tokens; see `Chooser`."""
        return best_tokens(self.log_q(logits), count)

    def accept_tree(
        self,
        drafts: Tensor,
        tree: Tree,
        draft_logits: Tensor | None,
        logits: Tensor,
        requests: Sequence[int],
        indices: Sequence[int],
        lengths: Tensor | None = None,
        judged_by: str = "target",
        *,
        drawn: Tensor | None = None,
    ) -> Walk:
        """Take the likeliest of the longest branches that are accepted whole; see `Chooser`."""
        choice = self._choices(tree, logits, requests, indices)
        every = self._log_p(logits)  # (b, K+1, V)
        threshold = self._threshold(every).gather(1, tree.parents + 1)  # (b, K)
        parents = (tree.parents + 1)[:, :, None].expand(-1, -1, every.shape[-1])
        log_p = self._of(drafts, every.gather(1, parents))
        is_reached = reached(tree, log_p.exp() > threshold, lengths)  # (b, K+1)
        depths = tree.depths.masked_fill(~is_reached, -1)
        is_longest = depths == depths.amax(1, keepdim=True)
        # Of drafts that are not accepted, p may be 0 or NaN.
        finite = F.pad(log_p.nan_to_num(-1e9, neginf=-1e9), (1, 0))
        along = finite[:, None] * tree.ancestors  # (b, K+1, K+1)
        last = along.sum(2).masked_fill(~is_longest, -torch.inf).argmax(1)
        return walk_to(drafts, tree, last, choice.gather(1, last[:, None])[:, 0])

    def _log_p(self, logits: Tensor) -> Tensor:
        return self._warp(logits).log_softmax(-1, dtype=torch.float64)

    def _threshold(self, log_p: Tensor) -> Tensor:
        """Return what the probability of a draft must exceed, (...), given log p (..., V)."""
        # A token that top-k or top-p removes adds 0, not 0 times infinity.
        terms = torch.where(log_p.isneginf(), 0, log_p.exp() * log_p)
        return (self._delta * terms.sum(-1).exp()).clamp(max=self._epsilon)

    @staticmethod
    def _of(tokens: Tensor, log_p: Tensor) -> Tensor:
        """Return the entries (b, K) of log p (b, K, V) for tokens (b, K)."""
        return log_p.gather(2, tokens[:, :, None])[:, :, 0]


def thresholds(coupling: str, epsilon: float | None, delta: float | None) -> dict[str, float]:
    """Return epsilon and delta as they are used, by name; nothing for another coupling.

    Raises:
        ValueError: one of them is not in (0, 1], or belongs to another coupling.
    """
    found = {}
    for name, value, usual in (("epsilon", epsilon, EPSILON), ("delta", delta, DELTA)):
        if value is None:
            found[name] = usual
        elif coupling != "typical":
            raise ValueError(
                f"{name} must be None with coupling={coupling!r}, got {short(value)}; "
                "pass coupling='typical', or leave it out"
            )
        elif not is_share(value):
            raise ValueError(
                f"{name} must be a number from 0 to 1, got {short(value)}; "
                f"pass for instance {usual}, or None for that"
            )
        else:
            found[name] = float(value)
    return found if coupling == "typical" else {}
