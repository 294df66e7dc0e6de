"""The paper's cost model fitted to measured rounds: S = alpha k / (c_draft + c_verify + c_sync(B)) (arXiv 2510.22876, cost model).

Every cost of a round is fitted as a power law of the batch size, offset + scale * B**exponent, by weighted least squares over the mean
times at each B; intervals come from fitting resampled rounds again (bootstrap). A power law without an offset would call B - 1, the rows
that EQSPEC moves, superlinear. The intervals speak of noise between rounds, not of how well a power law describes the device.

Costs are in units of an autoregressive step at the same B. In the place of alpha k stands what a row gains in a round, bonus included.
Knows records alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from specviz.metrics import Run, check_recorded
from specviz.record.schema import Array
from specviz.util.validate import require_int

LEAST_ROUNDS = 8  # rounds at a batch size, for it to be counted
EXPONENTS = np.arange(0.05, 4.005, 0.01)
COSTS = {
    "draft": ("draft",),
    "verify": ("verify",),
    "sync": ("synchronise",),
    "other": ("schedule", "accept"),
}
STEP = "autoregressive"


@dataclass(frozen=True)
class Growth:
    """offset + scale * B**exponent, and what the fits of resampled rounds gave.

    Attributes:
        offset, scale: in the unit of the times; scale is 0 and the exponent NaN where nothing grows.
        exponent, low, high: best value and confidence interval, NaN where the resamples disagree whether anything grows.
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
        """superlinear or sublinear, if the whole interval is; linear, if it holds 1 and is narrower than 1; no growth; or undetermined."""
        if np.isnan(self.low):
            return "no growth"
        if self.low > 1 or self.high < 1:
            return "superlinear" if self.low > 1 else "sublinear"
        return "linear" if self.high - self.low < 1 else "undetermined"

    def at(self, batch_size: float) -> float:
        """The fitted time at B."""
        return float(_law(np.array([self.offset, self.scale, self.exponent]), batch_size))


def fit_growth(
    batch_sizes: Sequence[float] | Array, times: Sequence[float] | Array, *, offset: bool = True, confidence: float = 0.95,
    resamples: int = 1000, seed: int = 0,
) -> Growth:  # fmt: skip
    """Fit a power law to times measured at several batch sizes.

    Args:
        batch_sizes, times: (N,) each, one entry a round; any unit of time.
        offset: whether a part that does not grow is fitted too.
        confidence: of the interval, as a share.

    Raises:
        ValueError: the arrays do not fit or hold no numbers, or fewer than 4 batch sizes (3 without offset) have LEAST_ROUNDS rounds.
    """
    _check_options(confidence, resamples)
    groups = _groups(batch_sizes, times, 4 if offset else 3)
    return _fit(
        groups,
        offset,
        confidence,
        _resampled_means(
            groups, require_int("resamples", resamples, 10), np.random.default_rng(seed)
        ),
    )


@dataclass(frozen=True)
class CostFit:
    """The model fitted to runs.

    Attributes:
        growth: how each cost grows with B: "draft", "verify", "sync", "other" (schedule and accept) and "autoregressive", a step; in ms.
        table: one entry a batch size: batch_size, rounds, tokens_per_row (that a row gained in a round, idle ones included), c_draft,
            c_verify, c_sync, c_other, speedup with speedup_low and speedup_high (as measured, with its interval), and fitted, fitted_low,
            fitted_high (by the power laws).
        lengths: first of the measurement, then of each resample: the tokens of a round for each token of an autoregressive step.
    """

    growth: Mapping[str, Growth]
    table: pd.DataFrame
    lengths: Array = field(repr=False)
    confidence: float

    def speedup(self, batch_size: int) -> tuple[float, float, float]:
        """The fitted speedup over autoregressive decoding at B, and its interval; an extrapolation beyond the measured batch sizes."""
        found = _speedups(self.growth, self.lengths, require_int("batch_size", batch_size))
        return float(found[0]), *_interval(found[1:], self.confidence)

    @property
    def exponents(self) -> pd.DataFrame:
        """One entry a cost: cost, offset_ms, scale_ms, exponent, exponent_low, exponent_high, verdict."""
        entries = [
            {"cost": name, "offset_ms": law.offset, "scale_ms": law.scale, "exponent": law.exponent}
            | {"exponent_low": law.low, "exponent_high": law.high, "verdict": law.verdict}
            for name, law in self.growth.items()
        ]
        return pd.DataFrame(entries)


