"""Where the step-through opens unless the caller says it: at what a reader would look for first.

Contract: records and their first violation in, a place and the reason for it out. That is the first
difference of two runs, else the first violation, else the first round in which rows gain different
numbers of tokens. Not known here: films and pages.
"""

from dataclasses import dataclass, replace
from typing import Any

from specviz.record.schema import PHASES
from specviz.record.trace import Trace
from specviz.views.stepper.arguments import are_lanes
from specviz.views.stepper.difference import first_parting, stand_apart

_ACCEPT = PHASES.index("accept")


@dataclass(frozen=True)
class Opening:
    """Where a view opens.

    Attributes:
        step: round * 5 + phase; row: of the batch of the first run.
        words: why, "" for no reason.
        by: whether rows stand by "slots" or by "positions".
    """

    step: int = 0
    row: int = 0
    words: str = ""
    by: str = "slots"


@dataclass(frozen=True)
class Fault:
    """A violation of an invariant. step: round * 5 + phase; run: 0 or 1."""

    step: int
    run: int
    request: int
    rule: str


def first_fault(violations: list[dict[str, Any]] | None, run: int) -> Fault | None:
    """Return the first of a film's violations; None if there is none, or nothing was judged."""
    if not violations:
        return None
    first = min(violations, key=lambda each: (each["round"], each["phase"], each["row"]))
    step = first["round"] * len(PHASES) + first["phase"]
    return Fault(step, run, first["request"], first["rule"])


def opening(trace: Trace, other: Trace | None, faults: list[Fault | None]) -> Opening:
    """Return where to open a run, or two runs of the same prompts.

    faults: the first one of each run.
    """
    found = _place(trace, other, faults)
    if other is None:
        return found
    number = found.step // len(PHASES)
    here = trace.rows["request"][trace.rows["round"] == number]
    # By slots, no cell of rows that start elsewhere would be the same.
    apart = here.size and stand_apart((trace, other), int(here[found.row]), number)
    return replace(found, by="positions" if apart else "slots")


def _place(trace: Trace, other: Trace | None, faults: list[Fault | None]) -> Opening:
    if other is not None and not are_lanes(trace, other):
        differing = _first_difference(trace, other)
        if differing is not None:
            return differing
    known = [fault for fault in faults if fault is not None]
    if known:
        return _at_fault(trace, min(known, key=lambda each: each.step), two=other is not None)
    return _first_uneven(trace)


def _first_difference(trace: Trace, other: Trace) -> Opening | None:
    found = first_parting(trace, other)
    if found is None:
        return None
    # Where that is, and why, the line over the runs says.
    words = "Opens at the first difference of the two texts."
    step = found.round * len(PHASES) + _ACCEPT
    return Opening(step, _row_of(trace, found.round, found.request), words)


def _at_fault(trace: Trace, fault: Fault, *, two: bool) -> Opening:
    number, phase = divmod(fault.step, len(PHASES))
    run = f" of the {('first', 'second')[fault.run]} run" if two else ""
    words = (
        f"Opens at the first violation{run}: {fault.rule}, round {number}, {PHASES[phase]}, "
        f"request {fault.request}."
    )
    return Opening(fault.step, _row_of(trace, number, fault.request), words)


def _first_uneven(trace: Trace) -> Opening:
    gained = trace.rows["gained"]
    bounds = trace.index.row_bounds
    for number in range(trace.num_rounds):
        here = gained[bounds[number] : bounds[number + 1]]
        if here.size and here.min() != here.max():
            row = int(here.argmax())
            words = (
                f"Opens where rows first gain different numbers of tokens: round {number}, "
                f"{here.min()} to {here.max()}. Row {row} gains most."
            )
            return Opening(number * len(PHASES) + _ACCEPT, row, words)
    return Opening()


def _row_of(trace: Trace, number: int, request: int) -> int:
    """Return the row of a request in the batch of a round, 0 where it is not there."""
    if number >= trace.num_rounds:
        return 0
    bounds = trace.index.row_bounds
    here = trace.rows["request"][bounds[number] : bounds[number + 1]]
    return int((here == request).argmax()) if here.size else 0
