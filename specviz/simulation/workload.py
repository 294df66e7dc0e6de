"""The work of a simulated server: lengths of prompts and outputs, arrivals, accepted drafts.

Acceptance belongs to a request and its round, not to the batch around it. The same workload has
the same acceptances under every policy, so differences between policies are not due to chance.

Not known here: policies, costs, models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from specviz.record.schema import Array
from specviz.record.trace import Trace
from specviz.simulation.acceptance import Acceptance


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
        arrivals: float | Sequence[float] | None = None,
        replicas: int = 1,
        seed: int = 0,
    ) -> Workload:
        """Return requests with exactly these lengths, in this order, in every replica.

        The other arguments are those of `drawn`.
        """
        prompts = np.tile(np.asarray(prompt_tokens), (replicas, 1))
        outputs = np.tile(np.asarray(new_tokens), (replicas, 1))
        generator = np.random.default_rng(seed)
        made = cls._with_acceptance(prompts, outputs, acceptance, generator)
        return made.arriving(arrivals, seed)

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
