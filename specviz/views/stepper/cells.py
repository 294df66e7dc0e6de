"""What one frame of the target's cache holds around a round's drafts: rows, windows of slots, and cells with their kind.

Contract: reads a Trace and counts; `batch_picture` draws what comes out. Not known here: colours, text and plotly.

A row has two lanes. The first is its tokens: what is committed, up to the pending token, and drafts that were not judged yet.
The second is what lies in a slot without counting: KV of rejected drafts, which a token of the first lane may overlie.
"""

from dataclasses import dataclass, fields
from typing import Literal

import numpy as np

from specviz.metrics import check_recorded
from specviz.record.replay import Frame, Replay
from specviz.record.schema import (
    ACCEPTED,
    BONUS,
    DRAFTED,
    EMPTY,
    PADDING,
    PENDING,
    PHASES,
    PROMPT,
    STALE,
)
from specviz.record.trace import Trace

Kind = Literal[
    "prompt",
    "accepted",
    "bonus",
    "pending",
    "drafted",
    "accepted_now",
    "bonus_now",
    "rejected_now",
    "discarded_now",
    "unreached_now",
    "stale",
    "padding",
    "empty",
]
_KINDS: dict[int, Kind] = {
    int(PROMPT): "prompt",
    int(ACCEPTED): "accepted",
    int(BONUS): "bonus",
    int(DRAFTED): "drafted",
}


@dataclass(frozen=True)
class Row:
    """One batch row of a round: the columns of the record's table `rows` that a picture needs."""

    request: int
    length: int
    drafted: int
    accepted: int
    gained: int
    finished: bool
    discarded: int
    start: int
    start_after: int
    pending: int
    pending_after: int

    @property
    def kept(self) -> int:
        """Accepted drafts that were emitted: EOS or the budget may cut some off."""
        return min(self.accepted, self.gained)

    @property
    def stop(self) -> int:
        """Slot behind all that the row holds or awaits in this round, before and after synchronising."""
        return 1 + max(self.pending + max(self.drafted, self.gained), self.pending_after)

    def end(self, moved: bool) -> int:
        """Slot behind the tokens that the row had when the round began; moved: as they lie once the rows have been synchronised."""
        return 1 + self.pending + (self.start_after - self.start if moved else 0)


@dataclass(frozen=True)
class Cell:
    """One drawn cell. lane: 0 for the row's tokens, 1 for KV that does not count. token and position: None where there is none."""

    row: int
    slot: int
    lane: int
    kind: Kind
    token: int | None = None
    index: int | None = None
    position: int | None = None


@dataclass(frozen=True)
class Window:
    """Which slots are drawn: `slots` of them, from firsts[row] on. shared: the same ones for all rows."""

    firsts: tuple[int, ...]
    slots: int
    shared: bool


def batch_rows(trace: Trace, round: int) -> list[Row]:
    """The rows of the batch in a round. Raises ValueError when there is no such round, or no trace."""
    check_recorded(trace, "trace")
    if not 0 <= round < trace.num_rounds:
        raise ValueError(f"there is no round {round}: rounds run from 0 to {trace.num_rounds - 1}")
    entries = np.flatnonzero(trace.rows["round"] == round)
    names = tuple(field.name for field in fields(Row))
    columns = [trace.rows[name][entries].tolist() for name in names]
    return [Row(**dict(zip(names, values, strict=True))) for values in zip(*columns, strict=True)]


def choose_window(
    rows: list[Row], slots: int, most: int | None = None, *, moved: bool = False
) -> Window:
    """The last slots of the cache, as many more than `slots` as every row's drafts need to lie among them; where that takes more than
    `most`, by default `slots`, each row's own last slots.

    moved: whether the rows have been synchronised.
    """
    last = max(row.stop for row in rows)
    needed = last - min(min(row.end(False), row.end(True)) for row in rows) + 1
    if needed <= max(slots, most or 0):
        slots = max(slots, needed)
        return Window((max(last - slots, 0),) * len(rows), slots, shared=True)
    begins = [row.end(moved) for row in rows]
    drafts = max(max(row.drafted, row.gained) for row in rows)
    return Window(tuple(begin + drafts - slots for begin in begins), slots, shared=False)


