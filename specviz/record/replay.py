"""Replay of a record into cache slots: what each row and slot of both models holds after a phase.

Contract: `Replay` walks through a validated record, applies feeds and moves to a ledger of (model,
row, slot) cells, and classifies the cells of the rows in the batch. It reads numbers alone. Not
known here: files, tensors, and whether a feed saw the right slots, which the invariant checks
judge.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from specviz.record.heads import MASK, feature_reads
from specviz.record.index import Step
from specviz.record.schema import (
    DRAFTED,
    EMPTY,
    MODELS,
    PADDING,
    PENDING,
    PHASES,
    STALE,
    Array,
)
from specviz.record.trace import Trace
from specviz.util.validate import is_int, require_kind, short

# The planes of the ledger: what is kept of a cell. WRITTEN is the number of its last write.
_SHOWN = ("request", "token", "index", "position")
_REQUEST, _TOKEN, _INDEX, _POSITION, _FED_ROUND, _FOLLOWS, _BRANCHES, _SOURCE, _WRITTEN = range(9)
_PLANES = 9
_MOVE = ("model", "from_row", "from_slot", "to_row", "to_slot", "length")
_ACCEPT = PHASES.index("accept")


@dataclass(frozen=True, eq=False)
class Slots:
    """The cache of one model. All arrays are (B, T).

    Attributes:
        request, token, index, position: int32, the token whose K/V the slot holds, -1 where none
            was ever written.
        source: int32, where a draft head took the feature from that it read with the token, one of
            the codes that `heads.SOURCES` names, -1 where none was ever written.
        state: uint8, one of the codes that STATES names.
    """

    request: Array
    token: Array
    index: Array
    position: Array
    source: Array
    state: Array

    def __post_init__(self) -> None:
        shapes = {getattr(self, name).shape for name in (*_SHOWN, "source", "state")}
        if len(shapes) != 1 or any(len(shape) != 2 for shape in shapes):
            problem = f"the arrays of Slots must share one (B, T) shape, got {sorted(shapes)}"
            raise ValueError(f"{problem}; pass arrays of one shape")


@dataclass(frozen=True, eq=False)
class Frame:
    """Both caches after one phase of one round.

    Attributes:
        round: number of the round.
        phase: its name, one of PHASES.
        requests: int32 (B,), the request in each row, rows in the order of the record.
        lengths: int32 (B,), committed tokens n of each row, prompt included. From "accept" on, the
            tokens that the round gained count too.
        starts: int32 (B,), slot of each row's first token.
        pending: int32 (B,), slot where the K/V of each row's pending token goes. That is its last
            token, whose K/V does not exist before it is fed.
        target, draft: Slots of (B, T). T is what the verify forward saw, or more where a row holds
            or awaits more.
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
        per_row = (self.requests, self.lengths, self.starts, self.pending, self.target.state)
        same_rows = len({len(values) for values in (*per_row, self.draft.state)}) == 1
        same_shape = self.target.state.shape == self.draft.state.shape
        if self.phase not in PHASES or not same_rows or not same_shape:
            raise ValueError(
                "a Frame must have a known phase and the same rows and slots throughout, got "
                f"phase={short(self.phase)} and other sizes; pass arrays of one replay"
            )


class _Batch(NamedTuple):
    """The rows of a frame, each (B,): their cache rows, and what `Frame` says of them."""

    rows: Array
    requests: Array
    lengths: Array
    starts: Array
    pending: Array


