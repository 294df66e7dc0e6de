"""How many drafts a round accepts: probabilities by kind of request.

Not known here: arrivals, policies, costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specviz.costs.rounds import common_num_draft_tokens
from specviz.record.runs import RecordedRun, check_runs
from specviz.record.schema import Array
from specviz.util.validate import short


@dataclass(frozen=True)
class Acceptance:
    """How many of K drafts a round accepts. The rounds of a request are independent.

    Attributes:
        probabilities: (C, K+1), the probability of accepting 0..K drafts for each of C equally
            frequent kinds of request.

    Raises:
        ValueError: a row of `probabilities` is not a distribution.
    """

    probabilities: Array

    def __post_init__(self) -> None:
        table = np.atleast_2d(np.asarray(self.probabilities, np.float64))
        if not (table >= 0).all() or not np.allclose(table.sum(1), 1):
            raise ValueError(
                "probabilities must be numbers >= 0 that sum to 1 in each row, got"
                f" {short(self.probabilities)}; pass the probabilities of 0..K accepted drafts"
            )
        object.__setattr__(self, "probabilities", table)

    @classmethod
    def rates(cls, rates: Sequence[float]) -> Acceptance:
        """Return the acceptance of unconditional rates at positions 1..K.

        These are the rates of `metrics.acceptance`: from 0 to 1, never rising.
        """
        return cls(-np.diff([1.0, *rates, 0.0]))

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
    def measured(cls, runs: Sequence[RecordedRun], per_request: bool = True) -> Acceptance:
        """Return the acceptance of recorded runs with one K.

        Args:
            runs: the runs.
            per_request: whether each of their requests is a kind; otherwise all are one kind.

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
        tables = [_accepted_counts(run, k, per_request) for run in runs]
        counts = np.concatenate(tables) if per_request else np.sum(tables, axis=0)
        return cls(counts / counts.sum(1, keepdims=True))

    @property
    def mean_acceptance_length(self) -> float:
        """1 + accepted drafts a round, averaged over the kinds."""
        drafts = np.arange(self.probabilities.shape[1])
        return float(1 + (self.probabilities @ drafts).mean())


def _accepted_counts(run: RecordedRun, k: int, per_request: bool) -> Array:
    """Return how often each request of a run accepted 0..K drafts (C, K+1)."""
    working = run.rows["gained"] > 0
    accepted = run.rows["accepted"][working]
    kinds = np.zeros(len(accepted), np.int64)
    if per_request:
        kinds = run.rows["request"][working].astype(np.int64)
    counts = np.zeros((int(kinds.max(initial=0)) + 1, k + 1))
    np.add.at(counts, (kinds, accepted), 1)
    decoded = counts.sum(1) > 0
    return counts[decoded]
