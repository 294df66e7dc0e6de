"""Checks of 08_cost: a roofline's ridge point, the best K, rows that fit, how many devices."""

import math
import random
from collections.abc import Callable
from typing import Any

from specviz.costs.breakeven import best_num_draft_tokens
from specviz.exercises.base import ask, exercise, expect


@exercise
def turns(tokens: float, batch: float) -> str:
    """Where reading and arithmetic take equally long.

    The answer is the tokens of a forward, and the rows of a verification with K = 4.
    """
    expect(int(tokens), 200, "8e9 parameters, 4 TB/s and 800 TFLOP/s, as the tokens of a forward,")
    expect(int(batch), 40, "K = 4, so five tokens a row, as the rows,")
    return (
        "the device does 800e12 / 4e12 = 200 operations a byte, and each token needs one; "
        "with 5 tokens a row that is 40 rows"
    )


@exercise
def best_k(answer: Callable[..., Any]) -> str:
    """A function of draft_s, verify_s (K + 1,) and rates (K,) that returns the best K."""
    rng = random.Random(0)
    seen = set()
    for _ in range(200):
        most = rng.randint(1, 6)
        rates = sorted((round(rng.random(), 3) for _ in range(most)), reverse=True)
        draft_s = round(rng.uniform(0.1, 2), 3)
        verify_s = [round(5 + rng.uniform(0, 2) * k, 3) for k in range(most + 1)]

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
    return f"right for 200 tables of costs, whose best K is {min(seen)} to {max(seen)}"


@exercise
def rows_that_fit(answer: Callable[..., Any]) -> str:
    """A function that returns the largest B.

    Its arguments are memory, weights, layers, heads, kv_heads, head_dim, itemsize and T.
    """
    rng = random.Random(0)
    for _ in range(200):
        layers = rng.randint(1, 40)
        kv_heads = rng.choice((1, 2, 8))
        group = rng.choice((1, 4))
        head_dim = rng.choice((64, 128))
        itemsize = rng.choice((2, 4))
        slots = rng.randint(100, 4000)
        rows = rng.randint(0, 60)
        weights = rng.randint(10**9, 10**10)
        row_bytes = 2 * layers * kv_heads * head_dim * itemsize * slots
        memory = weights + rows * row_bytes + int(rng.random() * row_bytes * 0.999)
        found = ask(
            answer, memory, weights, layers, kv_heads * group, kv_heads, head_dim, itemsize, slots
        )
        case = (
            f"{memory} bytes, weights of {weights}, {layers} layers, {kv_heads * group} heads, "
            f"{kv_heads} K/V heads of {head_dim}"
        )
        expect(int(found), rows, f"{case}, {itemsize} bytes an element, T = {slots}")
    return "right for 200 models: keys and values of the K/V heads count, and only whole rows fit"


@exercise
def devices(answer: Callable[..., Any]) -> str:
    """A function of rate, latency_s and B that returns the least number of devices on average."""
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
    return "right on average; a P99 needs some more, because arrivals come in bursts"
