"""Replay of a record into cache slots: what each row and slot of both models holds after a phase.

Contract: `Replay` walks through a validated record, applying feeds and moves to a ledger of (model, row, slot) cells, and
classifies the cells of the rows in the batch. It reads numbers alone. Not known here: files, tensors, whether a feed saw
the right slots (the invariant checks judge that).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specviz.schema import COLUMNS, DRAFTED, EMPTY, MODELS, PADDING, PENDING, PHASES, STALE, Array, Table, ledger_shape

if TYPE_CHECKING:
    from specviz.trace import Trace

_SHOWN = ("request", "token", "index", "position")
_CELL = np.dtype([(name, np.int32) for name in (*_SHOWN, "fed_round", "written")])  # written: number of the last write
_ACCEPT = PHASES.index("accept")


@dataclass(frozen=True, eq=False)
class Slots:
    """The cache of one model. All arrays are (B, T).

    request, token, index, position: int32, the token whose K/V the slot holds, -1 where none was ever written.
    state: uint8, one of the codes that STATES names.
    """

    request: Array
    token: Array
    index: Array
    position: Array
    state: Array

    def __post_init__(self) -> None:
        shapes = {getattr(self, name).shape for name in (*_SHOWN, "state")}
        if len(shapes) != 1 or len(shapes.pop()) != 2:
            raise ValueError("the arrays of Slots must share one (B, T) shape")


@dataclass(frozen=True, eq=False)
class Frame:
    """Both caches after one phase of one round.

    round: number of the round; phase: its name, one of PHASES.
    requests: int32 (B,), the request in each row, rows in the order of the record.
    lengths: int32 (B,), committed tokens n of each row, prompt included; from "accept" on with the round's gain.
    starts: int32 (B,), slot of each row's first token.
    pending: int32 (B,), slot where the K/V of each row's pending token goes: its last one, whose K/V does not exist before it is fed.
    target, draft: Slots of (B, T), T being what the verify forward saw, or more where a row holds or awaits more.
    """

    round: int
    phase: str
    requests: Array
    lengths: Array
    starts: Array
    pending: Array
    target: Slots
    draft: Slots

    def __post_init__(self) -> None:
        rows = {len(values) for values in (self.requests, self.lengths, self.starts, self.pending, self.target.state, self.draft.state)}
        if self.phase not in PHASES or len(rows) != 1 or self.target.state.shape != self.draft.state.shape:
            raise ValueError("a Frame needs a known phase and the same rows and slots throughout")


class _Timeline:
    """Finds a table's entries by stage, a stage being round * 5 + phase."""

    def __init__(self, table: Table) -> None:
        stages = table["round"].astype(np.int64) * len(PHASES) + table["phase"]
        self._order = np.argsort(stages, kind="stable")
        self._stages = stages[self._order]

    def at(self, stage: int) -> Array:
        first, stop = np.searchsorted(self._stages, (stage, stage + 1))
        return self._order[first:stop]


