"""Lossless sampling: two ways to accept drafts so that what is emitted is distributed as the target alone would sample it.

B rows, K draft tokens, V vocabulary; p is the target's distribution after warping (temperature, top-k, top-p), q the draft's, warped
alike. Logits are warped in float32, as `generate()` warps them; probabilities and sums over them are float64.

All randomness is a function of (seed, prompt, index of the token in its row, purpose), so what a row draws depends on no other row, no
batch size, no schedule and no device. A number is used again only if what it decided was thrown away unseen: a token emitted at index t
depends on the numbers of the indices up to t, and the next round starts at t + 1. Knows no model and no cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from specviz.engine.accept import Chooser
from specviz.util.validate import is_real, require_int

COUPLINGS = ("rejection", "gumbel")
COLDEST, HOTTEST = 1e-5, 1e5  # temperatures beyond these would leave float32's range
DRAFT, ACCEPT, REST = range(3)  # what the numbers of one index are for; Philox makes four at a time


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are drawn, from target and draft alike.

    Attributes:
        temperature: 1e-5 to 1e5; logits are divided by it. For greedy decoding pass `sampling=None` instead.
        top_k: only the k most likely tokens; None for all.
        top_p: only the most likely tokens that together reach this probability, after top_k; 0 < top_p <= 1, None for all.
        coupling: "rejection" accepts most and equals autoregressive sampling in distribution; "gumbel" accepts a little less and equals
            it token for token, given the seed (see `Rejection` and `Gumbel`).

    Raises:
        ValueError: a value cannot be used.
    """

    temperature: float
    top_k: int | None = None
    top_p: float | None = None
    coupling: str = "rejection"

    def __post_init__(self) -> None:
        if not is_real(self.temperature) or not COLDEST <= self.temperature <= HOTTEST:
            raise ValueError(
                f"temperature={self.temperature!r} is no number from {COLDEST} to {HOTTEST}; pass one, or sampling=None for greedy decoding"
            )
        if self.top_k is not None:
            require_int("top_k", self.top_k, remedy="pass for instance 50, or None for all tokens")
        if self.top_p is not None and (not is_real(self.top_p) or not 0 < self.top_p <= 1):
            raise ValueError(
                f"top_p={self.top_p!r} is not above 0 and at most 1; pass for instance 0.9, or None for all tokens"
            )
        if self.coupling not in COUPLINGS:
            raise ValueError(
                f"coupling={self.coupling!r} is unknown; choose one of {', '.join(COUPLINGS)}"
            )
        object.__setattr__(
            self, "temperature", float(self.temperature)
        )  # plain numbers, whatever they were: they are recorded
        object.__setattr__(self, "top_k", None if self.top_k is None else int(self.top_k))
        object.__setattr__(self, "top_p", None if self.top_p is None else float(self.top_p))

    def warp(self, logits: Tensor) -> Tensor:
        """Logits (..., V) as float32 after temperature, top-k and top-p, in this order; what is left out is -inf."""
        scores = logits.float().reshape(-1, logits.shape[-1])
        scores = TemperatureLogitsWarper(self.temperature)(None, scores)
        if self.top_k is not None:
            scores = TopKLogitsWarper(self.top_k)(None, scores)
        if self.top_p is not None and self.top_p < 1:
            scores = TopPLogitsWarper(self.top_p)(None, scores)
        return scores.reshape(logits.shape)

    def distribution(self, logits: Tensor) -> Tensor:
        """What tokens are drawn from, (..., V) float64, for logits (..., V)."""
        return self.warp(logits).softmax(-1, dtype=torch.float64)

    def chooser(self, seed: int) -> Chooser:
        """Draws tokens this way; `seed` is any whole number of at least 0."""
        return Rejection(self, seed) if self.coupling == "rejection" else Gumbel(self, seed)


