"""Laws of the mean acceptance length: log-linear or saturating, and how well they predict.

A length is new tokens over rounds, both summed over prompts. Intervals come from drawing prompts
again, the same ones for all points of a law. They cover the choice of prompts, not that of seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize, stats

from specviz.record.schema import Array

MIN_POINTS = {"log": 2, "saturating": 3}  # that a law goes through exactly
# Exponents of the saturating law. Towards 0 it becomes the log-linear one.
EXPONENTS = (1e-3, 10.0)


@dataclass(frozen=True)
class LogLaw:
    """y = a + b ln x."""

    a: float
    b: float

    def at(self, x: Any) -> Array:
        """Return the law at x, numbers above 0 or one."""
        found: Array = self.a + self.b * np.log(np.asarray(x, float))
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
        """Return the law at x, numbers above 0 or one."""
        found: Array = self.a - self.b * np.asarray(x, float) ** -self.c
        return found


def fit_log(x: Sequence[float] | Array, y: Sequence[float] | Array) -> LogLaw:
    """Return the log-linear law of least squares. Raise ValueError without two different x."""
    found = stats.linregress(np.log(_different(x, MIN_POINTS["log"])), np.asarray(y, float))
    return LogLaw(float(found.intercept), float(found.slope))


def fit_saturating(x: Sequence[float] | Array, y: Sequence[float] | Array) -> SaturatingLaw:
    """Return the saturating law of least squares. Raise ValueError without three different x.

    For a given c the law is linear in a and b, so that c alone is searched for. Where y curves
    upwards over ln x, c is the smallest of EXPONENTS.
    """
    along = _different(x, MIN_POINTS["saturating"])
    up = np.asarray(y, float)
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


def _different(x: Sequence[float] | Array, count: int) -> Array:
    """Return x as an array of at least so many different numbers."""
    along = np.asarray(x, float)
    found = len(np.unique(along))
    if found < count:
        raise ValueError(
            f"x must have at least {count} different values for this law, got {found}; pass more"
            " points"
        )
    return along


def r_squared(
    law: LogLaw | SaturatingLaw, x: Sequence[float] | Array, y: Sequence[float] | Array
) -> float:
    """Return the share of y's variance that the law explains; NaN where y does not vary."""
    up = np.asarray(y, float)
    missed = up - law.at(x)
    spread = up - up.mean()
    variance = float(spread @ spread)
    return 1 - float(missed @ missed) / variance if variance else float("nan")


def resampled_lengths(tokens: Array, rounds: Array, samples: int, seed: int = 0) -> Array:
    """Return the lengths (1 + N, G) of G drafts on all prompts, followed by those of each sample.

    Args:
        tokens, rounds: (G, P), new tokens and rounds of each draft and prompt.
        samples: N.
        seed: of the samples.
    """
    prompts = tokens.shape[1]
    drawn = np.random.default_rng(seed).integers(0, prompts, (samples, prompts))
    numbers = np.concatenate([np.arange(prompts)[None], drawn])
    found: Array = (tokens[:, numbers].sum(-1) / rounds[:, numbers].sum(-1)).T
    return found


def interval(samples: Array, confidence: float = 0.95) -> tuple[float, float]:
    """Return the middle `confidence` of the samples, without the NaN among them."""
    low, high = np.nanquantile(samples, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
