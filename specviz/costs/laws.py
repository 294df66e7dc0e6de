"""Laws of the mean acceptance length: log-linear or saturating, and how well they predict.

A length is new tokens over rounds, both summed over prompts. Intervals come from drawing prompts
again, the same ones for all points of a law. They cover the choice of prompts, not that of seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize

from specviz.record.schema import Array

MIN_POINTS = {"log": 2, "saturating": 3}  # that a law goes through exactly
# Exponents of the saturating law. Towards 0 it becomes the log-linear one.
EXPONENTS = (1e-3, 10.0)
Points = Sequence[float] | Array


@dataclass(frozen=True)
class LogLaw:
    """y = a + b ln x."""

    a: float
    b: float

    def at(self, x: Any) -> Any:
        """Return the law at x, numbers above 0 or one."""
        return self.a + self.b * np.log(x)

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

    def at(self, x: Any) -> Any:
        """Return the law at x, numbers above 0 or one."""
        return self.a - self.b * np.asarray(x, float) ** -self.c


def fit_log(x: Points, y: Points) -> LogLaw:
    """Return the log-linear law of least squares, of at least two different x."""
    b, a = np.polyfit(np.log(x), y, 1)
    return LogLaw(float(a), float(b))


def fit_saturating(x: Points, y: Points) -> SaturatingLaw:
    """Return the saturating law of least squares, of at least three different x.

    For a given c the law is linear in a and b, so that c alone is searched for. Where y curves
    upwards over ln x, c is the smallest of EXPONENTS.
    """
    middle = np.exp(np.log(x).mean())  # keeps powers near 1
    ratios = np.asarray(x, float) / middle

    def linear(log_c: float) -> tuple[Array, float]:
        powers = np.stack([np.ones_like(ratios), -(ratios ** -np.exp(log_c))], 1)
        found = np.linalg.lstsq(powers, y)[0]
        return found, float(((powers @ found - y) ** 2).sum())

    best = optimize.minimize_scalar(
        lambda log_c: linear(log_c)[1], bounds=np.log(EXPONENTS), method="bounded"
    )
    a, b = linear(best.x)[0]
    c = float(np.exp(best.x))
    return SaturatingLaw(float(a), float(b * middle**c), c)


def r_squared(law: LogLaw | SaturatingLaw, x: Points, y: Points) -> float:
    """Return the share of y's variance that the law explains; NaN where y does not vary."""
    variance = float(np.var(y))
    missed = float(((np.asarray(y) - law.at(x)) ** 2).mean())
    return 1 - missed / variance if variance else float("nan")


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
