"""Lossless sampling: two ways to accept drafts that keep the distribution of the target's tokens.

B rows, K draft tokens, V vocabulary. p is the target's distribution after temperature, top-k and
top-p; q is the draft's, warped alike. Logits are warped in float32, as `generate()` warps them;
probabilities and sums over them are float64. The random numbers come from `rng.py`. It knows no
model and no cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from specviz.engine.accept import Chooser, best_tokens, count_leading, judged
from specviz.engine.rng import ACCEPT, CHILDREN, DRAFT, RESIDUAL, Noise
from specviz.engine.trees.rejection import judge_children, sibling_ranks
from specviz.engine.trees.shape import Tree
from specviz.engine.trees.walk import Walk, follow, walk_to
from specviz.util.validate import is_real, require_choice, require_int, require_kind, short

COUPLINGS = ("rejection", "gumbel")
MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-5, 1e5  # scores beyond these would leave float32's range


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are drawn, from target and draft alike.

    Attributes:
        temperature: 1e-5 to 1e5; logits are divided by it. For greedy decoding pass `sampling=None`
            instead.
        top_k: only the k most likely tokens; None for all.
        top_p: only the most likely tokens that together reach this probability, after top_k; 0 <
            top_p <= 1, None for all.
        coupling: "rejection" accepts most, and equals autoregressive sampling in distribution.
            "gumbel" accepts a little less, and equals it token for token, given the seed. See
            `Rejection` and `Gumbel`.

    Raises:
        ValueError: a value cannot be used.
    """

    temperature: float
    top_k: int | None = None
    top_p: float | None = None
    coupling: str = "rejection"

    def __post_init__(self) -> None:
        temperature = self.temperature
        if not is_real(temperature) or not MIN_TEMPERATURE <= temperature <= MAX_TEMPERATURE:
            raise ValueError(
                f"temperature must be a number from {MIN_TEMPERATURE} to {MAX_TEMPERATURE}, "
                f"got {short(temperature)}; pass one, or sampling=None for greedy decoding"
            )
        # Plain numbers, also where numpy's were passed: they are recorded.
        object.__setattr__(self, "temperature", float(temperature))
        if self.top_k is not None:
            remedy = "pass for instance 50, or None for all tokens"
            object.__setattr__(self, "top_k", require_int("top_k", self.top_k, remedy=remedy))
        if self.top_p is not None:
            if not is_real(self.top_p) or not 0 < self.top_p <= 1:
                raise ValueError(
                    f"top_p must be a number above 0 and at most 1, got {short(self.top_p)}; "
                    "pass for instance 0.9, or None for all tokens"
                )
            object.__setattr__(self, "top_p", float(self.top_p))
        require_choice("coupling", self.coupling, COUPLINGS)

    def warp(self, logits: Tensor) -> Tensor:
        """Return logits (..., V) as float32 after temperature, top-k and top-p, in this order.

        The logits of tokens that top-k or top-p removes are -inf.

        Raises ValueError if `logits` is no tensor.
        """
        require_kind("logits", logits, Tensor, "pass a tensor (..., V)")
        scores = logits.float().reshape(-1, logits.shape[-1])
        scores = TemperatureLogitsWarper(self.temperature)(None, scores)
        if self.top_k is not None:
            scores = TopKLogitsWarper(self.top_k)(None, scores)
        if self.top_p is not None and self.top_p < 1:
            scores = TopPLogitsWarper(self.top_p)(None, scores)
        return scores.reshape(logits.shape)

    def distribution(self, logits: Tensor) -> Tensor:
        """Return the probabilities (..., V) float64 of the tokens, for logits (..., V)."""
        return self.warp(logits).softmax(-1, dtype=torch.float64)

    def chooser(self, seed: int) -> Chooser:
        """Return a `Chooser` that draws tokens this way. `seed` is any int >= 0."""
        require_int("seed", seed, minimum=0)
        return Rejection(self, seed) if self.coupling == "rejection" else Gumbel(self, seed)


