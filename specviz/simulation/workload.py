"""Requests: their lengths, when they arrive, and how many drafts they accept.

Not known here: policies, costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from specviz.costs.rounds import common_num_draft_tokens
from specviz.record.schema import Array
from specviz.record.trace import RecordedRun, Trace, check_runs
from specviz.util.validate import short


@dataclass(frozen=True)
class Acceptance:
    """How many of K drafts a round accepts. The rounds of a request are independent.

    Attributes:
        probabilities: (C, K+1), the probability of accepting 0..K drafts for each of C equally
            frequent kinds of request.
    """

    probabilities: Array

    @classmethod
    def rates(cls, rates: Sequence[float]) -> Acceptance:
        """Return the acceptance of unconditional rates at positions 1..K.

        These are the rates of `metrics.acceptance`: from 0 to 1, never rising.
        """
        return cls(-np.diff([[1.0, *rates, 0.0]]))

    @classmethod
    def geometric(cls, alpha: float | Sequence[float], num_draft_tokens: int = 5) -> Acceptance:
        """Return the acceptance where each draft is accepted with probability alpha.

        A draft is accepted only if all before it were. Several alphas are kinds of request,
        equally frequent.
        """
        alphas = np.atleast_1d(alpha)
        if not ((alphas >= 0) & (alphas <= 1)).all():
            raise ValueError(
                f"alpha must be a number from 0 to 1, or several, got {short(alpha)}; pass"
                " probabilities"
            )
        reached = alphas[:, None] ** np.arange(num_draft_tokens + 1)  # (C, K+1)
        stopped = reached[:, :-1] * (1 - alphas[:, None])
        return cls(np.concatenate([stopped, reached[:, -1:]], 1))

    @classmethod
    def measured(cls, runs: Sequence[RecordedRun]) -> Acceptance:
        """Return the acceptance of recorded runs with one K; each of their requests is a kind.

        Raises:
            ValueError: the runs draft nothing, or have several K.
        """
        check_runs(runs)
        k = common_num_draft_tokens(runs)
        if not k:
            raise ValueError(
                "runs must draft tokens, got runs without drafts; pass runs of a strategy that"
                " drafts"
            )
        counts = np.concatenate([_accepted_counts(run, k) for run in runs])
        return cls(counts / counts.sum(1, keepdims=True))

    @property
    def mean_acceptance_length(self) -> float:
        """1 + accepted drafts a round, averaged over the kinds."""
        drafts = np.arange(self.probabilities.shape[1])
        return float(1 + (self.probabilities @ drafts).mean())


def _accepted_counts(run: RecordedRun, k: int) -> Array:
    """Return how often each request of a run accepted 0..K drafts (C, K+1)."""
    working = run.rows["gained"] > 0
    requests = run.rows["request"][working].astype(np.int64)
    counts = np.zeros((int(requests.max(initial=0)) + 1, k + 1))
    np.add.at(counts, (requests, run.rows["accepted"][working]), 1)
    return counts[counts.sum(1) > 0]


@dataclass(frozen=True)
class Workload:
    """G replicas of N requests each. A replica has its own clock, queues and devices.

    Attributes:
        prompt_tokens, new_tokens: (G, N) int64, at least 1.
        arrival_s: (G, N) float64 seconds, in order.
        accepted: (S,) int8, drafts accepted in one round after the other.
        first: (G, N), the index into `accepted` from which a request reads.
        by_position: whether `accepted` has an entry for each new token of a text, rather than for
            each round: then a request reads the entry of the token that it writes next.
        log_q: (S, D), log-probability of each proposal at that position; None if unknown.
        entropy: (S, D), of the distribution that the proposal comes from; None if unknown.
    """

    prompt_tokens: Array
    new_tokens: Array
    arrival_s: Array
    accepted: Array
    first: Array
    by_position: bool = False
    log_q: Array | None = None
    entropy: Array | None = None

    @property
    def longest(self) -> int:
        """Tokens of the longest request, its prompt included."""
        return int((self.prompt_tokens + self.new_tokens).max())

    @classmethod
    def drawn(
        cls,
        requests: int,
        prompt_tokens: int | Sequence[int],
        new_tokens: int | Sequence[int],
        acceptance: Acceptance,
        *,
        arrivals: float | Sequence[float] | None = None,
        replicas: int = 1,
        seed: int = 0,
    ) -> Workload:
        """Draw `requests` in each of `replicas` at random.

        Args:
            requests: N.
            prompt_tokens, new_tokens: one length for all, or several to draw from: for instance
                range(20, 201), or the lengths of real prompts.
            acceptance: from which the accepted drafts are drawn.
            arrivals: None for all at once; a number for a Poisson process of so many a second; a
                sequence for the times themselves, in seconds and in order.
            replicas: G.
            seed: of all that is drawn.
        """
        generator = np.random.default_rng(seed)
        shape = (replicas, requests)
        prompts = generator.choice(np.atleast_1d(prompt_tokens), shape)
        outputs = generator.choice(np.atleast_1d(new_tokens), shape)
        drawn = cls._with_acceptance(prompts, outputs, acceptance, generator)
        return drawn.arriving(arrivals, seed)

    @classmethod
    def given(
        cls,
        prompt_tokens: Sequence[int],
        new_tokens: Sequence[int],
        acceptance: Acceptance,
        *,
        replicas: int = 1,
        seed: int = 0,
    ) -> Workload:
        """Return requests with exactly these lengths, in order, all at once, in every replica."""
        prompts = np.tile(np.asarray(prompt_tokens), (replicas, 1))
        outputs = np.tile(np.asarray(new_tokens), (replicas, 1))
        generator = np.random.default_rng(seed)
        return cls._with_acceptance(prompts, outputs, acceptance, generator)

    @classmethod
    def _with_acceptance(
        cls, prompts: Array, outputs: Array, acceptance: Acceptance, generator: np.random.Generator
    ) -> Workload:
        """Draw the kind of each request, and as many acceptances as it may have rounds."""
        table = acceptance.probabilities
        kinds = generator.integers(0, len(table), outputs.size)
        limits = np.cumsum(table, 1)[:, :-1]  # (C, K)
        rounds = outputs.ravel()
        # A number drawn at random is compared with the limits of its request's kind.
        drawn = generator.random(int(rounds.sum()))
        accepted = np.zeros(len(drawn), np.int8)
        for limit in np.repeat(limits[kinds], rounds, axis=0).T:
            accepted += drawn >= limit
        return cls(
            prompt_tokens=prompts,
            new_tokens=outputs,
            arrival_s=np.zeros(prompts.shape),
            accepted=accepted,
            first=(np.cumsum(rounds) - rounds).reshape(outputs.shape),
        )

    def arriving(self, arrivals: float | Sequence[float] | None, seed: int = 0) -> Workload:
        """Return the same requests at other times; `arrivals` as in `drawn`.

        At another rate the pattern stays the same.
        """
        shape = self.prompt_tokens.shape
        if arrivals is None:
            return replace(self, arrival_s=np.zeros(shape))
        if np.ndim(arrivals):
            times = np.asarray(arrivals, np.float64)
            return replace(self, arrival_s=np.broadcast_to(times, shape))
        pauses = np.random.default_rng([seed, 1]).standard_exponential(shape)
        return replace(self, arrival_s=np.cumsum(pauses, 1) / arrivals)

    def part(self, replicas: int | None, requests: int) -> Workload:
        """Return the first requests of the first replicas (None: of all)."""
        names = ("prompt_tokens", "new_tokens", "arrival_s", "first")
        kept = {name: getattr(self, name)[:replicas, :requests] for name in names}
        return replace(self, **kept)

    @classmethod
    def replay(cls, run: Trace) -> Workload:
        """Return the requests of a recorded run, all at once.

        Each gains the tokens that it gained in its own rounds. The requests enter in the order in
        which the run let them enter.
        """
        working = run.rows["gained"] > 0
        request = run.rows["request"][working]
        gained = run.rows["gained"][working]
        by_request = np.argsort(request, kind="stable")
        order = np.arange(run.num_requests)
        first = np.searchsorted(request[by_request], order)
        prompts = np.diff(run.requests["prompt_offsets"])
        outputs = np.diff(run.requests["output_offsets"])
        if run.meta["strategy_options"].get("sort_prompts"):
            order = np.argsort(prompts, kind="stable")
        return cls(
            prompt_tokens=prompts[order][None].astype(np.int64),
            new_tokens=outputs[order][None].astype(np.int64),
            arrival_s=np.zeros((1, len(order))),
            accepted=(gained[by_request] - 1).astype(np.int8),
            first=first[order][None].astype(np.int64),
        )
