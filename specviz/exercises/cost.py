"""Checks of 08_cost: the corner of a roofline, the best K, what fits into memory, how many devices."""

import math
import random
from collections.abc import Callable
from typing import Any

from specviz.costs.breakeven import best_num_draft_tokens
from specviz.exercises.base import ask, exercise, expect


@exercise
def turns(tokens: float, batch: float) -> str:
    """Where reading and arithmetic take equally long: tokens in a forward, and rows of a verification with K = 4."""
    expect(int(tokens), 200, "8e9 parameters, 4 TB/s and 800 TFLOP/s the tokens of a forward")
    expect(int(batch), 40, "K = 4, so five tokens a row, the rows")
    return "800e12 / 4e12 operations a byte, one operation a byte for each token; in 5 tokens a row 40 rows"


@exercise
def best_k(answer: Callable[..., Any]) -> str:
    """A function of draft_s, verify_s (K + 1 entries) and rates (K) that returns the best number of drafts."""
    lots, seen = random.Random(0), set()
    for _ in range(200):
        most = lots.randint(1, 6)
        rates = sorted((round(lots.random(), 3) for _ in range(most)), reverse=True)
        draft_s, verify_s = (
            round(lots.uniform(0.1, 2), 3),
            [round(5 + lots.uniform(0, 2) * k, 3) for k in range(most + 1)],
        )

        def costs(
            _rows: Any,
            k: Any,
            _slots: Any,
            draft_s: float = draft_s,
            verify_s: list[float] = verify_s,
        ) -> dict[str, float]:
            return {"draft": draft_s * k, "verify": verify_s[k]}

        wanted = best_num_draft_tokens(costs, 1, 1, rates)
        found = ask(answer, draft_s, list(verify_s), list(rates))
        expect(int(found), wanted, f"draft_s = {draft_s}, verify_s = {verify_s}, rates = {rates}")
        seen.add(wanted)
    return f"200 tables of costs, the best K from {min(seen)} to {max(seen)}"


@exercise
def rows_that_fit(answer: Callable[..., Any]) -> str:
    """A function of memory, weights, layers, heads, kv_heads, head_dim, itemsize and T that returns the largest B."""
    lots = random.Random(0)
    for _ in range(200):
        layers, kv_heads, group, head_dim = (
            lots.randint(1, 40),
            lots.choice((1, 2, 8)),
            lots.choice((1, 4)),
            lots.choice((64, 128)),
        )
        itemsize, slots, rows = lots.choice((2, 4)), lots.randint(100, 4000), lots.randint(0, 60)
        weights, row = (
            lots.randint(10**9, 10**10),
            2 * layers * kv_heads * head_dim * itemsize * slots,
        )
        memory = weights + rows * row + int(lots.random() * row * 0.999)
        found = ask(
            answer, memory, weights, layers, kv_heads * group, kv_heads, head_dim, itemsize, slots
        )
        case = f"{memory} bytes, weights {weights}, {layers} layers, {kv_heads * group} heads, {kv_heads} K/V heads of {head_dim}"
        expect(int(found), rows, f"{case}, {itemsize} bytes a number, T = {slots}")
    return "200 models: keys and values, of the K/V heads, and no row that fits by half"


@exercise
def devices(answer: Callable[..., Any]) -> str:
    """A function of rate, latency_s and B that returns the least number of devices, on average."""
    for rate, latency_s, rows in (
        (40, 2, 8),
        (40, 2, 64),
        (1, 0.5, 8),
        (100, 1.5, 32),
        (33, 1, 32),
        (64, 1, 32),
        (7, 3, 1),
    ):
        expect(
            int(ask(answer, rate, latency_s, rows)),
            max(1, math.ceil(rate * latency_s / rows)),
            f"{rate}/s, {latency_s} s, B = {rows}",
        )
    return "on average; a P99 wants some more, since arrivals come in bunches"
