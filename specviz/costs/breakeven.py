"""When speculation pays: the acceptance at which it breaks even, and the best K.

Works with any cost table: a function from (rows, num_draft_tokens, slots) to the seconds of each
phase of a round, such as `Roofline.phase_seconds` or one of measured times. num_draft_tokens = 0
has to be a step of autoregressive decoding.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from specviz.costs.acceptance import check_rates
from specviz.costs.shapes import Numbers
from specviz.util.validate import (
    is_finite,
    is_real,
    require_function,
    require_int,
    require_mapping,
    short,
)

MAX_DRAFT_TOKENS = 4096
Costs = Callable[[Numbers, Numbers, Numbers], Mapping[str, Numbers]]


def round_seconds(costs: Costs, rows: float, num_draft_tokens: int, slots: float) -> float:
    """Return the seconds of one round, all phases.

    Raises:
        ValueError: B, K or T is too small, or the costs are not above 0.
    """
    require_function("costs", costs, "pass a function of (rows, num_draft_tokens, slots)")
    _check_size("rows", rows, 1)
    _check_size("num_draft_tokens", num_draft_tokens, 0)
    _check_size("slots", slots, 1)
    phases = costs(rows, num_draft_tokens, slots)
    require_mapping("what costs returns", phases, "correct the function")
    seconds = float(sum(phases.values()))
    if not 0 < seconds < np.inf:
        raise ValueError(
            f"costs must be > 0 s, got {seconds} s for rows={rows},"
            f" num_draft_tokens={num_draft_tokens}; pass costs above 0"
        )
    return seconds


def _check_size(name: str, value: object, minimum: int) -> None:
    """Raise ValueError unless `value` is a finite number >= `minimum`. Means are allowed."""
    if not is_finite(value) or value < minimum:
        raise ValueError(
            f"{name} must be a finite number >= {minimum}, got {short(value)}; pass at least"
            f" {minimum}"
        )


def break_even_length(costs: Costs, rows: float, num_draft_tokens: int, slots: float) -> float:
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
    require_int("num_draft_tokens", num_draft_tokens, minimum=0, maximum=MAX_DRAFT_TOKENS)
    if not is_real(length):
        raise ValueError(f"length must be a number, got {short(length)}; pass a mean length")
    if length <= 1:
        return 0.0
    if not length <= num_draft_tokens + 1:
        return float("nan")

    def excess(rate: float) -> float:
        return sum(rate**position for position in range(num_draft_tokens + 1)) - length

    return float(brentq(excess, 0.0, 1.0, xtol=1e-15))


def speculation(
    costs: Costs, rows: float, slots: float, max_draft_tokens: int = 8, rates: Any = None
) -> pd.DataFrame:
    """Return what each K costs and has to gain at B = rows, T = slots.

    There is one entry for each K from 0, which is autoregressive decoding.

    Args:
        costs: the cost table; see the module.
        rates: unconditional acceptance at positions 1..K; K then goes no further than they do.

    Columns: num_draft_tokens, round_ms, break_even_length, break_even_rate. With rates also
    mean_acceptance_length, tokens_per_s (of all rows) and speedup over autoregressive decoding at
    the same B.

    Raises:
        ValueError: a size is too small, or the rates are not shares that never rise.
    """
    max_draft_tokens = require_int("max_draft_tokens", max_draft_tokens, maximum=MAX_DRAFT_TOKENS)
    accepted = None
    if rates is not None:
        accepted = np.concatenate([[0.0], np.cumsum(check_rates(rates))])
        max_draft_tokens = min(max_draft_tokens, len(accepted) - 1)
    drafts = range(max_draft_tokens + 1)
    seconds = np.array([round_seconds(costs, rows, k, slots) for k in drafts])
    break_even = seconds / seconds[0]
    table = pd.DataFrame(
        {
            "num_draft_tokens": drafts,
            "round_ms": 1e3 * seconds,
            "break_even_length": break_even,
            "break_even_rate": [break_even_rate(break_even[k], k) for k in drafts],
        }
    )
    if accepted is not None:
        length = 1 + accepted[: max_draft_tokens + 1]
        table["mean_acceptance_length"] = length
        table["tokens_per_s"] = rows * length / seconds
        table["speedup"] = length / break_even
    return table


def best_num_draft_tokens(
    costs: Costs, rows: float, slots: float, rates: Any, max_draft_tokens: int = 8
) -> int:
    """Return the K with the most tokens a second at this acceptance; 0 if speculation never pays.

    The arguments are those of `speculation`.
    """
    table = speculation(costs, rows, slots, max_draft_tokens, check_rates(rates))
    return int(table["num_draft_tokens"][table["tokens_per_s"].idxmax()])
