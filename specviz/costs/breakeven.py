"""When speculation pays: the acceptance at which it breaks even, and the best K.

Works with any costs: a function from (rows, num_draft_tokens, slots) to the seconds of each phase
of a round; see `RoundCosts`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from specviz.costs.rounds import RoundCosts
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


def round_seconds(costs: RoundCosts, rows: float, num_draft_tokens: int, slots: float) -> float:
    """Return the seconds of one round, all phases. Raise ValueError unless they are above 0."""
    seconds = float(sum(costs(rows, num_draft_tokens, slots).values()))
    if not 0 < seconds < np.inf:
        raise ValueError(
            f"costs must be > 0 s, got {seconds} s for rows={rows},"
            f" num_draft_tokens={num_draft_tokens}; pass costs above 0"
        )
    return seconds


def break_even_length(costs: RoundCosts, rows: float, num_draft_tokens: int, slots: float) -> float:
    """Return the mean acceptance length at which a round of K drafts breaks even.

    It includes the bonus, and equals the cost of a round in autoregressive steps. Above K + 1 no
    acceptance suffices.
    """
    step_s = round_seconds(costs, rows, 0, slots)
    return round_seconds(costs, rows, num_draft_tokens, slots) / step_s


def break_even_rate(length: float, num_draft_tokens: int) -> float:
    """Return the acceptance rate of each draft that gives a mean acceptance length.

    It is the a at which 1 + a + ... + a**K is `length`, with each draft accepted independently.
    It is 0 for a length of 1 or below, and NaN for one above K + 1.
    """
    if length <= 1:
        return 0.0
    if not length <= num_draft_tokens + 1:
        return float("nan")
    powers = np.arange(num_draft_tokens + 1)
    return float(brentq(lambda rate: (rate**powers).sum() - length, 0.0, 1.0, xtol=1e-15))


def speculation(
    costs: RoundCosts,
    rows: float,
    slots: float,
    max_draft_tokens: int = 8,
    rates: Sequence[float] | None = None,
) -> pd.DataFrame:
    """Return what each K costs and has to gain at B = rows, T = slots.

    There is one entry for each K from 0, which is autoregressive decoding.

    Args:
        costs: the costs; see the module.
        rates: unconditional acceptance at positions 1..K; K then goes no further than they do.

    Columns: num_draft_tokens, round_ms, break_even_length, break_even_rate. With rates also
    mean_acceptance_length, tokens_per_s (of all rows) and speedup over autoregressive decoding at
    the same B.
    """
    if rates is not None:
        max_draft_tokens = min(max_draft_tokens, len(rates))
    drafts = range(max_draft_tokens + 1)
    seconds = np.array([round_seconds(costs, rows, k, slots) for k in drafts])
    break_even = seconds / seconds[0]
    columns: dict[str, Any] = {
        "num_draft_tokens": drafts,
        "round_ms": 1e3 * seconds,
        "break_even_length": break_even,
        "break_even_rate": [break_even_rate(break_even[k], k) for k in drafts],
    }
    if rates is not None:
        length = np.cumsum([1.0, *rates])[: max_draft_tokens + 1]
        columns["mean_acceptance_length"] = length
        columns["tokens_per_s"] = rows * length / seconds
        columns["speedup"] = length / break_even
    return pd.DataFrame(columns)


def best_num_draft_tokens(
    costs: RoundCosts, rows: float, slots: float, rates: Sequence[float], max_draft_tokens: int = 8
) -> int:
    """Return the K with the most tokens a second at this acceptance; 0 if speculation never pays.

    The arguments are those of `speculation`.
    """
    table = speculation(costs, rows, slots, max_draft_tokens, rates)
    return int(table["num_draft_tokens"][table["tokens_per_s"].idxmax()])


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
