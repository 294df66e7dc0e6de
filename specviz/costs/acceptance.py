"""Acceptance by position, and how many rows fall out of step because of it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from specviz.costs.shapes import Numbers
from specviz.record.schema import Array
from specviz.util.validate import short


def check_rates(rates: Any, name: str = "rates") -> Array:
    """Return unconditional acceptance at positions 1..K as an array (K,).

    Raises:
        ValueError: a rate is not a number from 0 to 1, or is above the one before it.
    """
    try:
        found = np.asarray(rates, np.float64)
    except (TypeError, ValueError, OverflowError):
        found = np.empty(0)
    if found.ndim != 1 or not found.size or not ((found >= 0) & (found <= 1)).all():
        raise ValueError(
            f"{name} must be numbers from 0 to 1, got {short(rates)}; pass for instance"
            " [0.8, 0.6, 0.5]"
        )
    if (np.diff(found) > 0).any():
        raise ValueError(
            f"{name} must not rise, got {short(rates)}: a draft is accepted only with all before"
            " it; pass unconditional rates"
        )
    return found


def realigned_rows(rows: Numbers, rates: Array | Sequence[float]) -> Numbers:
    """Return how many rows EQSPEC moves in a round, on average.

    With L and L' the length of the longest row before and after the round, a row stays where it
    is if it gains L' - L tokens. This counts with the same row being the longest before and after,
    as it is where lengths lie further apart than K + 1; L' - L is then what that row gains.
    Otherwise more rows move: with rates 0.7, 0.5, 0.4, 0.25, 0.15, B = 8 and equal lengths, 13 %
    more in the first round.

    Args:
        rows: B.
        rates: unconditional acceptance at positions 1..K, which never rises. Rows accept
            independently of each other.
    """
    gains = -np.diff([1.0, *rates, 0.0])  # probability of 0..K accepted drafts
    same_gain = float((gains**2).sum())  # probability that two rows gain the same
    return np.maximum(rows - 1, 0) * (1 - same_gain)
