"""Laws of the mean acceptance length: log-linear or saturating, and how well they predict.

A length is new tokens over rounds, both summed over prompts. Intervals come from drawing prompts
again, the same ones for all points of a law. They cover the choice of prompts, not that of seeds.

Not known here: models, and what x is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize, stats

from specviz.record.schema import Array
from specviz.util.validate import is_list, require_int, short

MIN_POINTS = {"log": 2, "saturating": 3}  # that a law goes through exactly
# Exponents of the saturating law. Towards 0 it becomes the log-linear one.
EXPONENTS = (1e-3, 10.0)


@dataclass(frozen=True)
class LogLaw:
    """y = a + b ln x."""

    a: float
    b: float

    def at(self, x: Any) -> Array:
        """Return the law at x, numbers above 0 or one. Raise ValueError for others."""
        found: Array = self.a + self.b * np.log(_places(x))
        return found

    @property
    def per_doubling(self) -> float:
        """What y gains when x doubles."""
        return self.b * float(np.log(2))


@dataclass(frozen=True)
class SaturatingLaw:
    """y = a - b x**-c, with b and c above 0; y stays below a."""

    a: float
    b: float
    c: float

    def at(self, x: Any) -> Array:
        """Return the law at x, numbers above 0 or one. Raise ValueError for others."""
        found: Array = self.a - self.b * _places(x) ** -self.c
        return found


def _places(x: Any) -> Array:
    """Return x as an array of floats. Raise ValueError unless it holds numbers above 0."""
    try:
        found = np.asarray(x, float)
    except (TypeError, ValueError, OverflowError):
        found = np.zeros(1)
    usable = found.ndim < 2 and found.size and (np.isfinite(found) & (found > 0)).all()
    if isinstance(x, bool) or not usable:
        raise ValueError(
            f"x must be a number above 0, or a list of such, got {short(x)}; pass sizes"
        )
    return found


def fit_log(x: Sequence[float] | Array, y: Sequence[float] | Array) -> LogLaw:
    """Return the log-linear law of least squares. Raise ValueError without two different x."""
    along, up = _checked(x, y, "log")
    found = stats.linregress(np.log(along), up)
    return LogLaw(float(found.intercept), float(found.slope))


def fit_saturating(x: Sequence[float] | Array, y: Sequence[float] | Array) -> SaturatingLaw:
    """Return the saturating law of least squares. Raise ValueError without three different x.

    For a given c the law is linear in a and b, so that c alone is searched for. Where y curves
    upwards over ln x, c is the smallest of EXPONENTS.
    """
    along, up = _checked(x, y, "saturating")
    middle = float(np.exp(np.log(along).mean()))  # keeps powers near 1
    ratios = along / middle

    def linear(log_c: float) -> tuple[float, float, float]:
        powers = ratios ** -np.exp(log_c)
        spread = powers - powers.mean()
        slope = spread @ up / (spread @ spread)
        missed = up - up.mean() - slope * spread
        return float(up.mean() - slope * powers.mean()), float(-slope), float(missed @ missed)

    def missed(log_c: float) -> float:
        return linear(log_c)[2]

    best = optimize.minimize_scalar(missed, bounds=np.log(EXPONENTS), method="bounded")
    a, b, _ = linear(best.x)
    c = float(np.exp(best.x))
    return SaturatingLaw(a, b * middle**c, c)


def r_squared(
    law: LogLaw | SaturatingLaw, x: Sequence[float] | Array, y: Sequence[float] | Array
) -> float:
    """Return the share of y's variance that the law explains; NaN where y does not vary."""
    up = np.asarray(y, float)
    missed = up - law.at(np.asarray(x, float))
    spread = up - up.mean()
    variance = float(spread @ spread)
    return 1 - float(missed @ missed) / variance if variance else float("nan")


def resampled_lengths(tokens: Array, rounds: Array, samples: int, seed: int = 0) -> Array:
    """Return the lengths (1 + N, G) of G drafts on all prompts, followed by those of each sample.

    Args:
        tokens, rounds: (G, P), new tokens and rounds of each draft and prompt.
        samples: N.
        seed: of the samples.

    Raises:
        ValueError: the arrays do not fit together, or a number is out of range.
    """
    require_int("samples", samples, 2, maximum=100_000)
    require_int("seed", seed, 0)
    sizes = [np.shape(each) for each in (tokens, rounds)]
    if sizes[0] != sizes[1] or len(sizes[0]) != 2 or 0 in sizes[0]:
        raise ValueError(
            f"tokens and rounds must be arrays (drafts, prompts) of one shape, got {sizes[0]} and "
            f"{sizes[1]}; pass one number for each draft and prompt"
        )
    prompts = sizes[0][1]
    drawn = np.random.default_rng(seed).integers(0, prompts, (samples, prompts))
    numbers = np.concatenate([np.arange(prompts)[None], drawn])
    found: Array = (tokens[:, numbers].sum(-1) / rounds[:, numbers].sum(-1)).T
    return found


def interval(samples: Array, confidence: float = 0.95) -> tuple[float, float]:
    """Return the middle `confidence` of the samples."""
    low, high = np.quantile(samples, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _checked(x: object, y: object, law: str) -> tuple[Array, Array]:
    """Return x and y as arrays. Raise ValueError."""
    along = _numbers(x)
    up = _numbers(y)
    if not len(along) or along.shape != up.shape or not (along > 0).all():
        raise ValueError(
            f"x and y must be equally many finite numbers, x above 0, got {short(x)} and "
            f"{short(y)}; pass one y for each x"
        )
    needed = MIN_POINTS[law]
    if len(np.unique(along)) < needed:
        raise ValueError(
            f"x must have at least {needed} different values for this law, got "
            f"{len(np.unique(along))}; pass more points"
        )
    return along, up


def _numbers(values: object) -> Array:
    """Return finite numbers (n,); none where `values` holds anything else."""
    if is_list(values) or isinstance(values, np.ndarray):
        try:
            found = np.asarray(values, float)
        except (TypeError, ValueError, OverflowError):
            return np.empty(0)
        if found.ndim == 1 and np.isfinite(found).all():
            return found
    return np.empty(0)
