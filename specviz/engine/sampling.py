"""Lossless sampling: two ways to accept drafts that keep the distribution of the target's tokens.

A third one, typical acceptance, does not keep it; see `typical.py`.

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

from specviz.engine.chooser import Chooser, best_tokens
from specviz.engine.gumbel import Gumbel
from specviz.engine.names import COUPLINGS, check_temperature, check_top_p
from specviz.engine.rejection import accept_drafts, draw, residual
from specviz.engine.rng import ACCEPT, CHILDREN, DRAFT, RESIDUAL, Noise
from specviz.engine.trees.rejection import judge_children, sibling_ranks
from specviz.engine.trees.shape import Tree
from specviz.engine.trees.walk import Walk, follow, walk_to
from specviz.engine.typical import Typical, thresholds
from specviz.util.validate import require_choice, require_int, require_kind


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
            "gumbel" accepts a little less, and equals it token for token, given the seed.
            "typical" accepts what is likely enough, which changes the distribution: a run with it
            promises nothing. See `Rejection`, `Gumbel` and `Typical`.
        epsilon, delta: the thresholds of coupling="typical", shares; None for 0.09 and 0.3.

    Raises:
        ValueError: a value cannot be used.
    """

    temperature: float
    top_k: int | None = None
    top_p: float | None = None
    coupling: str = "rejection"
    epsilon: float | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        # Plain numbers, also where numpy's were passed: they are recorded.
        object.__setattr__(self, "temperature", check_temperature(self.temperature))
        if self.top_k is not None:
            remedy = "pass for instance 50, or None for all tokens"
            object.__setattr__(self, "top_k", require_int("top_k", self.top_k, remedy=remedy))
        if self.top_p is not None:
            object.__setattr__(self, "top_p", check_top_p(self.top_p))
        require_choice("coupling", self.coupling, COUPLINGS)
        for name, value in thresholds(self.coupling, self.epsilon, self.delta).items():
            object.__setattr__(self, name, value)

    def warp(self, logits: Tensor) -> Tensor:
        """Return logits (..., V) as float32 after temperature, top-k and top-p, in this order.

        The logits of tokens that top-k or top-p removes are -inf.

        Raises ValueError if `logits` is not a tensor.
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
        if self.coupling == "rejection":
            return Rejection(self, seed)
        if self.coupling == "gumbel":
            return Gumbel(self.warp, seed)
        return Typical(self.warp, seed, **thresholds(self.coupling, self.epsilon, self.delta))


class Rejection:
    """Accept draft d with probability min(1, p(d) / q(d)); else draw from max(p - q, 0).

    Source: Leviathan et al. 2023 (arXiv 2211.17192).
    """

    weighs_drafts = True
    exact = True

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
        q = self._drawn_from(drafts, draft_logits, size)  # (b, K, V)
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

    def draw_independently(
        self, logits: Tensor, requests: Sequence[int], indices: Sequence[int], count: int
    ) -> Tensor:
        """Draw `count` tokens (b, m, count) after each of m nodes from q, each from all of it.

        logits: (b, m, V) float32. Nodes of a row share the numbers, as in `draw_children`.
        """
        b, m, size = logits.shape
        q = self._params.distribution(logits)[:, :, None].expand(b, m, count, size)
        rows = [
            [self._noise.uniforms(request, index, 1, child)[0, DRAFT] for child in range(count)]
            for request, index in zip(requests, indices, strict=True)
        ]
        uniforms = torch.tensor(rows, device=logits.device)[:, None].expand(b, m, count)
        return draw(q.reshape(-1, size), uniforms.reshape(-1)).reshape(b, m, count)

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
        """See `Chooser`; `judged_by` says how."""
        p = self._params.distribution(logits)  # (b, K+1, V)
        b, width, size = p.shape
        steps = tree.height + 1
        # By depth: of the nodes of one depth only one can be on the path that is accepted.
        u = self._uniforms(requests, indices, steps, p.device)[:, :, RESIDUAL]  # (b, steps)
        if judged_by == "target":
            each = u.gather(1, tree.depths).reshape(-1)
            choice = draw(p.reshape(-1, size), each).reshape(b, width)
            return follow(drafts, tree, choice, lengths)
        last, weights = judge_children(
            drafts,
            tree,
            p,
            self._drawn_from(drafts, draft_logits, size),
            self._child_uniforms(requests, indices, tree),
            lengths,
            renormalise=judged_by == "rest",
            drawn=drawn if judged_by == "each" else None,
        )
        depth = tree.depths.gather(1, last[:, None])  # (b, 1)
        return walk_to(drafts, tree, last, draw(weights, u.gather(1, depth)[:, 0]))

    def _drawn_from(self, drafts: Tensor, draft_logits: Tensor | None, size: int) -> Tensor:
        """Return q (b, K, V); of proposals without a distribution, all of it on the draft."""
        if draft_logits is None:
            return F.one_hot(drafts, size).double()
        return self._params.distribution(draft_logits)

    def _child_uniforms(
        self, requests: Sequence[int], indices: Sequence[int], tree: Tree
    ) -> Tensor:
        """Return a number (b, K) for each draft, by its depth and its rank among its siblings."""
        ranks = sibling_ranks(tree.parents)  # (b, K)
        fan = ranks.shape[1]
        rows = [
            [self._noise.uniforms(request, index, tree.height, child) for child in range(fan)]
            for request, index in zip(requests, indices, strict=True)
        ]
        numbers = np.array(rows)[:, :, :, ACCEPT]  # (b, fan, height)
        by_rank = torch.from_numpy(numbers).to(ranks.device).flatten(1)
        return by_rank.gather(1, ranks * tree.height + tree.depths[:, 1:] - 1)

    def _uniforms(
        self, requests: Sequence[int], indices: Sequence[int], count: int, device: torch.device
    ) -> Tensor:
        """Return (b, count, 3) for `count` tokens from each of `indices` on."""
        rows = [
            self._noise.uniforms(request, index, count)
            for request, index in zip(requests, indices, strict=True)
        ]
        return torch.from_numpy(np.stack(rows)).to(device, non_blocking=True)