class Rejection:
    """Accept draft d with probability min(1, p(d) / q(d)); else draw from max(p - q, 0).

    Source: Leviathan et al. 2023 (arXiv 2211.17192).
    """

    weighs_drafts = True

    def __init__(self, params: SamplingParams, seed: int) -> None:
        self._params = params
        self._noise = Noise(seed)

    def draft(self, logits: Tensor, requests: Sequence[int], indices: Sequence[int]) -> Tensor:
        """Draw from q; see `Chooser`."""
        uniforms = self._uniforms(requests, indices, 1, logits.device)  # (b, 1, 3)
        return draw(self._params.distribution(logits), uniforms[:, 0, DRAFT])

    def log_q(self, logits: Tensor) -> Tensor:
        """See `Chooser`."""
        return self._params.warp(logits).log_softmax(-1)

    def accept(
        self,
        drafts: Tensor,
        draft_logits: Tensor | None,
        logits: Tensor,
        requests: Sequence[int],
        indices: Sequence[int],
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """See `Chooser`. After index a, the emitted tokens repeat the drafts."""
        width, size = logits.shape[1:]
        # float64, because p - q of near equals is what is drawn from.
        p = self._params.distribution(logits)  # (b, K+1, V)
        if draft_logits is None:
            q = F.one_hot(drafts, size).double()  # (b, K, V): proposals without a distribution
        else:
            q = self._params.distribution(draft_logits)
        uniforms = self._uniforms(requests, indices, width, logits.device)  # (b, K+1, 3)
        if lengths is not None:
            # A draft that is not judged does not count among what may be emitted in its place.
            beyond = torch.arange(width - 1, device=q.device) >= lengths[:, None]
            q = q.masked_fill(beyond[:, :, None], 0)
        accepted = accept_drafts(drafts, p, q, uniforms[:, :-1, ACCEPT], lengths)

        # Only the first rejected position is drawn from. q is padded by zeros, so that after the
        # last draft that is judged the residual max(p - 0, 0) is p itself.
        here = accepted[:, None, None].expand(-1, 1, size)
        p_here = p.gather(1, here)[:, 0]  # (b, V)
        q_here = F.pad(q, (0, 0, 0, 1)).gather(1, here)[:, 0]
        u_here = uniforms[:, :, RESIDUAL].gather(1, accepted[:, None])[:, 0]
        bonus = draw(residual(p_here, q_here), u_here)
        return accepted, F.pad(drafts, (0, 1)).scatter(1, accepted[:, None], bonus[:, None])

    def branch(
        self, logits: Tensor, requests: Sequence[int], indices: Sequence[int], count: int
    ) -> tuple[Tensor, Tensor]:
        """Return the likeliest tokens, which are chosen, not drawn; see `Chooser`."""
        return best_tokens(self.log_q(logits), count)

    def draw_children(
        self, logits: Tensor, requests: Sequence[int], indices: Sequence[int], count: int
    ) -> Tensor:
        """Draw `count` tokens (b, m, count) after each of m nodes from q, without replacement.

        logits: (b, m, V) float32. Nodes of a row share the noise, since only one of them can be on
        the path that is accepted.
        """
        size = logits.shape[-1]
        noises = [
            self._noise.gumbel(request, index, size, purpose=CHILDREN)
            for request, index in zip(requests, indices, strict=True)
        ]
        noise = torch.from_numpy(np.stack(noises)).to(logits.device)  # (b, V)
        return (self.log_q(logits) + noise[:, None]).topk(count, -1).indices

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
    ) -> Walk:
        """See `Chooser`; `judged_by` says how."""
        p = self._params.distribution(logits)  # (b, K+1, V)
        b, width, size = p.shape
        steps = tree.height + 1
        if judged_by == "target":
            # Drawn from p after every node, with the same number at the same depth: only one of
            # them is on the path.
            u = self._uniforms(requests, indices, steps, p.device)[:, :, RESIDUAL]
            u = u.gather(1, tree.depths)  # (b, K+1)
            choice = draw(p.reshape(-1, size), u.reshape(-1)).reshape(b, width)
            return follow(drafts, tree, choice, lengths)
        if draft_logits is None:
            q = F.one_hot(drafts, size).double()
        else:
            q = self._params.distribution(draft_logits)
        ranks = sibling_ranks(tree.parents)  # (b, K)
        last, weights = judge_children(
            drafts,
            tree,
            p,
            q,
            self._child_uniforms(requests, indices, steps, tree, ranks),
            lengths,
            renormalise=judged_by == "rest",
        )
        u = self._uniforms(requests, indices, steps, p.device)[:, :, RESIDUAL]
        u = u.gather(1, tree.depths.gather(1, last[:, None]))[:, 0]
        return walk_to(drafts, tree, last, draw(weights, u))

    def _child_uniforms(
        self,
        requests: Sequence[int],
        indices: Sequence[int],
        steps: int,
        tree: Tree,
        ranks: Tensor,
    ) -> Tensor:
        """Return a number (b, K) for each draft, by its depth and its rank among its siblings."""
        fan = ranks.shape[1]
        by_rank = [
            self._uniforms(requests, indices, steps, ranks.device, child)[:, :, ACCEPT]
            for child in range(fan)
        ]
        numbers = torch.stack(by_rank, 2)  # (b, steps, fan)
        depth = tree.depths[:, 1:] - 1
        return numbers.flatten(1).gather(1, depth * fan + ranks)

    def _uniforms(
        self,
        requests: Sequence[int],
        indices: Sequence[int],
        count: int,
        device: torch.device,
        child: int = 0,
    ) -> Tensor:
        """Return (b, count, 3) for `count` tokens from each of `indices` on."""
        rows = [
            self._noise.uniforms(request, index, count, child)
            for request, index in zip(requests, indices, strict=True)
        ]
        return torch.from_numpy(np.stack(rows)).to(device, non_blocking=True)


