"""Laws fitted to the ladder: length over training tokens, and over parameters. Runs no model."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from specviz.costs.laws import (
    MIN_POINTS,
    LogLaw,
    SaturatingLaw,
    fit_log,
    fit_saturating,
    interval,
    r_squared,
    resampled_lengths,
)
from specviz.record.schema import Array
from specviz.zoo.ladder.rungs import LARGE_K, SMALL_K

# What a law is over, and what is the same in all its points.
AXES = {
    "tokens": ("tokens", "size"),
    "parameters": ("parameters", "mark"),
    "layer_parameters": ("layer_parameters", "mark"),
}


def fit_table(drafts: pd.DataFrame, prompts: pd.DataFrame, samples: int, seed: int) -> pd.DataFrame:
    """Return one entry for each law: over tokens at each size, over parameters at each mark.

    Columns: over ("tokens", "parameters" or "layer_parameters"); at (the size or mark);
    num_draft_tokens; points; a and per_doubling of length = a + b ln x, per_doubling with its
    interval over prompts; log_r2; saturating_a and saturating_c of length = a - b x**-c, and
    saturating_r2. Then what the laws say of the last point, fitted to those before it: held_x,
    held_length; log_error and saturating_error (predicted less measured) with their intervals over
    prompts. NaN stands where there are too few points: a law is judged with more than it needs.
    """
    return pd.DataFrame(_fits(drafts, prompts, samples, seed))


def _fits(
    drafts: pd.DataFrame, prompts: pd.DataFrame, samples: int, seed: int
) -> Iterator[dict[str, Any]]:
    for over, (column, same) in AXES.items():
        for at, points in drafts.groupby(same, sort=False):
            points = points.sort_values(column)
            if points[column].nunique() < MIN_POINTS["log"]:
                continue
            for k in (SMALL_K, LARGE_K):
                entry: dict[str, Any] = {"over": over, "at": at, "num_draft_tokens": k}
                lengths = resampled(points, prompts, k, samples, seed)
                yield entry | fit_points(points[column].to_numpy(float), lengths)


def resampled(
    points: pd.DataFrame, prompts: pd.DataFrame, k: int, samples: int, seed: int
) -> Array:
    """Return lengths (1 + N, G) of G drafts, measured and in each sample of the prompts.

    Args:
        points: of a `draft_table`, their entries.
        prompts: a `prompt_table`.
        k: drafts a round, SMALL_K or LARGE_K.
        samples, seed: as in `resampled_lengths`.
    """
    tokens = []
    rounds = []
    for size, mark in zip(points["size"], points["mark"], strict=True):
        of_draft = prompts[(prompts["size"] == size) & (prompts["mark"] == mark)]
        tokens.append(of_draft["new_tokens"].to_numpy())
        rounds.append(of_draft[f"rounds_k{k}"].to_numpy())
    return resampled_lengths(np.stack(tokens), np.stack(rounds), samples, seed)


def fit_points(x: Array, lengths: Array) -> dict[str, float]:
    """Return the columns of `fit_table` that say how well laws fit.

    Args:
        x: (G,), in rising order.
        lengths: (1 + N, G), measured and resampled.
    """
    measured = lengths[0]
    found: dict[str, float] = {"points": len(x)}
    line = fit_log(x, measured)
    low, high = interval(np.polyfit(np.log2(x), lengths[1:].T, 1)[0])
    found |= {"a": line.a, "per_doubling": line.per_doubling}
    found |= {"per_doubling_low": low, "per_doubling_high": high}
    found["log_r2"] = _judged(line, x, measured, "log")
    nan = float("nan")
    found |= {"saturating_a": nan, "saturating_c": nan, "saturating_r2": nan}
    if len(np.unique(x)) >= MIN_POINTS["saturating"]:
        curve = fit_saturating(x, measured)
        found |= {"saturating_a": curve.a, "saturating_c": curve.c}
        found["saturating_r2"] = _judged(curve, x, measured, "saturating")
    found |= {"held_x": float(x[-1]), "held_length": float(measured[-1])}
    for name in MIN_POINTS:
        found |= _held_out(name, x, lengths)
    return found


def _judged(law: LogLaw | SaturatingLaw, x: Array, y: Array, name: str) -> float:
    """Return R², or NaN where the law goes through all points."""
    return r_squared(law, x, y) if len(np.unique(x)) > MIN_POINTS[name] else float("nan")


def _held_out(name: str, x: Array, lengths: Array) -> dict[str, float]:
    """Return how far the law, fitted without the last point, is above it."""
    columns = [f"{name}_error", f"{name}_error_low", f"{name}_error_high"]
    if len(np.unique(x[:-1])) < MIN_POINTS[name]:
        return dict.fromkeys(columns, float("nan"))
    if name == "log":
        slope, offset = np.polyfit(np.log(x[:-1]), lengths[:, :-1].T, 1)
        predicted = offset + slope * np.log(x[-1])
    else:
        laws = [fit_saturating(x[:-1], each[:-1]) for each in lengths]
        predicted = np.array([float(law.at(x[-1])) for law in laws])
    errors = predicted - lengths[:, -1]
    return dict(zip(columns, (float(errors[0]), *interval(errors[1:])), strict=True))
