"""When speculation pays: the acceptance at which it breaks even with autoregressive decoding, and the K that serves best.

Reckons with any cost table: a function from (rows, num_draft_tokens, slots) to the seconds of each phase of a round, such as
`Roofline.phase_seconds` or one of measured times. num_draft_tokens = 0 has to be a step of autoregressive decoding.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from specviz.costs.roofline import check_rates
from specviz.costs.shapes import Numbers
from specviz.util.validate import require_int

Costs = Callable[[Numbers, Numbers, Numbers], Mapping[str, Numbers]]


def round_seconds(costs: Costs, rows: float, num_draft_tokens: int, slots: float) -> float:
    """Seconds of one round, all phases. Raises ValueError if B, K or T cannot be, or the costs are not above 0."""
    for name, value, least in (
        ("rows", rows, 1),
        ("num_draft_tokens", num_draft_tokens, 0),
        ("slots", slots, 1),
    ):
        if isinstance(value, bool) or not least <= value < np.inf:
            raise ValueError(f"{name}={value!r} is too small; pass at least {least}")
    seconds = float(sum(costs(rows, num_draft_tokens, slots).values()))
    if not 0 < seconds < np.inf:
        raise ValueError(
            f"costs of rows={rows}, num_draft_tokens={num_draft_tokens} are {seconds} s; pass costs above 0"
        )
    return seconds


def break_even_length(costs: Costs, rows: float, num_draft_tokens: int, slots: float) -> float:
    """The mean acceptance length, bonus included, at which a round of K drafts gives a token as cheaply as an autoregressive step.

    A round costs so many autoregressive steps. Above K + 1 no acceptance suffices.
    """
    return round_seconds(costs, rows, num_draft_tokens, slots) / round_seconds(
        costs, rows, 0, slots
    )


def break_even_rate(length: float, num_draft_tokens: int) -> float:
    """The acceptance rate a of each draft, independent of the others, at which 1 + a + ... + a**K is `length`; NaN if there is none."""
    if not 1 <= length <= num_draft_tokens + 1:
        return 0.0 if length < 1 else float("nan")
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if sum(middle**j for j in range(num_draft_tokens + 1)) < length
            else (low, middle)
        )
    return high


def speculation(
    costs: Costs, rows: float, slots: float, max_draft_tokens: int = 8, rates: Any = None
) -> pd.DataFrame:
    """What each K costs and has to bring at B = rows, T = slots. One entry for each K from 0, which is autoregressive decoding.

    Args:
        rates: unconditional acceptance at positions 1..K; K then goes no further than they do.

    Columns: num_draft_tokens, round_ms, break_even_length, break_even_rate (see there); with rates also mean_acceptance_length,
    tokens_per_s (of all rows) and speedup over autoregressive decoding at the same B.

    Raises:
        ValueError: a size cannot be, or rates are no falling shares.
    """
    most = require_int("max_draft_tokens", max_draft_tokens)
    accepted = None if rates is None else np.concatenate([[0.0], np.cumsum(check_rates(rates))])
    most = most if accepted is None else min(most, len(accepted) - 1)
    seconds = np.array([round_seconds(costs, rows, k, slots) for k in range(most + 1)])
    table = pd.DataFrame(
        {
            "num_draft_tokens": range(most + 1),
            "round_ms": 1e3 * seconds,
            "break_even_length": seconds / seconds[0],
        }
    )
    table["break_even_rate"] = [
        break_even_rate(length, k) for k, length in enumerate(table["break_even_length"])
    ]
    if accepted is not None:
        length = 1 + accepted[: most + 1]
        table["mean_acceptance_length"], table["tokens_per_s"] = length, rows * length / seconds
        table["speedup"] = length / table["break_even_length"]
    return table


def best_num_draft_tokens(
    costs: Costs, rows: float, slots: float, rates: Any, max_draft_tokens: int = 8
) -> int:
    """The K of the most tokens a second at this acceptance; 0 where speculation does not pay. Arguments are those of `speculation`."""
    table = speculation(costs, rows, slots, max_draft_tokens, check_rates(rates))
    return int(table["num_draft_tokens"][table["tokens_per_s"].idxmax()])
