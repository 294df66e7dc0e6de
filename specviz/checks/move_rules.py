"""What is moved: a part of the rule "rectangle".

Contract: `moves_fit` takes the `Rows` of a record and reports to it. A block that is moved is K/V
of a row's tokens, so it fits between the row's start and its pending slot. What the copy takes
along beside them does not belong in the record. Not known here: what caches held.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from specviz.checks.journeys import read_again
from specviz.checks.rows import Rows
from specviz.record.schema import MODELS, PHASES, Array, says_layout

_TARGET = MODELS.index("target")
_SCHEDULE, _ACCEPT, _SYNCHRONISE = (
    PHASES.index(name) for name in ("schedule", "accept", "synchronise")
)


def moves_fit(rows: Rows) -> None:
    """Check that moved K/V is of a row's tokens: it fits between start and pending slot."""
    if rows.trace.moves["round"].size == 0 or not says_layout(rows.trace.meta):
        return
    # Rows may trade places in several steps. Where a block stays is what the table `rows` says.
    onward = _moved_on(rows.trace.moves)
    stays = _is_last_step(rows.trace.moves)
    stays[list(onward)] = False
    _blocks_fit(rows, stays)
    _waiting_rows_fit(rows, stays)
    _blocks_move_on_whole(rows, onward)


class _Spans(NamedTuple):
    """Start, pending slot and number of tokens of the row that each move (m,) goes to."""

    start: Array
    pending: Array
    tokens: Array


def _spans(rows: Rows, entry: Array, is_late: Array) -> _Spans:
    table = rows.trace.rows
    columns = []
    for name in ("start", "pending"):
        both = [table[f"{name}_after"][entry], table[name][entry]]
        columns.append(np.where(is_late, *both).astype(np.int64))
    gained = np.where(is_late, table["gained"][entry], 0)
    return _Spans(columns[0], columns[1], table["length"][entry].astype(np.int64) + gained)


def _is_last_step(moves: dict[str, Array]) -> Array:
    """Return which moves (m,) are the last into their row in their phase."""
    names = ("step", "to_row", "model", "phase", "round")
    order = np.lexsort([moves[name] for name in names])
    # Sorted: each is followed by the next step of the same row, if there is one.
    is_same = np.ones(max(order.size - 1, 0), bool)
    for name in names[1:]:
        is_same &= np.diff(moves[name][order].astype(np.int64)) == 0
    # Entries of the last step itself count alike.
    ends = np.append(~is_same, True)
    last = moves["step"][order[np.flatnonzero(ends)]]
    group = ends.cumsum() - ends
    found = np.zeros(order.size, bool)
    found[order] = moves["step"][order] == last[group]
    return found


def _blocks_fit(rows: Rows, stays: Array) -> None:
    """Check that blocks that stay in a row of the batch lie in its slots, and begin with it."""
    moves = rows.trace.moves
    entry = rows.trace.index.find_rows(moves["round"], moves["to_row"])
    is_late = moves["phase"] == _SYNCHRONISE
    span = _spans(rows, entry, is_late)
    length, first = (moves[name].astype(np.int64) for name in ("length", "to_slot"))
    # The draft's cache may have another layout, so only the target's blocks have their places. Nor
    # has K/V that is computed again in the same round.
    is_read = read_again(rows, moves, entry)
    is_placed = (moves["model"] == _TARGET) & ~is_read
    # Where a prompt is read after the move, in the same phase, the block may be of a row that left.
    is_own = ~is_read | (moves["phase"] != _SCHEDULE)
    # Accepted drafts of a tree move behind the slot of what was pending before the round.
    gained = np.where(moves["phase"] == _ACCEPT, rows.trace.rows["gained"][entry], 0)
    end = span.pending + gained
    is_wrong = is_own & (length > np.maximum(end - span.start, span.tokens - 1))
    is_wrong |= is_placed & ((first < span.start) | (first + length > end))
    begins = (moves["from_row"] == moves["to_row"]) & is_late
    begins &= moves["from_slot"] == rows.trace.rows["start"][entry]
    is_wrong |= is_placed & begins & (first != span.start)
    for k in np.flatnonzero(stays & (entry >= 0) & is_wrong).tolist():
        row = rows.entry(int(entry[k]))
        if rows.has_finding("kv", int(moves["phase"][k]), row):
            continue
        last = end[k] - 1
        expected = f"the row's K/V before the pending token takes slots {span.start[k]} to {last}"
        found = f"{length[k]} slots were moved to slot {first[k]} and behind it"
        rows.report(
            "rectangle", PHASES[moves["phase"][k]], row, expected, found,
            model=moves["model"][k], slots=[max(first[k] + length[k] - 1, 0)],
        )  # fmt: skip


