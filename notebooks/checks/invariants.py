"""Checks of 03_invariants: the update rule, position ids, the reader's own checks, five faults."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

import specviz as sv
from checks.base import Answer, WrongAnswerError, ask, exercise, expect
from specviz.checks.violations import RULES, Violation
from specviz.record.schema import Array, Table

_PROMPTS = (2, 4, 6, 13)  # bundled ones; all are still active in the rounds of the questions
_SETTINGS: dict[str, Any] = {
    "num_draft_tokens": 4,
    "batch_size": 4,
    "max_new_tokens": 24,
    "record": True,
    "progress": False,
}
_MYSTERIES: dict[int, tuple[str, dict[str, Any]]] = {
    # The notebook solves number 0.
    0: ("eqspec", {"break_invariant": "bonus", "rows": [3], "from_round": 1}),
    1: ("inplace", {"break_invariant": "mask", "rows": [3], "from_round": 2}),
    2: ("masking", {"break_invariant": "bonus", "rows": [0], "from_round": 2}),
    3: ("eqspec", {"break_invariant": "positions", "rows": [2], "from_round": 3}),
    4: ("inplace", {"break_invariant": "kv", "rows": [1], "from_round": 4}),
    5: ("masking", {"positions": "column"}),
}
_PRACTICE: dict[str, tuple[str, dict[str, Any]]] = {
    "a valid run of eqspec": ("eqspec", {}),
    "a valid run of masking, which has holes": ("masking", {}),
    "a run of eqspec with drifting positions": (
        "eqspec",
        {"break_invariant": "positions", "rows": [0, 3], "from_round": 1},
    ),
    "a run of eqspec with a leaking mask": (
        "eqspec",
        {"break_invariant": "mask", "rows": [1], "from_round": 1},
    ),
    "a run of repadding with a mask of ones": ("repadding", {"draft_bonus": False}),
}
# The answer for p = [0, 4, 2], c = [8, 4, 6] and gains [1, 3, 5].
_LENGTH = 11
_OFFSETS = [2, 0, -2]


@exercise
def realigned(length: int, offsets: list[int]) -> str:
    """Check the new common length L' and the offsets d of three rows."""
    if length == 8 + 5:
        raise WrongAnswerError(
            "13 is L + the largest gain, but the row that gains most need not end up the longest"
        )
    expect(length, _LENGTH, "the new common length L'")
    expect([int(offset) for offset in offsets], _OFFSETS, "the offsets d")
    return (
        "the padding becomes [2, 4, 0]: row 0 moves two slots to the right, row 2 moves two slots "
        "to the left, and row 1 stays"
    )


@exercise
def position_ids(answer: Answer) -> str:
    """Check answer(mask): the position of each column, from a mask (columns,) of 0 and 1."""
    for mask in (
        [1, 1, 1, 1],
        [0, 0, 1, 1, 1],
        [0, 1, 1, 0, 0, 1],
        [1, 0, 1, 0, 0, 1, 1],
        [0, 0, 0, 1],
    ):
        found = np.asarray(ask(answer, np.array(mask)))
        seen = np.flatnonzero(mask)
        if found.shape != (len(mask),):
            raise WrongAnswerError(
                f"for the mask {mask} expected {len(mask)} positions, got shape {found.shape}"
            )
        expect(
            found[seen].tolist(),
            list(range(seen.size)),
            f"the columns {seen.tolist()} that count in the mask {mask}",
        )
        expect(
            bool((found >= 0).all()), True, f"whether no position of the mask {mask} is negative"
        )
    return "holes and padding are not counted, wherever they are"


@exercise
def positions_check(answer: Answer) -> str:
    """Check answer(feeds): the pairs (round, row) with a token whose position is not its index."""

    def wanted(trace: sv.Trace) -> Array:
        return trace.feeds["position"] != trace.feeds["index"]

    return _compare_with(wanted, lambda trace: ask(answer, trace.feeds))


@exercise
def mask_check(answer: Answer) -> str:
    """Check answer(feeds, holes): the pairs (round, row) with a query that saw wrong slots.

    It saw another number of slots than its index + 1, or its own slot was not the last one it saw.
    """

    def wanted(trace: sv.Trace) -> Array:
        feeds, holes = trace.feeds, trace.holes
        hidden = np.bincount(holes["feed"], holes["stop"] - holes["start"], feeds["slot"].size)
        seen = feeds["visible_stop"] - feeds["visible_start"] - hidden
        wrong: Array = (seen != feeds["index"] + 1) | (feeds["visible_stop"] != feeds["slot"] + 1)
        return wrong

    return _compare_with(wanted, lambda trace: ask(answer, trace.feeds, trace.holes))