class Replay:
    """A cursor in a trace. Moving forward is cheap; moving back starts over."""

    def __init__(self, trace: Trace) -> None:
        require_kind("trace", trace, Trace, "pass result.trace, or Trace.load(path)")
        self._trace = trace
        self._index = trace.index
        self._moves = np.stack([trace.moves[name] for name in _MOVE], axis=1)  # (N, 6)
        self._sources = feature_reads(trace).source
        # Most records have neither mask entries nor trees.
        self._has_masks = bool((self._sources == MASK).any())
        self._has_branches = bool(self._index.on_branches.any())
        self._restart()

    def frame(self, round: int, phase: str) -> Frame:
        """Return the state after `phase` of `round`.

        Raises ValueError if there is no such phase.
        """
        last = self._trace.num_rounds - 1
        known = is_int(round) and isinstance(phase, str)
        if not known or phase not in PHASES or not 0 <= round <= last:
            raise ValueError(
                f"round={short(round)}, phase={short(phase)} is not in the record; "
                f"choose a round from 0 to {last} and one of {', '.join(PHASES)}"
            )
        number = PHASES.index(phase)
        self._seek(round * len(PHASES) + number)
        batch = self._batch(round, phase)
        width = self._width(round, batch)
        # Until they are accepted or rejected, the drafts of this round are neither.
        drafting = round if number < _ACCEPT else None
        target, draft = (self._held(model, width, drafting, batch) for model in range(len(MODELS)))
        of_rows = batch._asdict()
        del of_rows["rows"]
        return Frame(int(round), phase, **of_rows, target=target, draft=draft)

    def frames(self) -> Iterator[Frame]:
        """Return the state after every phase of every round, in order."""
        for round in range(self._trace.num_rounds):
            for phase in PHASES:
                yield self.frame(round, phase)

    def _restart(self) -> None:
        self._cells = np.full((_PLANES, len(MODELS), *self._index.cache_shape), -1, np.int32)
        self._stage = -1
        self._writes = 0
        self._last_write = [0] * len(MODELS)  # number of the last write into each model's cache
        self._latest: dict[int, tuple[Any, Slots]] = {}  # by model: key of `_held`, its answer

    def _seek(self, stage: int) -> None:
        if stage < self._stage:
            self._restart()  # steps overwrite cells and cannot be undone
        while self._stage < stage:
            self._stage += 1
            for step in self._index.steps_of(self._stage):
                self._apply(step)

    def _apply(self, step: Step) -> None:
        self._writes += 1
        self._last_write[step.model] = self._writes
        if step.moves.size:
            self._move(step.moves)
        if step.feeds.size:
            self._feed(step)

    def _move(self, moves: Array) -> None:
        """Copy blocks of slots. All of them are read before any is written."""
        blocks = self._moves[moves].tolist()
        copies = []
        for model, row, slot, _, _, length in blocks:
            copies.append(self._cells[:, model, row, slot : slot + length].copy())
        # A moved cell is newer than what stays. Moved cells keep their order among themselves.
        ages = np.unique(np.concatenate([copy[_WRITTEN] for copy in copies]))
        for (model, _, _, row, slot, length), copy in zip(blocks, copies, strict=True):
            copy[_WRITTEN] = self._writes + np.searchsorted(ages, copy[_WRITTEN])
            self._cells[:, model, row, slot : slot + length] = copy
        self._writes += ages.size

    def _feed(self, step: Step) -> None:
        table = self._trace.feeds
        row = table["row"][step.feeds]
        slot = table["slot"][step.feeds]
        for plane, name in enumerate((*_SHOWN, "round")):
            self._cells[plane, step.model, row, slot] = table[name][step.feeds]
        self._cells[_FOLLOWS, step.model, row, slot] = self._index.follows_accepted[step.feeds]
        self._cells[_BRANCHES, step.model, row, slot] = self._index.on_branches[step.feeds]
        self._cells[_SOURCE, step.model, row, slot] = self._sources[step.feeds]
        self._cells[_WRITTEN, step.model, row, slot] = self._writes

    def _batch(self, round: int, phase: str) -> _Batch:
        table = self._trace.rows
        entries = self._index.rows_of(round)
        # The record has each number at most twice a round. What lies between follows: lengths grow
        # in "accept", and the pending slot goes with them until "synchronise" moves it.
        suffix = "_after" if phase == "synchronise" else ""
        lengths = table["length"][entries]
        pending = table[f"pending{suffix}"][entries]
        gained = table["gained"][entries]
        if PHASES.index(phase) >= _ACCEPT:
            lengths = lengths + gained
        if phase == "accept":
            pending = self._index.ends[entries]
        return _Batch(
            rows=table["row"][entries],
            requests=table["request"][entries],
            lengths=lengths,
            starts=table[f"start{suffix}"][entries],
            pending=pending,
        )

    def _width(self, round: int, batch: _Batch) -> int:
        """Return T: the slots that the verify forward saw, or that a row holds or awaits."""
        held = self._cells[_REQUEST][:, batch.rows] == batch.requests[:, None]  # (models, B, slots)
        used = held.any(axis=(0, 1)).nonzero()[0]
        awaited = (batch.pending + 1).max(initial=0)
        return int(max(self._trace.rounds["slots"][round], used.max(initial=-1) + 1, awaited))

    def _held(self, model: int, width: int, drafting: int | None, batch: _Batch) -> Slots:
        """Return what the first `width` slots of a model's rows hold.

        The same object as before is returned where nothing has changed, which callers rely on to
        draw a cache only once.
        """
        key = (self._last_write[model], width, drafting, *(column.tobytes() for column in batch))
        if model not in self._latest or self._latest[model][0] != key:
            cells = self._cells[:, model, batch.rows, :width]
            self._latest[model] = (key, self._classify(cells, drafting, batch))
        return self._latest[model][1]

    def _classify(self, cells: Array, drafting: int | None, batch: _Batch) -> Slots:
        """Return what a model's cells (9, B, T) hold.

        drafting: the round whose tokens are not verified yet and count as drafted, or None.
        """
        texts = self._index.committed
        index = cells[_INDEX]
        length = batch.lengths[:, None]
        before = np.arange(cells.shape[2]) < batch.starts[:, None]
        own = (cells[_REQUEST] == batch.requests[:, None]) & ~before
        # From the weakest claim to the strongest; each overwrites what came before.
        state = np.where(own, STALE, EMPTY)
        if drafting is not None:
            state[own & (index >= length) & (cells[_FED_ROUND] == drafting)] = DRAFTED

        # A cell is valid if its token was committed by the round that fed it, or before. An equal
        # token that was fed earlier is a rejected draft, read behind another text. So is an equal
        # token on another branch of a tree.
        committed = own & (index < length)
        place = texts.first[batch.requests, None] + np.where(committed, index, 0)  # (B, T)
        same = texts.tokens[place] == cells[_TOKEN]
        in_time = texts.rounds[place] <= cells[_FED_ROUND]
        # Moves leave copies behind. The one written last counts.
        follows = cells[_FOLLOWS] == 1
        valid = committed & same & in_time & follows
        if self._has_masks:
            # A mask entry is K/V of no token, whatever id stands beside it.
            valid &= cells[_SOURCE] != MASK
        if self._has_branches:
            # On a tree, the draft that became a row's last token may lie in another slot than the
            # one that awaits it. Nothing will look for its K/V there.
            slot = np.arange(cells.shape[2])
            is_last = (index == length - 1) & (cells[_BRANCHES] == 1)
            valid &= ~is_last | (slot == batch.pending[:, None])
        valid = _newest(cells, valid, batch.lengths)
        np.copyto(state, texts.origins[place], where=valid)
        state[before] = PADDING

        # Not where the pending token was fed already, nor where its slot holds another valid one.
        rows = np.arange(len(batch.requests))
        is_taken = valid[rows, batch.pending]
        is_fed = (valid & (index == length - 1)).any(1)
        awaited = rows[~is_taken & ~is_fed]
        state[awaited, batch.pending[awaited]] = PENDING
        shown = {name: cells[plane] for plane, name in enumerate(_SHOWN)}
        return Slots(source=cells[_SOURCE], state=state, **shown)


def _newest(cells: Array, valid: Array, lengths: Array) -> Array:
    """Return `valid` (B, T) with only the newest of several copies of one token."""
    longest = int(lengths.max(initial=0))
    token = (np.arange(len(lengths))[:, None] * longest + cells[_INDEX])[valid]
    if (token[1:] > token[:-1]).all():
        return valid  # the tokens of each row stand in their order, so none stands there twice
    written = cells[_WRITTEN][valid]
    last = np.full(len(lengths) * longest, -1, np.int32)
    np.maximum.at(last, token, written)
    newest = valid.copy()
    newest[valid] = written == last[token]
    return newest