def _waiting_rows_fit(rows: Rows, stays: Array) -> None:
    """Check that blocks that stay in a row of the pool hold no more than its K/V."""
    pool, moves = rows.trace.pool, rows.trace.moves
    members = {}
    for number, row, request, length in zip(
        *(pool[name].tolist() for name in ("round", "row", "request", "length")), strict=True
    ):
        members[number, row] = request, length
    in_batch = rows.trace.index.find_rows(moves["round"], moves["to_row"]) >= 0
    for k in np.flatnonzero(stays & ~in_batch).tolist():
        place = int(moves["round"][k]), int(moves["to_row"][k])
        if place not in members:
            continue
        request, count = members[place]
        length = int(moves["length"][k])
        if length > count - 1 and length > rows.widest[request]:
            expected = f"a row of {count} tokens should have K/V in {count - 1} slots"
            _report(rows, k, request, expected, f"{length} slots were moved into it")


def _moved_on(moves: dict[str, Array]) -> dict[int, int]:
    """Return the moves whose block is moved on in the same phase: {entry: the later entry}."""
    if not moves["step"].any():
        return {}
    names = ("round", "phase", "model")
    to = list(_places(moves, (*names, "to_row", "to_slot")))
    source = list(_places(moves, (*names, "from_row", "from_slot")))
    found = {}
    arrived: dict[tuple[int, ...], int] = {}
    order = np.argsort(moves["step"], kind="stable")
    firsts = np.flatnonzero(np.diff(moves["step"][order], prepend=-1))
    for step in np.split(order, firsts[1:]):
        for k in step.tolist():
            if source[k] in arrived:
                found[arrived[source[k]]] = k
        arrived |= {to[k]: k for k in step.tolist()}
    return found


def _places(moves: dict[str, Array], names: Iterable[str]) -> Iterator[tuple[int, ...]]:
    return zip(*(moves[name].tolist() for name in names), strict=True)


def _blocks_move_on_whole(rows: Rows, onward: dict[int, int]) -> None:
    """Check that a block moved on in the same phase is the one that was moved there."""
    moves = rows.trace.moves
    for before, k in onward.items():
        due, length = int(moves["length"][k]), int(moves["length"][before])
        if length > due:
            entry = int(rows.trace.index.find_rows(moves["round"][[k]], moves["to_row"][[k]])[0])
            request = int(rows.trace.rows["request"][entry]) if entry >= 0 else 0
            expected = f"{due} slots should be moved, as they are moved on in the same phase"
            _report(rows, before, request, expected, f"{length} were")


def _report(rows: Rows, k: int, request: int, expected: str, found: str) -> None:
    """Report entry k of `moves`, unless K/V is known to be lost there."""
    moves = rows.trace.moves
    stage = int(moves["round"][k]) * len(PHASES) + int(moves["phase"][k])
    if rows.findings.has("kv", stage, moves["to_row"][k], request):
        return
    last = int(moves["to_slot"][k]) + int(moves["length"][k]) - 1
    rows.findings.add(
        "rectangle", stage, moves["to_row"][k], request, expected, found,
        model=moves["model"][k], slots=[max(last, 0)],
    )  # fmt: skip