def fit_costs(
    runs: Sequence[Run],
    baseline: Sequence[Run],
    *,
    offset: bool = True,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> CostFit:
    """Fit the cost model to speculative runs at several batch sizes, and to autoregressive ones at the same.

    Args:
        runs: results or traces of one strategy and one K. A round counts at the batch size that it had, so the last rounds of a run, with
            fewer rows, count as well; batch sizes that are rare, or missing in `baseline`, are left out.
        baseline: runs of autoregressive decoding, on the same work and device.

    Raises:
        ValueError: a run was not recorded, the runs are of different strategies or K, or too few batch sizes were measured.
    """
    _check_runs(runs, baseline)
    _check_options(confidence, resamples)
    ours, steps = (
        pd.concat([_rounds(run) for run in kind], ignore_index=True) for kind in (runs, baseline)
    )
    sizes = sorted(set(_frequent(ours["rows"])) & set(_frequent(steps["rows"])))
    ours, steps = ours[ours["rows"].isin(sizes)], steps[steps["rows"].isin(sizes)]
    columns = [*COSTS, "gained"]
    spread, plain = np.random.default_rng(seed).spawn(2)  # one draw for all columns of a round
    groups = _groups(ours["rows"], ours[columns], 4 if offset else 3)
    means = _resampled_means(
        groups, require_int("resamples", resamples, 10), spread
    )  # (1 + N, G, C)
    step_groups = _groups(steps["rows"], steps[[STEP, "gained"]], 4 if offset else 3)
    step_means = _resampled_means(step_groups, resamples, plain)  # (1 + N, G, 2)
    growth = {
        name: _fit(_column(groups, i), offset, confidence, means[..., i : i + 1])
        for i, name in enumerate(COSTS)
    }
    growth[STEP] = _fit(_column(step_groups, 0), offset, confidence, step_means[..., :1])
    counts = np.array([len(values) for values in groups.values()])
    gains = (
        means[..., -1] / step_means[..., -1]
    )  # (1 + N, G): tokens of a round for each token of an autoregressive step
    lengths = gains @ counts / counts.sum()
    table = pd.DataFrame(
        {"batch_size": sizes, "rounds": counts, "tokens_per_row": means[0, :, -1] / np.array(sizes)}
    )
    for i, name in enumerate(COSTS):
        table[f"c_{name}"] = means[0, :, i] / step_means[0, :, 0]
    measured = gains * step_means[..., 0] / means[..., : len(COSTS)].sum(-1)  # (1 + N, G)
    fitted = np.stack([_speedups(growth, lengths, size) for size in sizes], 1)
    for name, values in (("speedup", measured), ("fitted", fitted)):
        table[name] = values[0]
        table[f"{name}_low"], table[f"{name}_high"] = np.array(
            [_interval(column, confidence) for column in values[1:].T]
        ).T
    return CostFit(growth, table, lengths, confidence)


def _speedups(growth: Mapping[str, Growth], lengths: Array, batch_size: float) -> Array:
    """(1 + N,): the fitted speedup at B, and that of each resample."""
    laws = {
        name: np.vstack([[law.offset, law.scale, law.exponent], law.samples]).T
        for name, law in growth.items()
    }
    costs = {name: _law(law, batch_size) for name, law in laws.items()}
    found: Array = lengths * costs[STEP] / sum(costs[name] for name in COSTS)
    return found


def _rounds(run: Run) -> pd.DataFrame:
    """One entry a round: rows, ms of each cost, of the whole round (as a step), and tokens gained by all rows."""
    table = pd.DataFrame({"rows": run.rounds["batch"].astype(np.int64)})
    for name, phases in COSTS.items():
        table[name] = sum(run.rounds[f"{phase}_ms"].astype(np.float64) for phase in phases)
    table[STEP] = table[list(COSTS)].sum(axis=1)
    table["gained"] = np.bincount(run.rows["round"], run.rows["gained"], minlength=len(table))
    return table


def _frequent(rows: pd.Series) -> list[int]:
    counts = rows.value_counts()
    return [int(size) for size in counts.index[counts >= LEAST_ROUNDS]]


def _groups(batch_sizes: object, times: object, least: int) -> dict[float, Array]:
    """Times (n, C) at each batch size that has enough rounds, by batch size."""
    sizes, values = np.asarray(batch_sizes, np.float64), np.asarray(times, np.float64)
    values = values[:, None] if values.ndim == 1 else values
    if sizes.ndim != 1 or len(sizes) != len(values):
        raise ValueError(
            f"batch_sizes {sizes.shape} and times {values.shape} do not fit; pass one of each a round"
        )
    if not (
        np.isfinite(values).all()
        and (values >= 0).all()
        and np.isfinite(sizes).all()
        and (sizes >= 1).all()
    ):
        raise ValueError(
            "batch_sizes or times hold what is no number, or too small; pass sizes of at least 1 and times of at least 0"
        )
    found = {float(size): values[sizes == size] for size in np.unique(sizes)}
    found = {size: values for size, values in found.items() if len(values) >= LEAST_ROUNDS}
    if len(found) < least:
        raise ValueError(
            f"batch_sizes with {LEAST_ROUNDS} rounds or more are {[int(size) for size in found]}: too few for a power law; "
            f"measure at least {least} of them"
        )
    return found


def _column(groups: Mapping[float, Array], column: int) -> dict[float, Array]:
    return {size: values[:, column : column + 1] for size, values in groups.items()}


def _resampled_means(
    groups: Mapping[float, Array], resamples: int, generator: np.random.Generator
) -> Array:
    """(1 + N, G, C): the means as measured, then those of N resamples of the rounds of each batch size."""
    means = []
    for values in groups.values():
        drawn = generator.multinomial(
            len(values), np.full(len(values), 1 / len(values)), size=resamples
        ) / len(values)  # (N, n)
        means.append(np.vstack([values.mean(0), drawn @ values]))
    return np.stack(means, 1)


def _fit(groups: Mapping[float, Array], offset: bool, confidence: float, means: Array) -> Growth:
    """`means` (1 + N, G, 1) at the batch sizes of `groups`, whose noise is taken to be in proportion to them."""
    sizes, counts = np.array(list(groups)), np.array([len(values) for values in groups.values()])
    found = _least_squares(
        sizes,
        means[..., 0],
        offset,
        counts / (means[0, :, 0] ** 2 + (0.02 * means[0, :, 0].max()) ** 2 + 1e-300),
    )
    samples = found[1:]
    unknown = np.isnan(samples[:, 2]).mean()
    low, high = (
        (float("nan"), float("nan"))
        if unknown > (1 - confidence) / 2
        else _interval(samples[:, 2], confidence)
    )
    flat, scale, exponent = (float(value) for value in found[0])
    return Growth(flat, scale, exponent, low, high, samples)


def _least_squares(sizes: Array, means: Array, offset: bool, weights: Array) -> Array:
    """(N, 3): offset, scale and exponent that fit each row of means (N, G) best; for each exponent the other two follow."""
    powers = sizes[None] ** EXPONENTS[:, None]  # (P, G)
    share = weights / weights.sum()
    centre, middle = (
        (powers @ share, means @ share) if offset else (np.zeros(len(powers)), np.zeros(len(means)))
    )
    deviations, targets = powers - centre[:, None], means - middle[:, None]
    slope = (targets * share) @ deviations.T / (deviations**2 @ share)  # (N, P)
    explained = slope**2 * (deviations**2 @ share)  # of the weighted sum of squares
    best = np.where(slope > 0, explained, -np.inf).argmax(1)
    each = np.arange(len(means))
    scale = slope[each, best]
    fitted = np.stack([middle - scale * centre[best], scale, EXPONENTS[best]], 1)
    flat = np.stack([middle, np.zeros(len(means)), np.full(len(means), np.nan)], 1)
    return np.where((scale > 1e-12 * np.abs(means).max())[:, None], fitted, flat)


def _law(parameters: Array, batch_size: float) -> Array:
    """offset + scale * B**exponent, for parameters (3,) or (3, N); the offset where nothing grows."""
    offset, scale, exponent = parameters
    grown: Array = offset + scale * batch_size ** np.where(scale == 0, 0, exponent)
    return grown


def _interval(samples: Array, confidence: float) -> tuple[float, float]:
    low, high = np.nanquantile(samples, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _check_options(confidence: float, resamples: int) -> None:
    require_int("resamples", resamples, 10)
    if not 0 < confidence < 1:
        raise ValueError(
            f"confidence={confidence!r} is no share; pass a number between 0 and 1, for instance 0.95"
        )


def _check_runs(runs: Sequence[Run], baseline: Sequence[Run]) -> None:
    for name, kind in (("runs", runs), ("baseline", baseline)):
        if not kind:
            raise ValueError(f"{name} is empty; pass results or traces at several batch sizes")
        for i, run in enumerate(kind):
            check_recorded(run, f"{name}[{i}]")
    described = {(run.meta["strategy"], run.meta["num_draft_tokens"]) for run in runs}
    if len(described) > 1:
        raise ValueError(
            f"runs are of {sorted(described)}: (strategy, K) have to be the same in all of them"
        )
    drafting = {run.meta["strategy"] for run in baseline if run.meta["num_draft_tokens"] > 0}
    if drafting:
        raise ValueError(
            f"baseline holds runs of {', '.join(sorted(drafting))}; pass runs of autoregressive decoding"
        )