class Rejection:
    """Accept draft d with probability min(1, p(d) / q(d)); after a rejection draw from the normalised max(p - q, 0).

    Source: Leviathan et al. 2023 (arXiv 2211.17192). Behind the last draft q is zero, so that the bonus, drawn from p, is no other case.
    """

    weighs_drafts = True

    def __init__(self, params: SamplingParams, seed: int) -> None:
        self._params, self._noise = params, Noise(seed)

    def draft(self, logits: Tensor, requests: Sequence[int], indices: Sequence[int]) -> Tensor:
        """A draw from q; see `Chooser`."""
        return draw(
            self._params.distribution(logits),
            self._uniforms(requests, indices, 1, logits.device)[:, 0, DRAFT],
        )

    def accept(
        self,
        drafts: Tensor,
        draft_logits: Tensor | None,
        logits: Tensor,
        requests: Sequence[int],
        indices: Sequence[int],
    ) -> tuple[Tensor, Tensor]:
        """See `Chooser`. A proposal that was not drawn from a distribution had q = 1. Behind index a, `emitted` repeats the drafts."""
        width, size = logits.shape[1:]
        p = self._params.distribution(logits)  # (b, K+1, V)
        q = (
            F.one_hot(drafts, size).double()
            if draft_logits is None
            else self._params.distribution(draft_logits)
        )  # (b, K, V)
        uniforms = self._uniforms(requests, indices, width, logits.device)  # (b, K+1, 3)
        accepted = accept_drafts(drafts, p, q, uniforms[:, :-1, ACCEPT])
        at = accepted[:, None, None].expand(-1, 1, size)
        rest = residual(p.gather(1, at)[:, 0], F.pad(q, (0, 0, 0, 1)).gather(1, at)[:, 0])
        last = draw(rest, uniforms[:, :, REST].gather(1, accepted[:, None])[:, 0])
        return accepted, F.pad(drafts, (0, 1)).scatter(1, accepted[:, None], last[:, None])

    def _uniforms(
        self, requests: Sequence[int], indices: Sequence[int], count: int, device: torch.device
    ) -> Tensor:
        """(b, count, 3) for `count` tokens from each of `indices` on."""
        rows = [
            self._noise.uniforms(request, index, count)
            for request, index in zip(requests, indices, strict=True)
        ]
        return torch.from_numpy(np.stack(rows)).to(device, non_blocking=True)


class Gumbel:
    """Both models take the argmax of log-probability plus Gumbel noise, the same noise at the same place; equal choices are accepted.

    The emitted token is always the target's own choice there, so the text depends on the seed alone: not on drafter, K, strategy or batch.
    A draft is accepted with probability at least (1 - TV) / (1 + TV), where `Rejection` reaches 1 - TV; TV is the total variation
    distance of p and q. Source: the drafter-invariant coupling of Daliri, Musco, Suresh 2024 (arXiv 2408.07978).
    """

    weighs_drafts = False

    def __init__(self, params: SamplingParams, seed: int) -> None:
        self._params, self._noise = params, Noise(seed)
        self._kept: dict[
            tuple[int, int], Tensor
        ] = {}  # noise (V,) by (prompt, index): of this round, and of the last one's tokens

    def draft(self, logits: Tensor, requests: Sequence[int], indices: Sequence[int]) -> Tensor:
        """The draft's choice under the noise of that place; see `Chooser`."""
        return self._choose(logits, list(zip(requests, indices, strict=True)))

    def accept(
        self,
        drafts: Tensor,
        draft_logits: Tensor | None,
        logits: Tensor,
        requests: Sequence[int],
        indices: Sequence[int],
    ) -> tuple[Tensor, Tensor]:
        """See `Chooser`. Whoever proposed, and from what, makes no difference."""
        b, width, size = logits.shape
        places = [
            (request, index + j)
            for request, index in zip(requests, indices, strict=True)
            for j in range(width)
        ]
        choice = self._choose(logits.reshape(-1, size), places).reshape(b, width)
        self._kept = {
            place: self._kept[place] for place in places
        }  # what lies behind a rejection is drawn again in the next round
        accepted = (drafts == choice[:, :-1]).long().cumprod(1).sum(1)
        return accepted, choice

    def _choose(self, logits: Tensor, places: Sequence[tuple[int, int]]) -> Tensor:
        """One choice for each of logits (n, V), under the noise of its (prompt, index)."""
        for request, index in places:
            if (request, index) not in self._kept:
                self._kept[request, index] = torch.from_numpy(
                    self._noise.gumbel(request, index, logits.shape[-1])
                ).to(logits.device)
        return (
            self._params.warp(logits) + torch.stack([self._kept[place] for place in places])
        ).argmax(-1)


