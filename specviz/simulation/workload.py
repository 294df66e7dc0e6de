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
from specviz.simulation.acceptance import Acceptance, floats
from specviz.util.validate import (
    require_int,
    require_kind,
    require_list,
    require_positive,
    short,
)

MAX_REQUESTS = 2**24  # and replicas
_NUM_ACCEPTANCES = 2**20  # drawn in advance; each request reads them from its own place on


@dataclass(frozen=True)
class Workload:
    """G replicas of N requests each. A replica has its own clock, queues and devices.

    Attributes:
        prompt_tokens, new_tokens: (G, N) int64, at least 1.
        arrival_s: (G, N) float64 seconds, in order.
        accepted: (S,) int8, drafts accepted in one round after the other.
        first: (G, N), the index into `accepted` from which a request reads.
        longest: the largest prompt + budget, which bounds the columns of a slab.
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
    longest: int
    by_position: bool = False
    log_q: Array | None = None
    entropy: Array | None = None

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
                sequence for the times themselves, in seconds.
            replicas: G.
            seed: of all that is drawn.

        Raises:
            ValueError: an argument is out of range.
        """
        shape = _count("replicas", replicas), _count("requests", requests)
        _check_acceptance(acceptance)
        generator = np.random.default_rng(require_int("seed", seed, 0))
        prompts = _lengths("prompt_tokens", prompt_tokens)
        outputs = _lengths("new_tokens", new_tokens)
        prompts = prompts[generator.integers(0, len(prompts), shape)]
        outputs = outputs[generator.integers(0, len(outputs), shape)]
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
        prompts = _lengths("prompt_tokens", prompt_tokens)
        outputs = _lengths("new_tokens", new_tokens)
        if prompts.shape != outputs.shape:
            raise ValueError(
                f"new_tokens must have one length for each of {prompts.size} prompts, got"
                f" {outputs.size}; pass as many as prompt_tokens={short(prompt_tokens)} has, not"
                f" {short(new_tokens)}"
            )
        copies = (_count("replicas", replicas), 1)
        _check_acceptance(acceptance)
        generator = np.random.default_rng(require_int("seed", seed, 0))
        made = cls._with_acceptance(
            np.tile(prompts, copies), np.tile(outputs, copies), acceptance, generator
        )
        return made.arriving(arrivals, seed)

    @classmethod
    def _with_acceptance(
        cls, prompts: Array, outputs: Array, acceptance: Acceptance, generator: np.random.Generator
    ) -> Workload:
        """Draw a stretch of acceptances for each kind, and each request's kind and place in it."""
        table = acceptance.probabilities
        rounds = int(outputs.max())  # no request needs more
        stretch = max(_NUM_ACCEPTANCES // len(table), 4 * rounds)
        limits = np.cumsum(table, 1)[:, :-1]  # (C, K)
        accepted = [
            np.searchsorted(limit, generator.random(stretch), side="right") for limit in limits
        ]
        # Requests read one long stretch from places of their own. They may overlap, but among a
        # million draws that is rare, and a table per request would not fit into memory.
        kind = generator.integers(0, len(table), prompts.shape)
        first = kind * stretch + generator.integers(0, stretch - rounds, prompts.shape)
        return cls(
            prompt_tokens=prompts,
            new_tokens=outputs,
            arrival_s=np.zeros(prompts.shape),
            accepted=np.concatenate(accepted).astype(np.int8),
            first=first,
            longest=int((prompts + outputs).max()),
        )

    @classmethod
    def joined(cls, workloads: Sequence[Workload]) -> Workload:
        """Return the replicas of several workloads, one after the other.

        Simulated together, they take less time. All must have the same number of requests.
        """
        require_list("workloads", workloads)
        for i, workload in enumerate(workloads):
            require_kind(f"workloads[{i}]", workload, Workload, "make it with Workload.drawn(...)")
        sizes = {workload.prompt_tokens.shape[1] for workload in workloads}
        if len(sizes) != 1:
            raise ValueError(
                f"workloads must have the same number of requests a replica, got {sorted(sizes)};"
                " pass one or more with equally many"
            )
        if any(workload.by_position for workload in workloads):
            raise ValueError(
                "workloads must accept by round to be joined, got one of an acceptance table; "
                "pass `replicas` to AcceptanceTable.workload instead"
            )
        offsets = np.cumsum([0, *(len(workload.accepted) for workload in workloads)])
        firsts = [
            workload.first + offset for workload, offset in zip(workloads, offsets, strict=False)
        ]
        return cls(
            prompt_tokens=np.concatenate([workload.prompt_tokens for workload in workloads]),
            new_tokens=np.concatenate([workload.new_tokens for workload in workloads]),
            arrival_s=np.concatenate([workload.arrival_s for workload in workloads]),
            accepted=np.concatenate([workload.accepted for workload in workloads]),
            first=np.concatenate(firsts),
            longest=max(workload.longest for workload in workloads),
        )

    def arriving(self, arrivals: float | Sequence[float] | None, seed: int = 0) -> Workload:
        """Return the same requests at other times; `arrivals` as in `drawn`.

        At another rate the pattern stays the same.
        """
        shape = self.prompt_tokens.shape
        if arrivals is None:
            return replace(self, arrival_s=np.zeros(shape))
        if np.ndim(arrivals) == 0:
            require_positive("arrivals", arrivals)
            generator = np.random.default_rng([require_int("seed", seed, 0), 1])
            pauses = generator.standard_exponential(shape)
            return replace(self, arrival_s=np.cumsum(pauses, 1) / arrivals)
        times = floats(arrivals)
        usable = times.shape == shape[1:] and np.isfinite(times).all()
        if not usable or (times < 0).any() or (np.diff(times) < 0).any():
            raise ValueError(
                f"arrivals must be {shape[1]} times >= 0 s in order, got {short(arrivals)}; pass"
                " one for each request"
            )
        return replace(self, arrival_s=np.broadcast_to(times, shape).copy())

    @classmethod
    def replay(cls, run: Trace) -> Workload:
        """Return the requests of a recorded run, all at once.

        Each gains the tokens that it gained in its own rounds. The requests enter in the order in
        which the run let them enter.
        """
        require_kind("run", run, Trace, "pass result.trace of a run with record=True")
        working = run.rows["gained"] > 0
        request = run.rows["request"][working]
        gained = run.rows["gained"][working]
        by_request = np.argsort(request, kind="stable")
        requests = np.arange(run.num_requests)
        first = np.searchsorted(request[by_request], requests)
        prompts = np.diff(run.requests["prompt_offsets"])
        outputs = np.diff(run.requests["output_offsets"])
        order = requests
        if run.meta["strategy_options"].get("sort_prompts"):
            order = np.argsort(prompts, kind="stable")
        return cls(
            prompt_tokens=prompts[order][None].astype(np.int64),
            new_tokens=outputs[order][None].astype(np.int64),
            arrival_s=np.zeros((1, len(requests))),
            accepted=(gained[by_request] - 1).astype(np.int8),
            first=first[order][None].astype(np.int64),
            longest=int((prompts + run.requests["budget"]).max()),
        )


def _count(name: str, value: object) -> int:
    return require_int(name, value, maximum=MAX_REQUESTS)


def _check_acceptance(acceptance: object) -> None:
    require_kind("acceptance", acceptance, Acceptance, "make it with Acceptance.geometric(0.7)")


def _lengths(name: str, given: int | Sequence[int]) -> Array:
    """Return one or several lengths as an array. Raise ValueError unless all are ints >= 1."""
    values = np.atleast_1d(np.asarray(given))
    is_list = values.ndim == 1 and values.size > 0
    if not is_list or not np.issubdtype(values.dtype, np.integer) or values.min() < 1:
        raise ValueError(
            f"{name} must be an int >= 1, or several, got {short(given)}; pass lengths in tokens"
        )
    return values.astype(np.int64)
