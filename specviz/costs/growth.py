"""How a cost grows with the batch size: a power law, and its interval by the bootstrap.

The law is offset + scale * B**exponent, fitted by weighted least squares to the mean times at each
B. Without an offset, B - 1 (the rows that EQSPEC moves) would count as superlinear. Intervals come
from fitting resampled rounds again. They cover noise between rounds, not how well a power law
describes the device.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from specviz.costs.laws import interval
from specviz.record.schema import Array

MIN_ROUNDS = 8  # rounds that a batch size needs to be counted
EXPONENTS = np.arange(5, 401) / 100  # 1 is exactly 1, which the verdict compares with

Groups = Mapping[float, Array]  # by batch size: the times (n, C) of C costs in its n rounds


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

    def at(self, batch_size: float) -> float:
        """Return the fitted time at B."""
        return float(self.at_all(batch_size)[0])

    def at_all(self, batch_size: float) -> Array:
        """Return the fitted time at B (1 + N,), followed by that of each resample."""
        laws = np.vstack([[self.offset, self.scale, self.exponent], self.samples])
        offset, scale, exponent = laws.T
        found: Array = offset + scale * batch_size ** np.where(scale != 0, exponent, 0)
        return found


def fit_growth(
    batch_sizes: Sequence[float] | Array,
    times: Sequence[float] | Array,
    *,
    offset: bool = True,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> GrowthLaw:
    """Fit a power law to times measured at several batch sizes.

    Args:
        batch_sizes, times: (N,) each, one entry a round; any unit of time.
        offset: whether a part that does not grow is fitted too.
        confidence: of the interval, a share.
        resamples: of the bootstrap.
        seed: of the resampling.

    Raises:
        ValueError: fewer than 4 batch sizes (3 without offset) have MIN_ROUNDS rounds.
    """
    groups = group_by_size(np.asarray(batch_sizes), np.asarray(times)[:, None], offset)
    means = resampled_means(groups, resamples, np.random.default_rng(seed))
    return fit_means(groups, means[..., 0], offset, confidence)


def group_by_size(sizes: Array, times: Array, offset: bool) -> Groups:
    """Return the times (n, C) at each batch size that has enough rounds.

    Raises:
        ValueError: see `fit_growth`.
    """
    groups = {float(size): times[sizes == size] for size in np.unique(sizes)}
    groups = {size: group for size, group in groups.items() if len(group) >= MIN_ROUNDS}
    least = 4 if offset else 3  # one more than the law has parameters
    if len(groups) < least:
        raise ValueError(
            f"batch_sizes must have {MIN_ROUNDS} rounds or more at {least} sizes, got them at"
            f" {[int(size) for size in groups]}; measure more batch sizes"
        )
    return groups


def resampled_means(groups: Groups, resamples: int, generator: np.random.Generator) -> Array:
    """Return the means as measured, then those of N resamples of each group: (1 + N, G, C).

    All costs of a round are drawn together, so that their correlation is kept.
    """
    means = []
    for times in groups.values():
        drawn = stats.bootstrap(
            [times],
            np.mean,
            n_resamples=resamples,
            method="percentile",
            rng=generator,
        ).bootstrap_distribution  # (C, N)
        means.append(np.vstack([times.mean(0), drawn.T]))
    return np.stack(means, 1)


def fit_means(groups: Groups, means: Array, offset: bool, confidence: float) -> GrowthLaw:
    """Fit a law to measured means and to those of resamples, `means` (1 + N, G)."""
    sizes = np.array(list(groups))
    counts = np.array([len(times) for times in groups.values()])
    # The noise of a time is taken to be in proportion to it, with a lower bound for tiny times.
    variance = means[0] ** 2 + (0.02 * means[0].max()) ** 2 + 1e-300
    laws = _least_squares(sizes, means, offset, counts / variance)
    samples = laws[1:]
    # If many resamples see no growth at all, an interval of the others would be too sure.
    low, high = float("nan"), float("nan")
    share_without_growth = np.isnan(samples[:, 2]).mean()
    if share_without_growth <= (1 - confidence) / 2:
        low, high = interval(samples[:, 2], confidence)
    offset_, scale, exponent = (float(value) for value in laws[0])
    return GrowthLaw(offset_, scale, exponent, low, high, samples)


def _least_squares(sizes: Array, means: Array, offset: bool, weights: Array) -> Array:
    """Return offset, scale and exponent (N, 3) that fit each row of means (N, G) best."""
    # Tries each exponent: offset and scale then follow from a linear regression. Thousands of
    # resamples share the regressors, so this is faster than a non-linear solver for each of them.
    share = weights / weights.sum()
    powers = sizes ** EXPONENTS[:, None]  # (P, G)
    power_mean = np.zeros(len(powers))
    time_mean = np.zeros(len(means))
    if offset:
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
