"""Checks of 17_implementation: which rows stay, how many slots move, rows that fit."""

import random
from collections.abc import Iterable

from checks.base import Answer, ask, exercise, expect

_LENGTHS = (12, 11, 9, 7)
_GAINS = (1, 4, 3, 3)


def _step(lengths: Iterable[int], gains: Iterable[int]) -> int:
    """Return by how much the longest length grows in a round."""
    before = list(lengths)
    after = [n + gain for n, gain in zip(before, gains, strict=True)]
    return max(after) - max(before)


@exercise
def stays(answer: Iterable[int]) -> str:
    """Check the rows whose K/V stays in its slots, of four rows with given lengths and gains."""
    step = _step(_LENGTHS, _GAINS)
    wanted = sorted(row for row, gain in enumerate(_GAINS) if gain == step)
    found = sorted(int(row) for row in answer)
    expect(found, wanted, f"lengths {_LENGTHS} and gains {_GAINS}, as the rows that stay,")
    return (
        "the longest length grows from 12 to 15, so rows that gain 3 stay; row 0 was the longest "
        "before and row 1 is the longest after, and both move"
    )


@exercise
def moved_slots(answer: Answer) -> str:
    """Check a function of lengths (B,) before a round and gains (B,): slots that EQSPEC moves."""
    rng = random.Random(0)
    overtaken = 0
    for _ in range(200):
        count = rng.randint(1, 6)
        lengths = [rng.randint(5, 20) for _ in range(count)]
        gains = [rng.randint(1, 6) for _ in range(count)]
        step = _step(lengths, gains)
        wanted = 0
        for n, gain in zip(lengths, gains, strict=True):
            if gain != step:
                wanted += n + gain - 1
        found = ask(answer, list(lengths), list(gains))
        expect(int(found), wanted, f"lengths {lengths} and gains {gains}")
        overtaken += gains[lengths.index(max(lengths))] != step
    return f"right for 200 rounds; in {overtaken} of them another row became the longest"


@exercise
def rows_that_fit(answer: Answer) -> str:
    """Check a function that returns the largest B.

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
