"""What each cache slot holds, and where each token should lie: two accounts of one record, kept while it is walked through.

Contract: the first account follows the K/V: which request's token a cell holds, through every write and move. The second follows the
layout: index i of a row should lie where it was fed, shifted as the row's start shifts. They agree in a run whose moves are right;
`settle` compares them after each round and notes what went astray. Not known here: masks, and whether anybody reads what is wrong.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from specviz.record.schema import MODELS, Array
from specviz.record.trace import Trace

# The columns of a cell: request and index of its token; whether all tokens that its K/V was computed from still stand in the row (0 if a
# rejected draft was among them); and 0, or 1 + the stage of the faulty forward that the K/V stems from.
REQUEST, INDEX, ALIVE, TAINT = range(4)
_MOVE = ("model", "from_row", "from_slot", "to_row", "to_slot", "length")


@dataclass(frozen=True)
class Holding:
    """Where K/V of a row's committed tokens should lie after a round: that of indices[j] in slots[j]; the pending one left out, and those
    that were never computed.
    """

    round: int
    model: int
    row: int
    request: int
    indices: Array
    slots: Array


@dataclass(frozen=True, eq=False)
class Suspicion:
    """Tokens of a row that do not lie where they should since `stage`. Whether it matters shows when a forward looks for them."""

    stage: int
    row: int
    indices: Array
    slots: Array
    found: str


@dataclass(frozen=True)
class Batch:
    """The rows of a round after a phase: their numbers in the slabs, requests, starts and lengths, each (b,)."""

    rows: Array
    requests: Array
    starts: Array
    lengths: Array


class Ledger:
    """Both accounts.

    Attributes:
        cells: (4, models, rows, slots) int32, see REQUEST to TAINT; -1, -1, 0, 0 where nothing was ever written.
        offset: (models, R, n) int32, slot of a request's index less the start of its row, when it was last fed.
        computed: (models, R, n) bool, whether its K/V was ever computed from the tokens that now stand in the row.
        astray: (models, R, n) bool, whether it is known not to lie where it should.
        told: (models, R, n) bool, whether that has been told.
        suspicions: by model and request.
    """

    def __init__(self, trace: Trace) -> None:
        rows, slots = trace.index.cache_shape
        self.cells = np.full((4, len(MODELS), rows, slots), -1, np.int32)
        self.cells[[ALIVE, TAINT]] = 0
        lengths = trace.index.committed.size
        shape = (
            len(MODELS),
            trace.num_requests,
            int(max(lengths.max(initial=0), trace.feeds["index"].max(initial=0) + 1)),
        )
        self.offset, self.computed, self.astray, self.told = (
            np.zeros(shape, dtype) for dtype in (np.int32, bool, bool, bool)
        )
        self.suspicions: dict[tuple[int, int], list[Suspicion]] = defaultdict(list)
        self._moves = np.stack([trace.moves[name] for name in _MOVE], axis=1)

    def move(self, which: Array) -> None:
        """Apply these entries of the table `moves` at once."""
        blocks = self._moves[which].tolist()
        taken = [
            self.cells[:, model, row, slot : slot + length].copy()
            for model, row, slot, _, _, length in blocks
        ]
        for (model, _, _, row, slot, length), block in zip(blocks, taken, strict=True):
            self.cells[:, model, row, slot : slot + length] = block

    def write(
        self, model: int, rows: Array, slots: Array, requests: Array, indices: Array, starts: Array
    ) -> None:
        """One forward has fed these tokens, all arrays (q,)."""
        for column, values in ((REQUEST, requests), (INDEX, indices), (ALIVE, 1), (TAINT, 0)):
            self.cells[column, model, rows, slots] = values
        self.offset[model, requests, indices] = slots - starts
        self.computed[model, requests, indices] = True
        self.astray[model, requests, indices] = self.told[model, requests, indices] = False

    def reject(self, batch: Batch, kept: Array) -> None:
        """Of each row's K/V, that of indices from kept (b,) on was computed from tokens that are not in the row."""
        cells = self.cells[:, :, batch.rows]  # (4, models, b, slots)
        dead = (cells[REQUEST] == batch.requests[:, None]) & (cells[INDEX] >= kept[:, None])
        self.cells[ALIVE, :, batch.rows] &= ~dead.swapaxes(0, 1)
        self.computed[:, batch.requests] &= np.arange(self.computed.shape[2]) < kept[:, None]

    def places(self, model: int, batch: Batch, count: int) -> tuple[Array, Array, Array]:
        """For the first `count` indices of each row, (b, count): whether K/V was computed, its slot, whether the slot holds it."""
        known = self.computed[model, batch.requests, :count]
        slots = batch.starts[:, None] + self.offset[model, batch.requests, :count]
        inside = known & (slots >= 0) & (slots < self.cells.shape[3])
        cells = self.cells[:TAINT, model, batch.rows[:, None], np.where(inside, slots, 0)]
        right = (
            (cells[REQUEST] == batch.requests[:, None])
            & (cells[INDEX] == np.arange(count))
            & (cells[ALIVE] == 1)
        )
        return known, slots, inside & right

    def settle(self, stage: int, batch: Batch) -> list[tuple[Array, Array]]:
        """Compare both accounts. Returns for each model which indices the rows should hold, and the slots of all, both (b, count)."""
        count, held = int(batch.lengths.max(initial=1)) - 1, []
        for model in range(len(MODELS)):
            known, slots, right = self.places(model, batch, count)
            known &= (
                np.arange(count) < batch.lengths[:, None] - 1
            )  # of the pending token none is needed
            lost, before = known & ~right, self.astray[model, batch.requests, :count]
            self.astray[model, batch.requests, :count] = np.where(known, lost, before)
            for k in np.flatnonzero((lost & ~before).any(1)):
                self._suspect(
                    stage, model, batch, int(k), np.flatnonzero(lost[k] & ~before[k]), slots[k]
                )
            held.append((known, slots))
        return held

    def _suspect(
        self, stage: int, model: int, batch: Batch, k: int, indices: Array, slots: Array
    ) -> None:
        row, request, slot = int(batch.rows[k]), int(batch.requests[k]), int(slots[indices[0]])
        known = [
            known
            for known in self.suspicions[model, request]
            if self.astray[model, request, known.indices].any()
        ]
        found = f"{self.content(model, row, request, slot)} there"
        self.suspicions[model, request] = [
            *known,
            Suspicion(stage, row, indices, slots[indices], found),
        ]

    def confirm(self, model: int, request: int, lost: Array) -> list[Suspicion]:
        """The suspicions that were right, now that the indices `lost` are missed; they are suspicions no longer."""
        confirmed = [
            each for each in self.suspicions[model, request] if np.isin(each.indices, lost).any()
        ]
        self.suspicions[model, request] = [
            each for each in self.suspicions[model, request] if each not in confirmed
        ]
        return confirmed

    def content(self, model: int, row: int, request: int, slot: int) -> str:
        """What a slot holds, in words, from the point of view of `request`."""
        if not 0 <= slot < self.cells.shape[3]:
            return "no slot"
        owner, index, alive, _ = self.cells[:, model, row, slot].tolist()
        if owner < 0:
            return "nothing"
        if owner != request:
            return f"index {index} of request {owner}"
        return f"index {index}" if alive else f"a rejected draft's index {index}"
