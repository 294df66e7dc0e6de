"""The paper's cost model fitted to measured rounds (arXiv 2510.22876, cost model).

S = alpha k / (c_draft + c_verify + c_sync(B)), with costs in units of an autoregressive step at
the same B. In the place of alpha k stands what a row gains in a round, bonus included.

Each cost grows with B as offset + scale * B**exponent, fitted by weighted least squares to the mean
times at each B. Without an offset, B - 1 (the rows that EQSPEC moves) would count as superlinear.
Intervals come from fitting resampled rounds again. They cover noise between rounds, not how well a
power law describes the device.

Not known here: anything but records.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy import stats

from specviz.costs.laws import interval
from specviz.record.schema import Array
from specviz.record.trace import RecordedRun, check_runs

COSTS = {
    "draft": ("draft",),
    "verify": ("verify",),
    "sync": ("synchronise",),
    "other": ("schedule", "accept"),
}
STEP = "autoregressive"
MIN_ROUNDS = 8  # rounds that a batch size needs to be counted
MIN_SIZES = 4  # batch sizes; one more than a law has parameters
EXPONENTS = np.arange(5, 401) / 100  # 1 is exactly 1, which the verdict compares with

Groups = Mapping[int, Array]  # by batch size: the times (n, C) of C costs in its n rounds


@dataclass(frozen=True)
class GrowthLaw:
    """A fitted law offset + scale * B**exponent, and the laws of resampled rounds.

    Attributes:
        offset, scale: in the unit of the times. Where nothing grows, scale is 0 and exponent NaN.
        exponent: the best value.
        low, high: its confidence interval; NaN where the resamples disagree whether anything grows.
        samples: (N, 3), offset, scale and exponent of each resample.
    """

    offset: float
    scale: float
    exponent: float
    low: float
    high: float
    samples: Array = field(repr=False)

    @property
    def verdict(self) -> str:
        """What the interval says about the exponent.

        "superlinear" or "sublinear" if the whole interval is; "linear" if it holds 1 and is
        narrower than 1; "no growth" without an interval; otherwise "undetermined".
        """
        if np.isnan(self.low):
            return "no growth"
        if self.low > 1:
            return "superlinear"
        if self.high < 1:
            return "sublinear"
        return "linear" if self.high - self.low < 1 else "undetermined"

    def at(self, batch_size: float) -> Array:
        """Return the fitted time at B (1 + N,), followed by that of each resample."""
        laws = np.vstack([[self.offset, self.scale, self.exponent], self.samples])
        offset, scale, exponent = laws.T
        found: Array = offset + scale * batch_size ** np.where(scale != 0, exponent, 0)
        return found


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
    """

    growth: Mapping[str, GrowthLaw]
    table: pd.DataFrame

    @property
    def exponents(self) -> pd.DataFrame:
        """One entry a cost.

        Columns: cost, offset_ms, scale_ms, exponent, exponent_low, exponent_high, verdict.
        """
        entries = [
            (name, law.offset, law.scale, law.exponent, law.low, law.high, law.verdict)
            for name, law in self.growth.items()
        ]
        columns = ["cost", "offset_ms", "scale_ms", "exponent", "exponent_low", "exponent_high"]
        return pd.DataFrame(entries, columns=[*columns, "verdict"])


