"""Exercises of 03_invariants: the update rule, position ids from a mask, checks of one's own, and the hunt for five faults."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

import specviz as sv
from specviz.checks.violations import RULES, Violation
from specviz.exercises.base import WrongAnswerError, ask, exercise, expect
from specviz.record.schema import Array, Table

_PROMPTS = (
    2,
    4,
    6,
    13,
)  # of the bundled ones; all are at work in the rounds that the questions are about
_SETTINGS: dict[str, Any] = {
    "num_draft_tokens": 4,
    "batch_size": 4,
    "max_new_tokens": 24,
    "record": True,
    "progress": False,
}
_MYSTERIES: dict[int, tuple[str, dict[str, Any]]] = {
    0: (
        "eqspec",
        {"break_invariant": "bonus", "rows": [3], "from_round": 1},
    ),  # the one that the notebook solves
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
_LENGTH, _OFFSETS = (
    11,
    [2, 0, -2],
)  # of what the notebook asks about p = [0, 4, 2], c = [8, 4, 6], gains [1, 3, 5]


@exercise
def realigned(length: int, offsets: list[int]) -> str:
    """The new common length L' and the offsets d of three rows."""
    if length == 8 + 5:
        raise WrongAnswerError(
            "13 is L + the largest gain, but the row that gains most need not be the one that ends up longest"
        )
    expect(length, _LENGTH, "the new common length L'")
    expect([int(offset) for offset in offsets], _OFFSETS, "the offsets d")
    return "the padding becomes [2, 4, 0]: row 0 moves two slots to the right, row 2 two slots to the left, row 1 stays"


@exercise
def position_ids(answer: Callable[..., Any]) -> str:
    """answer(mask): the position of each column, from a mask (columns,) of 0 and 1."""
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
    return "holes and padding are not counted, wherever they lie"


@exercise
def positions_check(answer: Callable[..., Any]) -> str:
    """answer(feeds): the pairs (round, row) in which a token was fed with a position that is not its index."""

    def wanted(trace: sv.Trace) -> Array:
        return trace.feeds["position"] != trace.feeds["index"]

    return _compare_with(wanted, lambda trace: ask(answer, trace.feeds))


@exercise
def mask_check(answer: Callable[..., Any]) -> str:
    """answer(feeds, holes): the pairs (round, row) in which a query saw another number of slots than its index + 1, or did not see its
    own slot last.
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
    """Which rule mystery n violates first, in which row of the batch and in which round."""
    if n not in _MYSTERIES:
        raise WrongAnswerError(
            f"there is no mystery {n!r}; choose one of {', '.join(map(str, _MYSTERIES))}"
        )
    if rule not in RULES:
        raise WrongAnswerError(f"{rule!r} is none of the rules; choose one of {', '.join(RULES)}")
    firsts = _firsts(mystery(n))
    first = firsts[0]
    right = {
        "rule": rule == first.rule,
        "row": row in {each.row for each in firsts},
        "round": round == first.round,
    }
    if not all(right.values()):
        verdicts = ", ".join(
            f"the {name} is {'right' if fits else 'another'}" for name, fits in right.items()
        )
        raise WrongAnswerError(
            f"in mystery {n} {verdicts}{_advice(first, round) if right['rule'] else ''}"
        )
    return f"{next(each for each in firsts if each.row == row)}{_story(n, firsts)}"


def mystery(n: int) -> sv.Trace:
    """One of five recorded runs to hunt in, or 0, an example; each has one thing wrong, and their headers do not tell what.

    Raises:
        ValueError: there is no such mystery.
    """
    if n not in _MYSTERIES:
        raise ValueError(f"n={n!r} is no mystery; choose one of {', '.join(map(str, _MYSTERIES))}")
    return _RECORDED[n]


class _Recorded(dict[int | str, sv.Trace]):
    """The runs that the exercises are about, each recorded when it is first asked for."""

    @cached_property
    def _pair(self) -> sv.Pair:
        return sv.load_pair(device="cpu")  # the same runs everywhere

    def __missing__(self, name: int | str) -> sv.Trace:
        strategy, options = _MYSTERIES[name] if isinstance(name, int) else _PRACTICE[name]
        prompts = sv.load_prompts()
        run = sv.generate(
            self._pair,
            [prompts[i] for i in _PROMPTS],
            strategy=sv.strategy(strategy, **options),
            **_SETTINGS,
        )
        assert run.trace is not None
        self[name] = run.trace if name in _PRACTICE else _without_header(run.trace)
        return self[name]


_RECORDED = _Recorded()


def _without_header(trace: sv.Trace) -> sv.Trace:
    """The same run, whose header does not tell what is wrong with it."""
    return replace(trace, meta={**trace.meta, "strategy_options": {}, "valid": False})


def _compare_with(wanted: Callable[[sv.Trace], Array], answer: Callable[[sv.Trace], Any]) -> str:
    """Whether an answer names, in every run to practise on, the pairs (round, row) of the feeds that are wrong."""
    counts = []
    for name in _PRACTICE:
        trace = _RECORDED[name]
        expected, told = (
            _pairs(trace.feeds, wanted(trace)),
            {(int(number), int(row)) for number, row in answer(trace)},
        )
        for words, pairs in (("does not name", expected - told), ("names", told - expected)):
            if pairs:
                raise WrongAnswerError(
                    f"for {name} it {words} (round, row) = {min(pairs)}, one of {len(pairs)} such pairs"
                )
        counts.append(len(expected))
    return f"{len(counts)} runs judged alike, from {min(counts)} to {max(counts)} pairs (round, row) in each"


def _pairs(feeds: Table, which: Array) -> set[tuple[int, int]]:
    return set(zip(feeds["round"][which].tolist(), feeds["row"][which].tolist(), strict=True))


def _firsts(trace: sv.Trace) -> list[Violation]:
    """The first violation, and those of the same rule in the same round and phase."""
    first, *others = sv.check_invariants(trace)
    when = (first.rule, first.round, first.phase)
    return [first, *(each for each in others if (each.rule, each.round, each.phase) == when)]


def _advice(first: Violation, round: object) -> str:
    if first.rule == "positions" and round == first.round - 1:
        return "; a pending token already shows the position of the forward that will read it, one round later"
    if first.rule == "kv" and round == first.round + 1:
        return "; by then a forward has read what went wrong before"
    return ""


def _story(n: int, firsts: list[Violation]) -> str:
    strategy, options = _MYSTERIES[n]
    if "break_invariant" in options:
        return ""
    rows = ", ".join(map(str, sorted({each.row for each in firsts})))
    return f". Rows {rows} alike: nothing was injected here, this is {strategy} with positions counted in columns"
