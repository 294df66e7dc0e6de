"""How many drafts a round accepts: probabilities by kind of request.

Not known here: arrivals, policies, costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specviz.record.runs import check_runs
from specviz.record.schema import Array
from specviz.util.validate import require_bool, require_int, short

MAX_DRAFT_TOKENS = 4096


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
        table = np.atleast_2d(floats(self.probabilities))
        usable = table.ndim == 2 and table.size > 0 and np.isfinite(table).all()
        if not usable or (table < 0).any() or not np.allclose(table.sum(1), 1):
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
        reached = np.concatenate([[1.0], np.atleast_1d(floats(rates)).ravel(), [0.0]])
        if np.ndim(rates) != 1 or len(reached) < 3 or not (np.diff(reached) <= 0).all():
            raise ValueError(
                f"rates must be numbers from 0 to 1 that never rise, got {short(rates)}; pass one"
                " for each position"
            )
        return cls(-np.diff(reached))

    @classmethod
    def geometric(cls, alpha: float | Sequence[float], num_draft_tokens: int = 5) -> Acceptance:
        """Return the acceptance where each draft is accepted with probability alpha.

        A draft is accepted only if all before it were. Several alphas are kinds of request,
        equally frequent.
        """
        alphas = np.atleast_1d(floats(alpha))
        if alphas.ndim != 1 or not alphas.size or not ((alphas >= 0) & (alphas <= 1)).all():
            raise ValueError(
                f"alpha must be a number from 0 to 1, or several, got {short(alpha)}; pass"
                " probabilities"
            )
        k = require_int("num_draft_tokens", num_draft_tokens, maximum=MAX_DRAFT_TOKENS)
        reached = alphas[:, None] ** np.arange(k + 1)  # (C, K+1)
        stopped = reached[:, :-1] * (1 - alphas[:, None])
        return cls(np.concatenate([stopped, reached[:, -1:]], 1))

    @classmethod
    def measured(cls, runs: Sequence[Any], per_request: bool = True) -> Acceptance:
        """Return the acceptance of recorded runs with one K.

        Args:
            runs: the runs.
            per_request: whether each of their requests is a kind; otherwise all are one kind.

        Raises:
            ValueError: the runs draft nothing, or have several K.
        """
        require_bool("per_request", per_request)
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


def floats(values: object) -> Array:
    """Return numbers as an array of float64, or one NaN if they are not numeric."""
    try:
        found = np.asarray(values)
    except (TypeError, ValueError):  # lists of different lengths
        return np.array([np.nan])
    if found.dtype.kind not in "iuf":
        return np.array([np.nan])
    return found.astype(np.float64)


def _accepted_counts(run: Any, k: int, per_request: bool) -> Array:
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


def common_num_draft_tokens(runs: Sequence[Any]) -> int:
    """Return K of recorded runs.

    Raises:
        ValueError: there are no runs, or K is not the same in all of their rounds.
    """
    check_runs(runs)
    found = {int(run.meta["num_draft_tokens"]) for run in runs}
    for run in runs:
        working = run.rows["gained"] > 0
        found |= set(np.unique(run.rows["drafted"][working]).tolist())
    if len(found) != 1:
        raise ValueError(
            f"runs must have one num_draft_tokens in all of their rounds, got {sorted(found)}; pass"
            " one or more runs of one K"
        )
    return found.pop()