class Gumbel:
    """Take the argmax of log-probability plus Gumbel noise, the same for both models.

    The emitted token is always the target's own choice, so the text depends on the seed alone: not
    on drafter, K, strategy or batch. A draft is accepted with probability at least (1 - TV) / (1 +
    TV), where `Rejection` reaches 1 - TV; TV is the total variation distance of p and q.

    Source: the drafter-invariant coupling of Daliri, Musco, Suresh 2024 (arXiv 2408.07978).
    """

    weighs_drafts = False

    def __init__(self, params: SamplingParams, seed: int) -> None:
        self._params = params
        self._noise = Noise(seed)
        # Noise (V,) by (prompt, index), of this round and of the last one's tokens.
        self._drawn: dict[tuple[int, int], Tensor] = {}

    def draft(self, logits: Tensor, requests: Sequence[int], indices: Sequence[int]) -> Tensor:
        """Return the draft's choice; see `Chooser`."""
        return self._choose(logits, list(zip(requests, indices, strict=True)))

    def log_q(self, logits: Tensor) -> Tensor:
        """See `Chooser`. The noise is left out: it is not known before the token is chosen."""
        return self._params.warp(logits).log_softmax(-1)

    def accept(
        self,
        drafts: Tensor,
        draft_logits: Tensor | None,
        logits: Tensor,
        requests: Sequence[int],
        indices: Sequence[int],
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """See `Chooser`. What the drafts were drawn from makes no difference."""
        b, width, size = logits.shape
        places = []
        for request, index in zip(requests, indices, strict=True):
            places += [(request, index + j) for j in range(width)]
        choice = self._choose(logits.reshape(-1, size), places).reshape(b, width)
        # The next round begins behind a rejection, at indices whose noise this one has drawn.
        self._drawn = {place: self._drawn[place] for place in places}
        return count_leading(judged(drafts == choice[:, :-1], lengths)), choice

    def branch(
        self, logits: Tensor, requests: Sequence[int], indices: Sequence[int], count: int
    ) -> tuple[Tensor, Tensor]:
        """Return the tokens with most noise and log-probability together; see `Chooser`.

        Siblings share the noise with the target, which therefore often chooses one of them.
        """
        places = list(zip(requests, indices, strict=True))
        noise = self._noise_at(places, logits)  # (b, V)
        perturbed = self._params.warp(logits) + noise[:, None]
        return best_tokens(perturbed.log_softmax(-1), count)

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
    ) -> Walk:
        """See `Chooser`. The noise depends on a node's depth, not on what comes before it."""
        steps = tree.height + 1
        places = []
        for request, index in zip(requests, indices, strict=True):
            places += [(request, index + j) for j in range(steps)]
        noise = self._noise_at(places, logits).reshape(len(logits), steps, -1)
        rows = torch.arange(len(logits), device=logits.device)
        choice = (self._params.warp(logits) + noise[rows[:, None], tree.depths]).argmax(-1)
        self._drawn = {place: self._drawn[place] for place in places}
        return follow(drafts, tree, choice, lengths)

    def _choose(self, logits: Tensor, places: Sequence[tuple[int, int]]) -> Tensor:
        """Return one choice for each of logits (n, V), under the noise of its (prompt, index)."""
        # Logits instead of log-probabilities: they differ by a constant, which argmax ignores.
        return (self._params.warp(logits) + self._noise_at(places, logits)).argmax(-1)

    def _noise_at(self, places: Sequence[tuple[int, int]], logits: Tensor) -> Tensor:
        """Return the noise (n, V) of each (prompt, index)."""
        for place in places:
            if place not in self._drawn:
                noise = self._noise.gumbel(*place, logits.shape[-1])
                self._drawn[place] = torch.from_numpy(noise).to(logits.device)
        return torch.stack([self._drawn[place] for place in places])


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