class Noise:
    """Random numbers that depend on the seed, a prompt's place in the caller's list and the index of a token in its row alone.

    Philox is a counter-based generator (Salmon et al. 2011): its key is (seed, prompt), and index and purpose stand in its counter. Only
    raw words are taken from it, which numpy keeps the same in all releases.
    """

    def __init__(self, seed: int) -> None:
        self._seed = np.random.SeedSequence(seed).generate_state(1, np.uint64)[
            0
        ]  # one word from a seed of any size
        self._philox = np.random.Philox(0)
        self._fresh = self._philox.state

    def uniforms(self, request: int, index: int, count: int) -> np.ndarray:
        """(count, 3) in (0, 1): for each token from `index` on, the numbers for DRAFT, ACCEPT and REST."""
        words = self._words(
            request, (index, 0, 0, 0), 4 * count
        )  # each count of the first word makes four
        return unit(words).reshape(count, 4)[:, :3]

    def gumbel(self, request: int, index: int, size: int) -> np.ndarray:
        """(size,) standard Gumbel noise for the token at `index`."""
        noise = unit(self._words(request, (0, index, 1, 0), size))
        for _ in range(2):  # -log(-log(u))
            np.log(noise, out=noise)
            np.negative(noise, out=noise)
        return noise

    def _words(self, request: int, counter: tuple[int, int, int, int], count: int) -> np.ndarray:
        """Setting the state is three times as fast as making a generator, which asks the system for a seed that nobody needs."""
        key = np.array([self._seed, request], dtype=np.uint64)
        self._philox.state = {
            **self._fresh,
            "state": {"counter": np.array(counter, dtype=np.uint64), "key": key},
        }
        return self._philox.random_raw(count)


def unit(words: np.ndarray) -> np.ndarray:
    """64-bit words as float64 in (0, 1), the middles of 2**52 equal parts: neither 0 nor 1, so that -log(-log(u)) is finite."""
    numbers: np.ndarray = (words >> np.uint64(12)) + 0.5
    numbers *= 2.0**-52
    return numbers


def accept_drafts(drafts: Tensor, p: Tensor, q: Tensor, uniforms: Tensor) -> Tensor:
    """How many drafts (b,) are accepted: those before the first with u q(d) >= p(d).

    drafts (b, K) int64; p (b, K+1, V) or (b, K, V), q (b, K, V), uniforms (b, K) in (0, 1).
    """
    at = drafts[:, :, None]
    accepts = uniforms * q.gather(2, at)[:, :, 0] < p[:, : drafts.shape[1]].gather(2, at)[:, :, 0]
    return accepts.long().cumprod(1).sum(1)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """What is left of p (b, V) where q (b, V) said less, not normalised. p itself if rounding left nothing: then p equals q."""
    rest = (p - q).clamp(min=0)
    return torch.where(rest.sum(-1, keepdim=True) > 0, rest, p)


def draw(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Tokens (b,) by inverse CDF: the first whose cumulated weight exceeds u times the total.

    weights (b, V) float64, not necessarily normalised; uniforms (b,) in (0, 1). Never a token of weight 0, whatever the rounding.
    """
    cumulated = weights.cumsum(-1)
    found = torch.searchsorted(cumulated, uniforms[:, None] * cumulated[:, -1:], right=True).clamp(
        max=weights.shape[-1] - 1
    )
    return torch.where(weights.gather(1, found) > 0, found, weights.argmax(-1, keepdim=True))[:, 0]
