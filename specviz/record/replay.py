"""Replay of a record into cache slots: what each row and slot of both models holds after a phase.

Contract: `Replay` walks through a validated record, applying feeds and moves to a ledger of (model, row, slot) cells, and
classifies the cells of the rows in the batch. It reads numbers alone. Not known here: files, tensors, whether a feed saw
the right slots (the invariant checks judge that).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from specviz.record.schema import (
    COLUMNS,
    DRAFTED,
    EMPTY,
    MODELS,
    PADDING,
    PENDING,
    PHASES,
    STALE,
    Array,
    Table,
    ledger_shape,
)
from specviz.record.trace import Trace

_SHOWN = ("request", "token", "index", "position")
_REQUEST, _TOKEN, _INDEX, _POSITION, _FED_ROUND, _WRITTEN = range(
    6
)  # what is kept of a cell; the last one: number of the last write
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
        rows = {
            len(values)
            for values in (
                self.requests,
                self.lengths,
                self.starts,
                self.pending,
                self.target.state,
                self.draft.state,
            )
        }
        if (
            self.phase not in PHASES
            or len(rows) != 1
            or self.target.state.shape != self.draft.state.shape
        ):
            raise ValueError("a Frame needs a known phase and the same rows and slots throughout")


class Timeline:
    """Finds a table's entries by stage, a stage being round * 5 + phase. Records are written in that order, but need not be.

    order, stages: (N,), the table's entries sorted by stage, and the stage of each.
    """

    def __init__(self, table: Table) -> None:
        stages = table["round"].astype(np.int64) * len(PHASES) + table["phase"]
        self.order = np.argsort(stages, kind="stable")
        self.stages = stages[self.order]

    def at(self, stage: int) -> Array:
        """The entries of a stage."""
        first, stop = np.searchsorted(self.stages, (stage, stage + 1))
        return self.order[first:stop]


class Replay:
    """A cursor in a trace: cheap to move forward, starts anew to move back."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._feeds, self._moves = Timeline(trace.feeds), Timeline(trace.moves)
        self._shape = (
            _WRITTEN + 1,
            len(MODELS),
            *ledger_shape({name: getattr(trace, name) for name in COLUMNS}),
        )
        self._texts = Texts(trace)
        self._origins = np.concatenate(
            [np.zeros(0, np.uint8), *(trace.origins(r) for r in range(trace.num_requests))]
        )
        self._restart()

    def frame(self, round: int, phase: str) -> Frame:
        """The state after `phase` of `round`. Raises ValueError when there is no such round or phase."""
        if phase not in PHASES or not 0 <= round < self._trace.num_rounds:
            last = self._trace.num_rounds - 1
            raise ValueError(
                f"no phase {phase!r} of round {round}; choose a round from 0 to {last} and one of {', '.join(PHASES)}"
            )
        self._seek(round * len(PHASES) + PHASES.index(phase))
        rows = self._trace.rows
        batch = slice(*np.searchsorted(rows["round"], (round, round + 1)))
        requests, lengths = rows["request"][batch], rows["length"][batch].copy()
        if PHASES.index(phase) >= _ACCEPT:
            lengths += rows["gained"][batch]
        starts, pending = (
            rows[f"{name}_after" if phase == "synchronise" else name][batch]
            for name in ("start", "pending")
        )
        if phase == "accept":
            pending = pending + rows["gained"][batch]
        width = self._width(round, rows["row"][batch], requests, pending + 1)
        drafting = round if PHASES.index(phase) < _ACCEPT else None
        batch_rows = (rows["row"][batch], requests, lengths, starts, pending)
        target, draft = (
            self._held(model, width, drafting, *batch_rows) for model in range(len(MODELS))
        )
        return Frame(int(round), phase, requests, lengths, starts, pending, target, draft)

    def frames(self) -> Iterator[Frame]:
        """The state after every phase of every round, in order."""
        return (
            self.frame(round, phase) for round in range(self._trace.num_rounds) for phase in PHASES
        )

    def _restart(self) -> None:
        self._ledger = np.full(self._shape, -1, np.int32)
        self._stage, self._writes = -1, 0
        self._touched = np.zeros(
            len(MODELS), np.int64
        )  # number of the last write into each model's cache
        self._known: dict[
            int, tuple[Any, Slots]
        ] = {}  # by model, what was asked for last and found

    def _held(
        self, model: int, width: int, drafting: int | None, rows: Array, *state: Array
    ) -> Slots:
        """What the first `width` slots of a model's `rows` hold; the very same Slots as before where nothing has changed."""
        question = (
            self._touched[model],
            width,
            drafting,
            *(values.tobytes() for values in (rows, *state)),
        )
        if model not in self._known or self._known[model][0] != question:
            self._known[model] = (
                question,
                self._slots(self._ledger[:, model, rows, :width], drafting, *state),
            )
        return self._known[model][1]

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
        columns = ("model", "from_row", "from_slot", "to_row", "to_slot", "length")
        blocks = np.stack([self._trace.moves[name][moves] for name in columns], axis=1).tolist()
        taken = [
            self._ledger[:, model, row, slot : slot + length].copy()
            for model, row, slot, _, _, length in blocks
        ]
        ages = np.unique(
            np.concatenate([np.zeros(0, np.int32), *(block[_WRITTEN] for block in taken)])
        )
        for (model, _, _, row, slot, length), block in zip(blocks, taken, strict=True):
            block[_WRITTEN] = self._writes + np.searchsorted(
                ages, block[_WRITTEN]
            )  # newer than what stays, in the order as before
            self._touched[model] = self._writes
            self._ledger[:, model, row, slot : slot + length] = block
        self._writes += ages.size

    def _feed(self, feeds: Array) -> None:
        table = self._trace.feeds
        model, row, slot = (table[name][feeds] for name in ("model", "row", "slot"))
        for plane, name in enumerate((*_SHOWN, "round")):
            self._ledger[plane, model, row, slot] = table[name][feeds]
        self._ledger[_WRITTEN, model, row, slot] = self._touched[model] = self._writes

    def _width(self, round: int, rows: Array, requests: Array, stops: Array) -> int:
        used = (self._ledger[_REQUEST][:, rows] == requests[:, None]).any(axis=(0, 1)).nonzero()[0]
        return int(
            max(self._trace.rounds["slots"][round], used.max(initial=-1) + 1, stops.max(initial=0))
        )

    def _slots(
        self,
        cells: Array,
        drafting: int | None,
        requests: Array,
        lengths: Array,
        starts: Array,
        pending: Array,
    ) -> Slots:
        """What a model's cells (6, B, T) hold; `drafting` is the round whose unverified tokens count as drafted, None after that."""
        index, before = cells[_INDEX], np.arange(cells.shape[2]) < starts[:, None]
        own = (cells[_REQUEST] == requests[:, None]) & ~before
        state = np.where(own, STALE, EMPTY)
        if drafting is not None:
            state[own & (index >= lengths[:, None]) & (cells[_FED_ROUND] == drafting)] = DRAFTED
        committed = own & (index < lengths[:, None])
        place = self._texts.first[requests, None] + np.where(committed, index, 0)
        told = (self._texts.tokens[place] == cells[_TOKEN]) & (
            self._texts.rounds[place] <= cells[_FED_ROUND]
        )
        valid = _newest(cells, committed & told, lengths)
        state[valid] = self._origins[place[valid]]
        state[before] = PADDING
        rows = np.arange(len(requests))
        awaited = rows[~valid[rows, pending] & ~(valid & (index == lengths[:, None] - 1)).any(1)]
        state[awaited, pending[awaited]] = PENDING
        return Slots(state=state, **{name: cells[plane] for plane, name in enumerate(_SHOWN)})


