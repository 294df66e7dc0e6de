"""What is asked of a simulated server: how long prompts and outputs are, when they arrive, and how many drafts are accepted.

Acceptance is a property of a request and its round, whoever shares its batch: the same workload under another policy has the same
acceptances, so differences between policies are no luck of the draw. Not known here: policies, costs, models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specviz.record.schema import Array
from specviz.record.trace import Trace
from specviz.util.validate import require_int, require_positive, short

_DRAWN = 2**20  # acceptances drawn beforehand, over which requests begin at places of their own


@dataclass(frozen=True)
class Acceptance:
    """How many of K drafts a round accepts: (C, K+1), for each of C equally frequent kinds of request the probability of 0..K.

    Within a request, rounds are independent.
    """

    probabilities: Array

    def __post_init__(self) -> None:
        table = np.atleast_2d(np.asarray(self.probabilities, np.float64))
        fits = (
            table.ndim == 2
            and table.size
            and np.isfinite(table).all()
            and (table >= 0).all()
            and np.allclose(table.sum(1), 1)
        )
        if not fits:
            raise ValueError(
                f"probabilities={short(self.probabilities)} are none of 0..K; pass numbers of at least 0 with the sum 1 a row"
            )
        object.__setattr__(self, "probabilities", table)

    @classmethod
    def rates(cls, rates: Sequence[float]) -> Acceptance:
        """From unconditional acceptances at positions 1..K, as `metrics.acceptance` has them: never rising, from 0 to 1."""
        steps = np.array([1.0, *rates, 0.0])
        if len(steps) < 3 or not (np.diff(steps) <= 0).all():
            raise ValueError(
                f"rates={short(rates)} are no acceptances by position; pass K numbers from 1 down to 0 that never rise"
            )
        return cls(-np.diff(steps))

    @classmethod
    def geometric(cls, alpha: float | Sequence[float], num_draft_tokens: int = 5) -> Acceptance:
        """Each draft is accepted with probability alpha if all before it were; several alphas: kinds of request, equally frequent."""
        alphas = np.atleast_1d(np.asarray(alpha, np.float64))
        if not alphas.size or not ((alphas >= 0) & (alphas <= 1)).all():
            raise ValueError(f"alpha={short(alpha)} is no probability; pass numbers from 0 to 1")
        positions = np.arange(require_int("num_draft_tokens", num_draft_tokens) + 1)
        reached = alphas[:, None] ** positions
        return cls(np.concatenate([reached[:, :-1] * (1 - alphas[:, None]), reached[:, -1:]], 1))

    @classmethod
    def measured(cls, runs: Sequence[Any], per_request: bool = True) -> Acceptance:
        """As often as in recorded runs of one K; per_request: every request of theirs is a kind of its own, otherwise all are one."""
        depth = fixed_depth(runs)
        if not depth:
            raise ValueError(
                "runs draft nothing, so that they say nothing of acceptance; pass runs of a strategy that drafts"
            )
        tables = []
        for run in runs:
            working = run.rows["gained"] > 0
            kinds = (
                run.rows["request"][working].astype(np.int64)
                if per_request
                else np.zeros(int(working.sum()), np.int64)
            )
            counts = np.zeros((int(kinds.max(initial=0)) + 1, depth + 1))
            np.add.at(counts, (kinds, run.rows["accepted"][working]), 1)
            tables.append(counts[counts.sum(1) > 0])
        counts = np.concatenate(tables) if per_request else sum(tables)
        return cls(counts / counts.sum(1, keepdims=True))

    @property
    def mean_acceptance_length(self) -> float:
        """1 + accepted drafts a round, the mean of the kinds'."""
        return float(1 + (self.probabilities @ np.arange(self.probabilities.shape[1])).mean())


