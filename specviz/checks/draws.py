"""Whether a token can have been drawn as the run says, from the candidates that were recorded.

Contract: under coupling="gumbel" a token is the argmax of its log-probability over the temperature
plus noise that depends on the seed, the request and the index alone; see `engine.rng`. A record has
the log-probabilities of a few candidates. `Draws.refuted` names the tokens that another candidate
beats for certain. Under coupling="rejection" `Draws.coins` has the numbers that
decided on drafts. Not known here: models, and the rules.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from specviz.engine.rng import ACCEPT, Noise
from specviz.record.schema import Array
from specviz.record.trace import Trace

# Differences of scores below this, times 1 + 1 / temperature, may be rounding.
MARGIN = 1e-3
_NO_TOKEN = -1


@dataclass(frozen=True, eq=False)
class Chosen:
    """Tokens that were chosen, and what the record has of each choice.

    Attributes:
        tokens, requests, indices: (m,) the token, its request, and its index in the row.
        logprobs: (m,) its log-probability, NaN where it is not recorded.
        top_ids, top_logprobs: (m, k) the candidates, best first.
    """

    tokens: Array
    requests: Array
    indices: Array
    logprobs: Array
    top_ids: Array
    top_logprobs: Array


class Draws:
    """What a sampled run must have drawn.

    Attributes:
        coupling: "gumbel" or "rejection"; "" where the draws cannot be computed again, because the
            run was greedy or its header does not say how it drew.
    """

    def __init__(self, trace: Trace) -> None:
        self._vocabulary = trace.meta["vocabulary_size"]
        seed, sampling = trace.meta["seed"], trace.meta["sampling"] or {}
        self.coupling = ""
        if seed is None or seed < 0 or not _is_usable(sampling):
            return
        self.coupling = str(sampling["coupling"])
        self._temperature = float(sampling["temperature"])
        self._top_k = sampling.get("top_k") or self._vocabulary
        self._top_p = sampling.get("top_p") or 1.0
        self._noise = Noise(seed)

    def refuted(self, chosen: Chosen) -> Array:
        """Return for each choice (m,) a candidate that beats the token for certain, or -1."""
        found = np.full(chosen.tokens.size, _NO_TOKEN)
        if self.coupling != "gumbel" or chosen.top_ids.shape[1] == 0:
            return found
        is_known = _are_scores(chosen.top_ids, chosen.top_logprobs, self._vocabulary)
        is_known &= (chosen.tokens >= 0) & (chosen.tokens < self._vocabulary)
        at = np.flatnonzero(is_known)
        if at.size == 0:
            return found
        tokens, ids = chosen.tokens[at], chosen.top_ids[at]
        logprobs = chosen.top_logprobs[at].astype(np.float64)  # (m, k)
        own = _own_logprobs(tokens, ids, logprobs, chosen.logprobs[at].astype(np.float64))

        # The emitted token may not be among the candidates, but its noise is known all the same.
        every = np.append(ids, tokens[:, None], axis=1)
        noise = self._noise.gumbel_at(chosen.requests[at], chosen.indices[at], every)
        scores = logprobs / self._temperature + noise[:, :-1]
        # A candidate that may have been removed proves nothing against the token.
        scores = np.where(self._surely_allowed(logprobs), scores, -np.inf)
        best = scores.argmax(1)
        margin = MARGIN * (1 + 1 / self._temperature)
        beats = scores.max(1) > own / self._temperature + noise[:, -1] + margin
        if self._top_k <= logprobs.shape[1]:  # a token that is outside of the k most likely ones
            beats |= own < logprobs[:, self._top_k - 1] - MARGIN
        found[at[beats]] = ids[np.arange(at.size), best][beats]
        return found

    def _surely_allowed(self, logprobs: Array) -> Array:
        """Return which candidates (m, k) neither top-k nor top-p can have removed."""
        is_top = np.arange(logprobs.shape[1]) < self._top_k
        weights = np.exp((logprobs - logprobs[:, :1]) / self._temperature)
        before = _up_to_equals(logprobs, weights, self._vocabulary) - weights
        # What top-k removes does not count for top-p. All others only make these shares smaller.
        total = (weights * is_top).sum(1, keepdims=True)
        within = before < (self._top_p - MARGIN) * total
        # Top-p keeps the most likely token, however small p is.
        within[:, 0] |= before[:, 0] == 0
        is_kept = within | (self._top_p >= 1)
        allowed: Array = is_kept & np.isfinite(logprobs) & is_top
        return allowed

    @property
    def shows_coins(self) -> bool:
        """Whether p and q of a draft follow from its log-probabilities: nothing was warped."""
        is_plain = self._temperature == 1 and self._top_p >= 1 if self.coupling else False
        return is_plain and self.coupling == "rejection" and self._top_k >= self._vocabulary

    def coins(self, requests: Array, indices: Array) -> Array:
        """Return the uniform number (m,) that decided on the draft at each index."""
        numbers = [
            self._noise.uniforms(request, index, 1)[0, ACCEPT]
            for request, index in zip(requests.tolist(), indices.tolist(), strict=True)
        ]
        return np.array(numbers, np.float64)


def _up_to_equals(logprobs: Array, weights: Array, vocabulary: int) -> Array:
    """Return the weight of each candidate and of all that may stand before it, (m, k).

    Among equals any may be the first, so all of them count. Of those that equal the last candidate
    some may not be recorded: the weight is infinite there.
    """
    cumulative = weights.cumsum(1)
    m, k = logprobs.shape
    is_last = np.append(
        logprobs[:, 1:] < logprobs[:, :-1] - MARGIN, np.full((m, 1), k >= vocabulary), axis=1
    )
    of_groups = np.where(is_last, cumulative, np.inf)
    found: Array = np.minimum.accumulate(of_groups[:, ::-1], axis=1)[:, ::-1]
    return found


def _own_logprobs(tokens: Array, ids: Array, logprobs: Array, known: Array) -> Array:
    """Return the log-probability of each token (m,), or the most that it can be.

    A token outside the candidates is at most as likely as the last of them.
    """
    is_token = ids == tokens[:, None]
    of_candidate = np.where(is_token, logprobs, -np.inf).max(1)
    of_other = np.where(np.isnan(known), logprobs[:, -1], known)
    found: Array = np.where(is_token.any(1), of_candidate, of_other)
    return found


def _is_usable(sampling: Mapping[str, Any]) -> bool:
    """Return whether a header's `sampling` says how tokens were drawn."""
    temperature: Any = sampling.get("temperature")
    top_k: Any = sampling.get("top_k")
    top_p: Any = sampling.get("top_p")
    return (
        sampling.get("coupling") in ("gumbel", "rejection")
        and type(temperature) in (int, float)
        and 1e-5 <= temperature <= 1e5
        and (top_k is None or (type(top_k) is int and top_k >= 1))
        and (top_p is None or (type(top_p) in (int, float) and 0 < top_p <= 1))
    )


def _are_scores(ids: Array, logprobs: Array, vocabulary: int) -> Array:
    """Return where (m,) candidates are recorded: known ids, and log-probabilities that fall."""
    is_recorded = ((ids >= 0) & (ids < vocabulary)).all(1) & ~np.isnan(logprobs).any(1)
    falls = (logprobs[:, 1:] <= logprobs[:, :-1]).all(1)
    found: Array = is_recorded & falls & np.isfinite(logprobs[:, 0]) & (logprobs != 0).any(1)
    return found