def _newest(cells: Array, valid: Array, lengths: Array) -> Array:
    """Of the cells (B, T) with K/V of a committed token: of several copies of one token, the one written last."""
    longest, latest = int(lengths.max(initial=0)), valid.copy()
    written = cells[_WRITTEN][valid]
    token = (np.arange(len(lengths))[:, None] * longest + cells[_INDEX])[valid]
    last = np.full(len(lengths) * longest, -1, np.int32)
    np.maximum.at(last, token, written)
    latest[valid] = written == last[token]
    return latest


class Texts:
    """The committed tokens of all requests, prompt and output, one behind the other.

    tokens, rounds: int32 (n,); rounds says when each was committed, -1 for a prompt's: K/V from an earlier round, of a rejected draft, is
        not that token's even where the ids are equal. first, size: int64 (R,), where those of a request begin, and how many there are.
    """

    def __init__(self, trace: Trace) -> None:
        columns = [
            np.split(trace.requests[f"{name}_tokens"], trace.requests[f"{name}_offsets"][1:-1])
            for name in ("prompt", "output")
        ]
        self.tokens = np.concatenate([part for both in zip(*columns, strict=True) for part in both])
        self.size = np.diff(trace.requests["prompt_offsets"]) + np.diff(
            trace.requests["output_offsets"]
        )
        self.first = self.size.cumsum() - self.size
        self.rounds = np.full(self.tokens.size, -1, np.int32)
        gained, before = (
            trace.rows["gained"],
            self.first[trace.rows["request"]] + trace.rows["length"],
        )
        place = np.repeat(before - gained.cumsum() + gained, gained) + np.arange(gained.sum())
        self.rounds[place] = np.repeat(trace.rows["round"], gained)


class Sight:
    """Which slots the queries of a record attended to."""

    def __init__(self, trace: Trace) -> None:
        self._feeds, self._holes = trace.feeds, trace.holes
        self._order = np.argsort(trace.holes["feed"], kind="stable")

    def __call__(self, feeds: Array) -> Array:
        """(q, w) bool for q entries of the table `feeds`; w is where the one that looks furthest stops."""
        start, stop = (
            self._feeds["visible_start"][feeds, None],
            self._feeds["visible_stop"][feeds, None],
        )
        slots = np.arange(stop.max(initial=0))
        seen: Array = (slots >= start) & (slots < stop)
        first, last = (
            np.searchsorted(self._holes["feed"], feeds, side, sorter=self._order)
            for side in ("left", "right")
        )
        counts = last - first
        if counts.any():
            holes = self._order[
                np.repeat(first, counts)
                + np.arange(counts.sum())
                - np.repeat(counts.cumsum() - counts, counts)
            ]
            query, edges = (
                np.repeat(np.arange(feeds.size), counts),
                np.zeros((feeds.size, slots.size + 1), np.int32),
            )
            np.add.at(edges, (query, self._holes["start"][holes]), 1)
            np.add.at(edges, (query, self._holes["stop"][holes]), -1)
            seen &= edges[:, :-1].cumsum(axis=1) == 0
        return seen


def operations(table: Table) -> dict[tuple[int, int, int], Array]:
    """Entries of `feeds` or `moves` that happened at once, by (round * 5 + phase, model, step), in the order of these."""
    stages = table["round"].astype(np.int64) * len(PHASES) + table["phase"]
    order = np.lexsort((table["step"], table["model"], stages))
    keys = np.stack([stages, table["model"], table["step"]], axis=1)[order]
    firsts = np.flatnonzero((np.diff(keys, axis=0, prepend=-1) != 0).any(1))
    groups = zip(
        keys[firsts].tolist(), np.split(order, firsts[1:]), strict=False
    )  # nothing splits into one empty part
    return {(stage, model, step): entries for (stage, model, step), entries in groups}