def fit_costs(
    runs: Sequence[RecordedRun],
    baseline: Sequence[RecordedRun],
    *,
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
        confidence: of the intervals, a share.
        resamples, seed: of the bootstrap.

    Raises:
        ValueError: a run was not recorded, the runs differ in strategy or K, or fewer than
            MIN_SIZES batch sizes have MIN_ROUNDS rounds.
    """
    check_runs(runs, "runs")
    check_runs(baseline, "baseline")
    kinds = {(run.meta["strategy"], run.meta["num_draft_tokens"]) for run in runs}
    if len(kinds) != 1:
        raise ValueError(
            f"runs must share one strategy and one K, got (strategy, K) {sorted(kinds)}; pass"
            " results or traces of one kind at several batch sizes"
        )
    if any(run.meta["num_draft_tokens"] for run in baseline):
        raise ValueError(
            "baseline must hold autoregressive runs, got runs that draft; pass those of"
            " strategy='autoregressive'"
        )
    rounds = _by_size(runs, [*COSTS, "gained"])
    steps = _by_size(baseline, [STEP, "gained"])
    sizes = sorted(set(rounds) & set(steps))
    if len(sizes) < MIN_SIZES:
        raise ValueError(
            f"runs and baseline must have {MIN_ROUNDS} rounds or more at {MIN_SIZES} batch sizes,"
            f" got them at {sizes}; measure more batch sizes"
        )
    rounds = {size: rounds[size] for size in sizes}
    steps = {size: steps[size] for size in sizes}
    round_rng, step_rng = np.random.default_rng(seed).spawn(2)
    round_means = resampled_means(rounds, resamples, round_rng)  # (1 + N, G, C + 1)
    step_means = resampled_means(steps, resamples, step_rng)  # (1 + N, G, 2)
    growth = {
        name: fit_growth(rounds, round_means[..., i], confidence) for i, name in enumerate(COSTS)
    }
    growth[STEP] = fit_growth(steps, step_means[..., 0], confidence)

    # The last column of both means are the tokens gained.
    counts = np.array([len(times) for times in rounds.values()])
    gains = round_means[..., -1] / step_means[..., -1]  # (1 + N, G): tokens a token of a step
    lengths = gains @ counts / counts.sum()
    fitted = []
    for size in sizes:
        round_ms = sum(growth[name].at(size) for name in COSTS)
        fitted.append(lengths * growth[STEP].at(size) / round_ms)
    measured = gains * step_means[..., 0] / round_means[..., :-1].sum(-1)  # (1 + N, G)

    table = pd.DataFrame({"batch_size": sizes, "rounds": counts})
    table["tokens_per_row"] = round_means[0, :, -1] / np.array(sizes)
    for i, name in enumerate(COSTS):
        table[f"c_{name}"] = round_means[0, :, i] / step_means[0, :, 0]
    for name, values in (("speedup", measured), ("fitted", np.stack(fitted, 1))):
        table[name] = values[0]
        intervals = [interval(samples, confidence) for samples in values[1:].T]
        table[[f"{name}_low", f"{name}_high"]] = intervals
    return CostFit(growth, table)


def resampled_means(groups: Groups, resamples: int, generator: np.random.Generator) -> Array:
    """Return the means as measured, then those of N resamples of each group: (1 + N, G, C).

    All costs of a round are drawn together, so that their correlation is kept.
    """
    means = []
    for times in groups.values():
        drawn = stats.bootstrap(
            [times], np.mean, n_resamples=resamples, method="percentile", rng=generator
        ).bootstrap_distribution  # (C, N)
        means.append(np.vstack([times.mean(0), drawn.T]))
    return np.stack(means, 1)


def fit_growth(groups: Groups, means: Array, confidence: float = 0.95) -> GrowthLaw:
    """Fit a law to the measured means of a cost and to those of resamples, `means` (1 + N, G)."""
    sizes = np.array(list(groups), float)
    counts = np.array([len(times) for times in groups.values()])
    # The noise of a time is taken to be in proportion to it, with a lower bound for tiny times.
    variance = means[0] ** 2 + (0.02 * means[0].max()) ** 2 + 1e-300
    laws = _least_squares(sizes, means, counts / variance)
    samples = laws[1:]
    # If many resamples see no growth at all, an interval of the others would be too sure.
    low, high = float("nan"), float("nan")
    share_without_growth = np.isnan(samples[:, 2]).mean()
    if share_without_growth <= (1 - confidence) / 2:
        low, high = interval(samples[:, 2], confidence)
    offset, scale, exponent = (float(value) for value in laws[0])
    return GrowthLaw(offset, scale, exponent, low, high, samples)


def _least_squares(sizes: Array, means: Array, weights: Array) -> Array:
    """Return offset, scale and exponent (N, 3) that fit each row of means (N, G) best."""
    # Tries each exponent: offset and scale then follow from a linear regression. Thousands of
    # resamples share the regressors, so this is faster than a non-linear solver for each of them.
    share = weights / weights.sum()
    powers = sizes ** EXPONENTS[:, None]  # (P, G)
    power_mean = powers @ share
    time_mean = means @ share
    powers = powers - power_mean[:, None]
    times = means - time_mean[:, None]
    power_variance = powers**2 @ share  # (P,)
    slopes = (times * share) @ powers.T / power_variance  # (N, P)
    # A cost that falls with B is noise: such exponents explain nothing.
    explained = np.where(slopes > 0, slopes**2 * power_variance, -np.inf)
    best = explained.argmax(1)  # (N,)
    scale = slopes[np.arange(len(means)), best]
    laws = np.stack([time_mean - scale * power_mean[best], scale, EXPONENTS[best]], 1)
    grows = scale > 1e-12 * np.abs(means).max()
    laws[~grows, 0] = time_mean[~grows]
    laws[~grows, 1] = 0
    laws[~grows, 2] = np.nan
    return laws


def _by_size(runs: Sequence[RecordedRun], columns: Sequence[str]) -> dict[int, Array]:
    """Return these columns of all rounds (n, C), by the batch sizes that have enough rounds.

    Columns: ms of each cost and of all of it, and tokens gained.
    """
    tables = []
    for run in runs:
        table = pd.DataFrame({"rows": run.rounds["batch"].astype(np.int64)})
        for name, phases in COSTS.items():
            table[name] = sum(run.rounds[f"{phase}_ms"].astype(np.float64) for phase in phases)
        table[STEP] = table[list(COSTS)].sum(axis=1)
        table["gained"] = np.bincount(run.rows["round"], run.rows["gained"], minlength=len(table))
        tables.append(table)
    groups = pd.concat(tables, ignore_index=True).groupby("rows")
    return {
        int(str(size)): group[list(columns)].to_numpy()
        for size, group in groups
        if len(group) >= MIN_ROUNDS
    }