class Replay:
    """A cursor in a trace: cheap to move forward, starts anew to move back."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._feeds, self._moves = _Timeline(trace.feeds), _Timeline(trace.moves)
        self._shape = (len(MODELS), *ledger_shape({name: getattr(trace, name) for name in COLUMNS}))
        self._committed = [np.array(trace.prompt(r) + trace.output(r), np.int32) for r in range(trace.num_requests)]
        self._origins = [trace.origins(r) for r in range(trace.num_requests)]
        self._restart()

    def frame(self, round: int, phase: str) -> Frame:
        """The state after `phase` of `round`. Raises ValueError when there is no such round or phase."""
        if phase not in PHASES or not 0 <= round < self._trace.num_rounds:
            raise ValueError(f"no phase {phase!r} of round {round}: rounds run from 0 to {self._trace.num_rounds - 1}, phases are {PHASES}")
        self._seek(round * len(PHASES) + PHASES.index(phase))
        rows = self._trace.rows
        batch = slice(*np.searchsorted(rows["round"], (round, round + 1)))
        requests, lengths = rows["request"][batch], rows["length"][batch].copy()
        if PHASES.index(phase) >= _ACCEPT:
            lengths += rows["gained"][batch]
        starts, pending = (rows[f"{name}_after" if phase == "synchronise" else name][batch] for name in ("start", "pending"))
        if phase == "accept":
            pending = pending + rows["gained"][batch]
        cells = self._ledger[:, rows["row"][batch]]  # (2, B, slots)
        width = self._width(round, cells, requests, pending + 1)
        drafting = round if PHASES.index(phase) < _ACCEPT else None
        target, draft = (self._slots(cells[model, :, :width], drafting, requests, lengths, starts, pending) for model in range(len(MODELS)))
        return Frame(int(round), phase, requests, lengths, starts, pending, target, draft)

    def _restart(self) -> None:
        self._ledger = np.full(self._shape, -1, _CELL)
        self._stage, self._writes = -1, 0

    def _seek(self, stage: int) -> None:
        if stage < self._stage:
            self._restart()
        while self._stage < stage:
            self._stage += 1
            self._apply(self._feeds.at(self._stage), self._moves.at(self._stage))

    def _apply(self, feeds: Array, moves: Array) -> None:
        """Apply the operations of one phase, step by step; within a step, moves read before anything is written."""
        feed_steps, move_steps = self._trace.feeds["step"][feeds], self._trace.moves["step"][moves]
        for step in np.union1d(feed_steps, move_steps):
            self._writes += 1
            self._move(moves[move_steps == step])
            self._feed(feeds[feed_steps == step])

    def _move(self, moves: Array) -> None:
        if moves.size == 0:
            return
        before = self._ledger.copy()
        before["written"] = self._writes
        columns = ("model", "from_row", "from_slot", "to_row", "to_slot", "length")
        for move in np.stack([self._trace.moves[name][moves] for name in columns], axis=1).tolist():
            model, from_row, from_slot, to_row, to_slot, length = move
            self._ledger[model, to_row, to_slot : to_slot + length] = before[model, from_row, from_slot : from_slot + length]

    def _feed(self, feeds: Array) -> None:
        table = self._trace.feeds
        cells = np.empty(feeds.size, _CELL)
        for name in _SHOWN:
            cells[name] = table[name][feeds]
        cells["fed_round"], cells["written"] = table["round"][feeds], self._writes
        self._ledger[table["model"][feeds], table["row"][feeds], table["slot"][feeds]] = cells

    def _width(self, round: int, cells: Array, requests: Array, stops: Array) -> int:
        used = (cells["request"] == requests[:, None]).any(axis=(0, 1)).nonzero()[0]
        return int(max(self._trace.rounds["slots"][round], used.max(initial=-1) + 1, stops.max(initial=0)))

    def _slots(self, cells: Array, drafting: int | None, requests: Array, lengths: Array, starts: Array, pending: Array) -> Slots:
        state = np.empty(cells.shape, np.uint8)
        for row, (request, length, start, awaited) in enumerate(zip(requests, lengths, starts, pending, strict=True)):
            own = (cells[row]["request"] == request) & (np.arange(cells.shape[1]) >= start)
            valid = _valid(cells[row], own, self._committed[request][:length])
            state[row] = _states(cells[row], own, valid, self._origins[request], int(start), int(length), int(awaited), drafting)
        return Slots(state=state, **{name: np.ascontiguousarray(cells[name]) for name in _SHOWN})


def _valid(cells: Array, own: Array, committed: Array) -> Array:
    """Which cells (T,) hold K/V of a committed token; of several copies of one token, the one written last."""
    valid = own & (cells["index"] < committed.size)
    index = np.where(valid, cells["index"], 0)
    valid &= committed[index] == cells["token"]
    newest = np.full(committed.size, -1)
    np.maximum.at(newest, index[valid], cells["written"][valid])
    return valid & (cells["written"] == newest[index])


def _states(cells: Array, own: Array, valid: Array, origins: Array, start: int, length: int, pending: int, drafting: int | None) -> Array:
    """State codes (T,) of one row; `drafting` is the round whose unverified tokens count as drafted, None after that."""
    states = np.where(own, STALE, EMPTY)
    if drafting is not None:
        states[own & (cells["index"] >= length) & (cells["fed_round"] == drafting)] = DRAFTED
    states[valid] = origins[cells["index"][valid]]
    states[:start] = PADDING
    if not valid[pending] and not (cells["index"][valid] == length - 1).any():
        states[pending] = PENDING
    return states


class Sight:
    """Which slots the queries of a record attended to."""

    def __init__(self, trace: Trace) -> None:
        self._feeds, self._holes = trace.feeds, trace.holes
        self._order = np.argsort(trace.holes["feed"], kind="stable")

    def __call__(self, feeds: Array) -> Array:
        """(q, w) bool for q entries of the table `feeds`; w is where the one that looks furthest stops."""
        start, stop = self._feeds["visible_start"][feeds, None], self._feeds["visible_stop"][feeds, None]
        slots = np.arange(stop.max(initial=0))
        seen: Array = (slots >= start) & (slots < stop)
        first, last = (np.searchsorted(self._holes["feed"], feeds, side, sorter=self._order) for side in ("left", "right"))
        counts = last - first
        if counts.any():
            holes = self._order[np.repeat(first, counts) + np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)]
            query, edges = np.repeat(np.arange(feeds.size), counts), np.zeros((feeds.size, slots.size + 1), np.int32)
            np.add.at(edges, (query, self._holes["start"][holes]), 1)
            np.add.at(edges, (query, self._holes["stop"][holes]), -1)
            seen &= edges[:, :-1].cumsum(axis=1) == 0
        return seen


def operations(table: Table) -> dict[tuple[int, int, int], Array]:
    """Entries of `feeds` or `moves` that happened at once, by (round * 5 + phase, model, step), in the order of these."""
    stages = table["round"].astype(np.int64) * len(PHASES) + table["phase"]
    keys, group = np.unique(np.stack([stages, table["model"], table["step"]], axis=1), axis=0, return_inverse=True)
    order = np.argsort(group.ravel(), kind="stable")
    stops = np.bincount(group.ravel(), minlength=len(keys)).cumsum().tolist()
    return {(int(a), int(b), int(c)): order[i:j] for (a, b, c), i, j in zip(keys, [0, *stops], stops, strict=False)}