def frame_cells(
    trace: Trace, round: int, phase: str, rows: list[Row], window: Window
) -> list[Cell]:
    """The cells of the window after `phase` of `round`. Raises ValueError when there is no such phase."""
    drafts = _draft_cells(trace, round)
    reader = _Reader(
        trace,
        Replay(trace).frame(round, phase),
        drafts,
        judged=PHASES.index(phase) >= PHASES.index("accept"),
    )
    ahead = drafts if phase == "draft" else {}
    cells: list[Cell] = []
    for number, row in enumerate(rows):
        first, stop = window.firsts[number], window.firsts[number] + window.slots
        for slot in range(max(first, 0), min(stop, reader.frame.target.state.shape[1])):
            found = reader.cells(number, slot, row)
            if (number, slot) in ahead:
                found = [
                    Cell(number, slot, 0, "drafted", *ahead[number, slot]),
                    *(cell for cell in found if cell.lane == 1),
                ]
            cells += found
    return cells


def _draft_cells(trace: Trace, round: int) -> dict[tuple[int, int], tuple[int, int, int]]:
    """(row number, slot) -> token, index, position of the drafts that this round's verify forward writes."""
    feeds, rows = trace.feeds, trace.rows
    entries = np.flatnonzero(rows["round"] == round)
    numbers = {int(row): number for number, row in enumerate(rows["row"][entries])}
    lengths = rows["length"][entries]
    coming = (
        (feeds["round"] == round)
        & (feeds["phase"] == PHASES.index("verify"))
        & (feeds["model"] == 0)
    )
    columns = [
        feeds[name][coming].tolist() for name in ("row", "slot", "token", "index", "position")
    ]
    found = {
        (numbers[row], slot): values
        for row, slot, *values in zip(*columns, strict=True)
        if row in numbers
    }
    return {
        key: (values[0], values[1], values[2])
        for key, values in found.items()
        if values[1] >= lengths[key[0]]
    }


@dataclass(frozen=True)
class _Reader:
    """Turns slots of a frame into cells.

    drafts: (row number, slot) -> token, index, position, where the round's drafts are written; judged: whether they were by then.
    """

    trace: Trace
    frame: Frame
    drafts: dict[tuple[int, int], tuple[int, int, int]]
    judged: bool

    def cells(self, number: int, slot: int, row: Row) -> list[Cell]:
        """The cell of one slot, or two where KV that does not count lies under the pending token."""
        held = self.frame.target
        state, request = int(held.state[number, slot]), int(held.request[number, slot])
        token, index, position = (
            int(getattr(held, name)[number, slot]) for name in ("token", "index", "position")
        )
        leftover = Cell(
            number, slot, 1, self._leftover_kind(number, slot, row), token, index, position
        )
        if state == PENDING:
            return [
                self._pending(number, slot, row),
                *([leftover] if request == row.request else []),
            ]
        if state == STALE:
            return [leftover]
        if state in (PADDING, EMPTY):
            return [Cell(number, slot, 0, "padding" if state == PADDING else "empty")]
        return [Cell(number, slot, 0, self._kind(state, index, row), token, index, position)]

    def _kind(self, state: int, index: int, row: Row) -> Kind:
        if self.judged and index >= row.length and state in (ACCEPTED, BONUS):
            return "accepted_now" if state == ACCEPTED else "bonus_now"
        return _KINDS[state]

    def _leftover_kind(self, number: int, slot: int, row: Row) -> Kind:
        """Of KV that does not count: a draft that this round did not keep, or what was left earlier or by another row."""
        token, index, _ = self.drafts.get((number, slot), (-1, -1, -1))
        held = self.frame.target
        here = (held.token[number, slot], held.index[number, slot]) == (token, index)
        draft = index - row.length
        if not (self.judged and here and row.accepted <= draft < row.drafted):
            return "stale"
        if draft < row.accepted + row.discarded:
            return "discarded_now"
        return "rejected_now" if draft == row.accepted < row.gained else "unreached_now"

    def _pending(self, number: int, slot: int, row: Row) -> Cell:
        """The last committed token, whose KV does not exist yet: this round's bonus once the round was judged."""
        index = int(self.frame.lengths[number]) - 1
        token = (self.trace.prompt(row.request) + self.trace.output(row.request))[index]
        kind: Kind = "bonus_now" if self.judged and row.gained > row.kept else "pending"
        return Cell(number, slot, 0, kind, token, index, index)
