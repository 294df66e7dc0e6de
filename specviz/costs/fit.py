"""The paper's cost model fitted to measured rounds (arXiv 2510.22876, cost model).

S = alpha k / (c_draft + c_verify + c_sync(B)), with costs in units of an autoregressive step at
the same B. In the place of alpha k stands what a row gains in a round, bonus included. How each
cost grows with B is a power law; see `growth`.

Not known here: anything but records.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from specviz.costs.growth import (
    MIN_ROUNDS,
    GrowthLaw,
    fit_means,
    group_by_size,
    resampled_means,
)
from specviz.costs.laws import interval
from specviz.record.runs import RecordedRun, check_runs
from specviz.record.schema import PHASES, Array

COSTS = {
    "draft": ("draft",),
    "verify": ("verify",),
    "sync": ("synchronise",),
    "other": ("schedule", "accept"),
}
STEP = "autoregressive"


@dataclass(frozen=True)
class CostFit:
    """The cost model fitted to runs.

    Attributes:
        growth: how each cost grows with B, in ms: "draft", "verify", "sync", "other" (schedule and
            accept) and "autoregressive" (a step).
        table: one entry a batch size: batch_size, rounds, tokens_per_row (that a row gained in a
            round, idle ones included), c_draft, c_verify, c_sync, c_other, speedup with speedup_low
            and speedup_high (as measured, with its interval), and fitted, fitted_low, fitted_high
            (by the power laws).
        lengths: (1 + N,), tokens of a round for each token of an autoregressive step, as measured
            and then in each resample.
        confidence: of the intervals, a share.
    """

    growth: Mapping[str, GrowthLaw]
    table: pd.DataFrame
    lengths: Array = field(repr=False)
    confidence: float

    def speedup(self, batch_size: int) -> tuple[float, float, float]:
        """Return the fitted speedup over autoregressive decoding at B, and its interval.

        Beyond the measured batch sizes it is an extrapolation.
        """
        found = _fitted_speedups(self.growth, self.lengths, batch_size)
        low, high = interval(found[1:], self.confidence)
        return float(found[0]), low, high

    def __call__(
        self, rows: float, num_draft_tokens: int, slots: float, **work: float
    ) -> dict[str, float]:
        """Return the fitted seconds of each phase of a round, or of a step at K = 0.

        It is a `RoundCosts` for the K of the runs, whose lengths and moves it contains.
        """
        ms = {name: law.at(rows) for name, law in self.growth.items()}
        found = {"verify": ms[STEP]}
        if num_draft_tokens:
            found = {"draft": ms["draft"], "verify": ms["verify"], "accept": ms["other"]}
            found["synchronise"] = ms["sync"]
        return {phase: found.get(phase, 0.0) / 1000 for phase in PHASES}

    @property
    def exponents(self) -> pd.DataFrame:
        """One entry a cost.

        Columns: cost, offset_ms, scale_ms, exponent, exponent_low, exponent_high, verdict.
        """
        entries = []
        for name, law in self.growth.items():
            entries.append(
                {
                    "cost": name,
                    "offset_ms": law.offset,
                    "scale_ms": law.scale,
                    "exponent": law.exponent,
                    "exponent_low": law.low,
                    "exponent_high": law.high,
                    "verdict": law.verdict,
                }
            )
        return pd.DataFrame(entries)


def fit_costs(
    runs: Sequence[RecordedRun],
    baseline: Sequence[RecordedRun],
    *,
    offset: bool = True,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> CostFit:
    """Fit the cost model to speculative and autoregressive runs at the same batch sizes.

    Args:
        runs: results or traces of one strategy and one K. A round counts at the batch size that it
            had, so the last rounds of a run, with fewer rows, count as well. Batch sizes that are
            rare, or missing in `baseline`, are left out.
        baseline: runs of autoregressive decoding, on the same work and device.
        offset, confidence, resamples, seed: see `fit_growth`.

    Raises:
        ValueError: a run was not recorded, the runs differ in strategy or K, or too few batch sizes
            were measured.
    """
    _check_runs(runs, baseline)
    rounds = pd.concat([_rounds(run) for run in runs], ignore_index=True)
    steps = pd.concat([_rounds(run) for run in baseline], ignore_index=True)
    sizes = sorted(_frequent_sizes(rounds) & _frequent_sizes(steps))
    rounds = rounds[rounds["rows"].isin(sizes)]
    steps = steps[steps["rows"].isin(sizes)]

    # The last column of both means are the tokens gained; N resamples, G batch sizes.
    round_rng, step_rng = np.random.default_rng(seed).spawn(2)
    round_groups = group_by_size(
        rounds["rows"].to_numpy(), rounds[[*COSTS, "gained"]].to_numpy(), offset
    )
    round_means = resampled_means(round_groups, resamples, round_rng)  # (1 + N, G, C + 1)
    step_groups = group_by_size(
        steps["rows"].to_numpy(), steps[[STEP, "gained"]].to_numpy(), offset
    )
    step_means = resampled_means(step_groups, resamples, step_rng)  # (1 + N, G, 2)

    growth = {}
    for i, name in enumerate(COSTS):
        growth[name] = fit_means(round_groups, round_means[..., i], offset, confidence)
    growth[STEP] = fit_means(step_groups, step_means[..., 0], offset, confidence)

    counts = np.array([len(times) for times in round_groups.values()])
    gains = round_means[..., -1] / step_means[..., -1]  # (1 + N, G): tokens a token of a step
    lengths = gains @ counts / counts.sum()
    round_ms = round_means[..., :-1].sum(-1)
    measured = gains * step_means[..., 0] / round_ms  # (1 + N, G)
    fitted = np.stack([_fitted_speedups(growth, lengths, size) for size in sizes], 1)

    table = pd.DataFrame({"batch_size": sizes, "rounds": counts})
    table["tokens_per_row"] = round_means[0, :, -1] / np.array(sizes)
    for i, name in enumerate(COSTS):
        table[f"c_{name}"] = round_means[0, :, i] / step_means[0, :, 0]
    _add_with_interval(table, "speedup", measured, confidence)
    _add_with_interval(table, "fitted", fitted, confidence)
    return CostFit(growth, table, lengths, confidence)


def _add_with_interval(table: pd.DataFrame, name: str, values: Array, confidence: float) -> None:
    """Add the columns name, name_low and name_high for `values` (1 + N, G)."""
    intervals = [interval(samples, confidence) for samples in values[1:].T]
    table[name] = values[0]
    table[f"{name}_low"] = [low for low, _ in intervals]
    table[f"{name}_high"] = [high for _, high in intervals]


def _fitted_speedups(growth: Mapping[str, GrowthLaw], lengths: Array, batch_size: float) -> Array:
    """Return the fitted speedup at B (1 + N,), followed by that of each resample."""
    round_ms = sum(growth[name].at_all(batch_size) for name in COSTS)
    found: Array = lengths * growth[STEP].at_all(batch_size) / round_ms
    return found


def _rounds(run: RecordedRun) -> pd.DataFrame:
    """Return one entry a round: rows, ms of each cost, ms of all of it, tokens gained."""
    table = pd.DataFrame({"rows": run.rounds["batch"].astype(np.int64)})
    for name, phases in COSTS.items():
        table[name] = sum(run.rounds[f"{phase}_ms"].astype(np.float64) for phase in phases)
    table[STEP] = table[list(COSTS)].sum(axis=1)
    table["gained"] = np.bincount(run.rows["round"], run.rows["gained"], minlength=len(table))
    return table


def _frequent_sizes(rounds: pd.DataFrame) -> set[int]:
    counts = rounds["rows"].value_counts()
    return {int(size) for size in counts.index[counts >= MIN_ROUNDS]}


def _check_runs(runs: Sequence[RecordedRun], baseline: Sequence[RecordedRun]) -> None:
    for name, given in (("runs", runs), ("baseline", baseline)):
        check_runs(given, name)
        if not given:
            raise ValueError(
                f"{name} must hold at least one run, got none; pass results or traces at several"
                " batch sizes"
            )
    kinds = {(run.meta["strategy"], run.meta["num_draft_tokens"]) for run in runs}
    if len(kinds) > 1:
        raise ValueError(
            f"runs must share one strategy and one K, got (strategy, K) {sorted(kinds)}; pass those"
            " of one kind"
        )
    drafting = {run.meta["strategy"] for run in baseline if run.meta["num_draft_tokens"] > 0}
    if drafting:
        raise ValueError(
            f"baseline must hold autoregressive runs, got {', '.join(sorted(drafting))}; pass runs"
            " of autoregressive decoding"
        )