@dataclass(frozen=True)
class Workload:
    """G replicas of N requests each, independent of one another; a replica has its own clock, queue and devices.

    Attributes:
        prompt_tokens, new_tokens: (G, N) int64, at least 1.
        arrival_s: (G, N) float64 seconds, in order.
        accepted: (S,) int8, drafts accepted in one round after the other; a request reads them from its place `first` (G, N) on.
        longest: the largest prompt + budget, which bounds the columns of a slab.
    """

    prompt_tokens: Array
    new_tokens: Array
    arrival_s: Array
    accepted: Array
    first: Array
    longest: int

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
        """`requests` in each of `replicas`, by lot.

        Args:
            prompt_tokens, new_tokens: one length for all, or several to draw from: range(20, 201), or the lengths of real prompts.
            arrivals: None: all at once; a number: a Poisson process of so many a second; a sequence: the times themselves, in seconds.
        """
        shape = require_int("replicas", replicas), require_int("requests", requests)
        random = np.random.default_rng(require_int("seed", seed, minimum=0))
        lengths = [
            among[random.integers(0, len(among), shape)]
            for among in (
                _lengths("prompt_tokens", prompt_tokens),
                _lengths("new_tokens", new_tokens),
            )
        ]
        return cls._made(lengths[0], lengths[1], acceptance, random).arriving(arrivals, seed)

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
        """Requests with these very lengths, in this order, in every replica; arrivals as in `drawn`."""
        prompts, outputs = (
            _lengths("prompt_tokens", prompt_tokens),
            _lengths("new_tokens", new_tokens),
        )
        if prompts.shape != outputs.shape:
            raise ValueError(
                f"new_tokens has {outputs.size} lengths for {prompts.size} prompts; pass one for each"
            )
        prompts, outputs = (
            np.tile(values, (require_int("replicas", replicas), 1)) for values in (prompts, outputs)
        )
        return cls._made(
            prompts,
            outputs,
            acceptance,
            np.random.default_rng(require_int("seed", seed, minimum=0)),
        ).arriving(arrivals, seed)

    @classmethod
    def _made(
        cls, prompts: Array, outputs: Array, acceptance: Acceptance, random: np.random.Generator
    ) -> Workload:
        table, rounds = acceptance.probabilities, int(outputs.max())
        size = max(_DRAWN // len(table), 4 * rounds)
        limits = np.cumsum(table, 1)[:, :-1]  # (C, K)
        accepted = np.concatenate(
            [np.searchsorted(limit, random.random(size), side="right") for limit in limits]
        ).astype(np.int8)
        kind = random.integers(0, len(table), prompts.shape)
        first = kind * size + random.integers(0, size - rounds, prompts.shape)
        return cls(
            prompts,
            outputs,
            np.zeros(prompts.shape),
            accepted,
            first,
            int((prompts + outputs).max()),
        )

    @classmethod
    def joined(cls, workloads: Sequence[Workload]) -> Workload:
        """The replicas of several workloads with equally many requests, one behind the other: simulated together, they take less time."""
        shapes = {workload.prompt_tokens.shape[1] for workload in workloads}
        if len(shapes) != 1:
            raise ValueError(
                f"workloads have {sorted(shapes)} requests a replica; pass one or more with equally many"
            )
        begins = np.cumsum([0, *(len(workload.accepted) for workload in workloads)])
        first = np.concatenate(
            [workload.first + begin for workload, begin in zip(workloads, begins, strict=False)]
        )
        names = ("prompt_tokens", "new_tokens", "arrival_s", "accepted")
        rest = {
            name: np.concatenate([getattr(workload, name) for workload in workloads])
            for name in names
        }
        return cls(**rest, first=first, longest=max(workload.longest for workload in workloads))

    def arriving(self, arrivals: float | Sequence[float] | None, seed: int = 0) -> Workload:
        """The same requests at other times, as `drawn` takes them; at another rate in the same pattern."""
        shape = self.prompt_tokens.shape
        if arrivals is None:
            return replace(self, arrival_s=np.zeros(shape))
        if np.ndim(arrivals) == 0:
            require_positive("arrivals", arrivals)
            pauses = np.random.default_rng(
                [require_int("seed", seed, minimum=0), 1]
            ).standard_exponential(shape)
            return replace(self, arrival_s=np.cumsum(pauses, 1) / arrivals)
        times = np.asarray(arrivals, np.float64)
        if (
            times.shape != shape[1:]
            or not np.isfinite(times).all()
            or (times < 0).any()
            or (np.diff(times) < 0).any()
        ):
            raise ValueError(
                f"arrivals={short(arrivals)} are no {shape[1]} times in order; pass one of at least 0 s for each request"
            )
        return replace(self, arrival_s=np.broadcast_to(times, shape).copy())

    @classmethod
    def replay(cls, run: Trace) -> Workload:
        """The requests of a recorded run, all at once, each with the very tokens that it gained in its own rounds.

        The trace's requests enter in the order in which the run let them enter.
        """
        rows = run.rows
        working = rows["gained"] > 0
        request, gained = rows["request"][working], rows["gained"][working]
        by_request = np.argsort(request, kind="stable")
        begins = np.searchsorted(request[by_request], np.arange(run.num_requests))
        prompts, outputs = (
            np.diff(run.requests[f"{name}_offsets"]) for name in ("prompt", "output")
        )
        order = np.arange(run.num_requests)
        if run.meta["strategy_options"].get("sort_prompts"):
            order = np.argsort(prompts, kind="stable")
        longest = int((prompts + run.requests["budget"]).max())
        shown = (values[order][None].astype(np.int64) for values in (prompts, outputs, begins))
        prompt_tokens, new_tokens, first = shown
        return cls(
            prompt_tokens,
            new_tokens,
            np.zeros_like(first, np.float64),
            (gained[by_request] - 1).astype(np.int8),
            first,
            longest,
        )


def _lengths(name: str, among: int | Sequence[int]) -> Array:
    values = np.atleast_1d(np.asarray(among))
    if (
        values.ndim != 1
        or not values.size
        or not np.issubdtype(values.dtype, np.integer)
        or values.min() < 1
    ):
        raise ValueError(
            f"{name}={short(among)} are no lengths; pass a whole number of at least 1, or several"
        )
    return values.astype(np.int64)


def fixed_depth(runs: Sequence[Any]) -> int:
    """K of recorded runs. Raises ValueError if there are none, or if K is not the same in all of their rounds."""
    depths = {int(run.meta["num_draft_tokens"]) for run in runs}
    for run in runs:
        depths |= set(np.unique(run.rows["drafted"][run.rows["gained"] > 0]).tolist())
    if len(depths) != 1:
        raise ValueError(
            f"runs have num_draft_tokens {sorted(depths)}; pass one or more runs, with one K in all of their rounds"
        )
    return depths.pop()