@exercise
def found(n: int, rule: str, row: int, round: int) -> str:
    """Check which rule mystery n violates first, in which row of the batch and in which round."""
    if n not in _MYSTERIES:
        raise WrongAnswerError(
            f"there is no mystery {n!r}; choose one of {', '.join(map(str, _MYSTERIES))}"
        )
    if rule not in RULES:
        raise WrongAnswerError(f"there is no rule {rule!r}; choose one of {', '.join(RULES)}")
    firsts = _firsts(mystery(n))
    first = firsts[0]
    right = {
        "rule": rule == first.rule,
        "row": row in {each.row for each in firsts},
        "round": round == first.round,
    }
    if not all(right.values()):
        verdicts = [f"the {name} is {'right' if fits else 'wrong'}" for name, fits in right.items()]
        advice = _advice(first, round) if right["rule"] else ""
        raise WrongAnswerError(f"in mystery {n} {', '.join(verdicts)}{advice}")
    of_row = next(each for each in firsts if each.row == row)
    return f"{of_row}{_story(n, firsts)}"


def mystery(n: int) -> sv.Trace:
    """Return one of five recorded runs, each with one fault that its header does not name.

    Number 0 is an example.

    Raises:
        ValueError: there is no such mystery.
    """
    if n not in _MYSTERIES:
        raise ValueError(
            f"n must be one of {', '.join(map(str, _MYSTERIES))}, got {n!r}; pass one of these"
        )
    return _recorded(n)


@cache
def _recorded(name: int | str) -> sv.Trace:
    """Record a run that the exercises are about. A mystery's header does not name the fault."""
    strategy, options = _MYSTERIES[name] if isinstance(name, int) else _PRACTICE[name]
    prompts = sv.load_prompts()
    trace = sv.generate(
        _pair(),
        [prompts[i] for i in _PROMPTS],
        strategy=sv.strategy(strategy, **options),
        **_SETTINGS,
    ).trace
    assert trace is not None
    if isinstance(name, str):
        return trace
    return replace(trace, meta={**trace.meta, "strategy_options": {}, "valid": False})


@cache
def _pair() -> sv.Pair:
    return sv.load_pair(device="cpu")  # the same runs everywhere


def _compare_with(wanted: Callable[[sv.Trace], Array], answer: Callable[[sv.Trace], Any]) -> str:
    """Check that an answer names the (round, row) of the wrong feeds in every practice run."""
    counts = []
    for name in _PRACTICE:
        trace = _recorded(name)
        expected = _pairs(trace.feeds, wanted(trace))
        found = {(int(number), int(row)) for number, row in answer(trace)}
        for words, pairs in (("misses", expected - found), ("wrongly names", found - expected)):
            if pairs:
                raise WrongAnswerError(
                    f"for {name} it {words} (round, row) = {min(pairs)}, one of {len(pairs)} pairs"
                )
        counts.append(len(expected))
    return (
        f"right for {len(counts)} runs, with {min(counts)} to {max(counts)} pairs (round, row) each"
    )


def _pairs(feeds: Table, which: Array) -> set[tuple[int, int]]:
    return set(zip(feeds["round"][which].tolist(), feeds["row"][which].tolist(), strict=True))


def _firsts(trace: sv.Trace) -> list[Violation]:
    """Return the first violation, and those of the same rule in the same round and phase."""
    first, *others = sv.check_invariants(trace)
    when = (first.rule, first.round, first.phase)
    return [first, *(each for each in others if (each.rule, each.round, each.phase) == when)]


def _advice(first: Violation, round: object) -> str:
    if first.rule == "positions" and round == first.round - 1:
        return (
            "; a pending token already shows the position that it has when it is fed, "
            "which is one round later"
        )
    if first.rule == "kv" and round == first.round + 1:
        return "; by then a forward has read K/V that went wrong earlier"
    return ""


def _story(n: int, firsts: list[Violation]) -> str:
    strategy, options = _MYSTERIES[n]
    if "break_invariant" in options:
        return ""
    rows = ", ".join(map(str, sorted({each.row for each in firsts})))
    return (
        f". So are rows {rows}: nothing was injected here, this is {strategy} with positions "
        "counted in columns"
    )
