"""What each cache slot holds, and where each token should be: two accounts of one record.

Contract: both are kept while a record is walked through. The first account follows the K/V: which
request's token a cell holds, through every write and move. The second follows the layout: index i
of a row should be where it was fed, shifted as the row's start shifts. They agree in a run whose
moves are right. `compare_accounts` compares them after each round and notes what was misplaced. Not
known here: masks, and whether a forward reads what is wrong.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from specviz.record.replay import Cells
from specviz.record.schema import MODELS, Array
from specviz.record.trace import Trace

# What is kept of a cell: request and index of its token; ALIVE, 0 if a rejected draft was among the
# tokens that its K/V was computed from, so that they no longer stand in the row, 1 if they do, and
# RIGHT if its own token is the row's as well; TAINT, 0 or 1 + the stage of the faulty forward that
# its K/V comes from; and NODE, the column of a draft in the running round's tree, 0 for any other
# token.
_PLANES = ("request", "index", "alive", "taint", "node")
REQUEST, INDEX, ALIVE, TAINT, NODE, WRITTEN = range(len(_PLANES) + 1)
RIGHT = 2


@dataclass(frozen=True)
class ExpectedKV:
    """Where K/V of a row's committed tokens should be after a round.

    The K/V of indices[j] should be in slots[j] of the model's cache. The pending token and tokens
    whose K/V was never computed are left out. `model` is a place in MODELS.
    """

    round: int
    model: int
    row: int
    request: int
    indices: Array
    slots: Array


@dataclass(frozen=True, eq=False)
class Misplacement:
    """Tokens of a row that are not in the slots where they should be since `stage`.

    It matters only if a later forward looks for them. `found` says what the first slot holds.
    """

    stage: int
    row: int
    indices: Array
    slots: Array
    found: str


@dataclass(frozen=True)
class BatchRows:
    """The rows of a round after a phase: cache rows, requests, starts and lengths, each (b,)."""

    rows: Array
    requests: Array
    starts: Array
    lengths: Array


@dataclass(frozen=True, eq=False)
class TreeNodes:
    """The columns of a row's tree after an acceptance, column 0 being the pending token.

    Attributes:
        is_kept: bool (K+1,), whether its branch now stands in the row.
        depths: (K+1,), how many tokens each is behind the pending one.
        offsets: (K+1,), where its K/V should be from now on, counted from the row's start.
    """

    is_kept: Array
    depths: Array
    offsets: Array


class Ledger:
    """Both accounts. R requests of up to n tokens.

    Attributes:
        cells: int32 (6, models, rows, slots), see REQUEST to NODE; -1, -1, 0, 0, 0 in cells that
            were never written. WRITTEN is the plane "written" of `Cells`.
        offset: int32 (models, R, n), slot of a request's index less the start of its row, when it
            was last fed.
        computed: bool (models, R, n), whether its K/V was ever computed from the tokens that now
            stand in the row.
        misplaced: bool (models, R, n), whether it is known not to be where it should be.
        reported: bool (models, R, n), whether that has been reported.
        misplacements: those that were not reported so far, by model and request.
        provisional: whether what a draft model computed of drafts is no longer right once they are
            accepted.
        provisional_pending: whether what it computed of the pending token is not right, either.
        left_behind: (model, request, misplacement) of those that came with a move into the row.
    """

    def __init__(self, trace: Trace) -> None:
        self._cells = Cells(_PLANES, trace.moves, trace.index.cache_shape)
        self.cells = self._cells.planes
        self.cells[[ALIVE, TAINT, NODE]] = 0
        longest = trace.index.committed.size.max(initial=0)
        fed = trace.feeds["index"].max(initial=0) + 1  # drafts lie behind the output
        shape = (len(MODELS), trace.num_requests, int(max(longest, fed)))
        self.offset = np.zeros(shape, np.int32)
        self.computed = np.zeros(shape, bool)
        self.misplaced = np.zeros(shape, bool)
        self.reported = np.zeros(shape, bool)
        self.misplacements: dict[tuple[int, int], list[Misplacement]] = defaultdict(list)
        self._moves = trace.moves
        # Number of the last move into each row, and how many there were at a request's last
        # comparison.
        self._moved = np.zeros(self.cells.shape[1:3], np.int64)
        self._compared = np.zeros(shape[:2], np.int64)
        self._count = 0
        self.provisional = trace.meta.get("draft_kv", "kept") != "kept"
        self.provisional_pending = trace.meta.get("draft_kv") == "masks"
        self.left_behind: list[tuple[int, int, Misplacement]] = []

    def move(self, which: Array) -> None:
        """Apply these entries of the table `moves` at once."""
        if which.size:
            self._cells.move(which)
            self._count += 1
            self._moved[self._moves["model"][which], self._moves["to_row"][which]] = self._count

    def write(
        self,
        model: int,
        rows: Array,
        slots: Array,
        requests: Array,
        indices: Array,
        starts: Array,
        nodes: Array,
        are_right: Array,
    ) -> None:
        """Note that one forward has fed these tokens; all arrays (q,).

        nodes: the column of each in its row's tree, 0 for tokens outside a tree. are_right: whether
        it is the row's own token.
        """
        # A write replaces all that the slot held, and thus ends an earlier fault there.
        alive = np.where(are_right, RIGHT, 1)
        self._cells.write(
            model, rows, slots, request=requests, index=indices, alive=alive, taint=0, node=nodes
        )
        if nodes.any():
            # Drafts of a tree share indices. Which of them counts is known once one is accepted.
            plain = nodes == 0
            slots, starts = slots[plain], starts[plain]
            requests, indices = requests[plain], indices[plain]
        self.offset[model, requests, indices] = slots - starts
        self.computed[model, requests, indices] = True
        self.misplaced[model, requests, indices] = False
        self.reported[model, requests, indices] = False

    def reject(self, batch: BatchRows, kept: Array, model: int | None = None) -> None:
        """Mark each row's K/V at an index >= kept (b,) as computed from rejected tokens.

        model: whose K/V; None for all models.
        """
        models = range(len(MODELS)) if model is None else [model]
        for each in models:
            # The cells are kept: what a slot holds is needed to say what went wrong.
            owner, index = self.cells[[REQUEST, INDEX], each][:, batch.rows]  # (b, slots)
            dead = (owner == batch.requests[:, None]) & (index >= kept[:, None])
            self.cells[ALIVE, each, batch.rows] *= ~dead
            before = np.arange(self.computed.shape[2]) < kept[:, None]
            self.computed[each, batch.requests] &= before

    def settle(self, row: int, request: int, length: int, nodes: TreeNodes) -> None:
        """Mark a row's K/V of the rejected drafts of a tree, and note where the others should be.

        Args:
            row: of the cache.
            length: n before the round.
        """
        cells = self.cells[:, :, row]  # (6, models, slots), a view
        last = nodes.is_kept.size - 1
        # A draft that was not proposed in the end is behind the others. It is never accepted.
        node = np.where(cells[NODE] > last, 0, cells[NODE])
        of_tree = (cells[REQUEST] == request) & (cells[NODE] > 0)
        is_kept = of_tree & nodes.is_kept[node] & (node > 0)
        cells[ALIVE][of_tree & ~is_kept] = 0
        cells[NODE][of_tree] = 0

        model, slot = np.nonzero(is_kept)
        column = node[model, slot]
        index = length - 1 + nodes.depths[column]
        # Only the accepted branch stands in the row now; its indices are set again below.
        self.computed[:, request, length:] = False
        self.computed[model, request, index] = True
        self.offset[model, request, index] = nodes.offsets[column]
        self.misplaced[model, request, index] = False
        self.reported[model, request, index] = False

    def find_node(self, model: int, row: int, request: int, node: int) -> int:
        """Return the slot that holds a draft of the running round's tree, -1 for none."""
        cells = self.cells[:, model, row]
        found = np.flatnonzero(
            (cells[REQUEST] == request) & (cells[NODE] == node) & (cells[ALIVE] > 0)
        )
        return int(found[0]) if found.size else -1

    def places(self, model: int, batch: BatchRows, count: int) -> tuple[Array, Array, Array]:
        """Return where the first `count` indices of each row should be, three arrays (b, count).

        They say whether its K/V was computed, its slot, and whether the slot holds it.
        """
        known = self.computed[model, batch.requests, :count]
        slots = batch.starts[:, None] + self.offset[model, batch.requests, :count]
        # A start that is wrong may point outside of the cache. That is a finding, not an error.
        inside = known & (slots >= 0) & (slots < self.cells.shape[3])
        # Looked up by flat places, which takes a third of the time.
        at = batch.rows[:, None] * self.cells.shape[3] + np.where(inside, slots, 0)
        request, index, alive = (
            self.cells[plane, model].ravel().take(at) for plane in (REQUEST, INDEX, ALIVE)
        )
        right = (request == batch.requests[:, None]) & (index == np.arange(count)) & (alive > 0)
        return known, slots, inside & right

    def compare_accounts(self, stage: int, batch: BatchRows) -> list[tuple[Array, Array]]:
        """Compare both accounts, and note what was misplaced since the last comparison.

        Returns for each model which indices the rows should hold, and the slot of each, (b, count).
        """
        count = int(batch.lengths.max(initial=1))  # with the pending token
        pending = batch.lengths - 1
        is_needed = np.arange(count) < pending[:, None]
        expected = []
        for model in range(len(MODELS)):
            known, slots, right = self.places(model, batch, count)
            # A move leaves K/V of the pending token behind. The model reads that token again, a
            # draft model perhaps some rounds later.
            is_there = right[np.arange(pending.size), pending]
            self.computed[model, batch.requests, pending] &= is_there
            known &= is_needed
            lost = known & ~right
            # Only what is newly lost is noted, so that a misplacement keeps its first stage.
            before = self.misplaced[model, batch.requests, :count]
            self.misplaced[model, batch.requests, :count] = np.where(known, lost, before)
            newly_lost = lost & ~before
            for k in np.flatnonzero(newly_lost.any(1)):
                indices = np.flatnonzero(newly_lost[k])
                self._note_misplacement(stage, model, batch, int(k), indices, slots[k])
            self._compared[model, batch.requests] = self._count
            expected.append((known, slots))
        return expected

    def _note_misplacement(
        self, stage: int, model: int, batch: BatchRows, k: int, indices: Array, slots: Array
    ) -> None:
        row = int(batch.rows[k])
        request = int(batch.requests[k])
        still_misplaced = [
            each
            for each in self.misplacements[model, request]
            if self.misplaced[model, request, each.indices].any()
        ]
        found = self.content(model, row, request, int(slots[indices[0]]))
        new = Misplacement(stage, row, indices, slots[indices], found)
        self.misplacements[model, request] = [*still_misplaced, new]
        # Without a move into the row, the K/V was overwritten rather than left behind.
        if self._moved[model, row] > self._compared[model, request]:
            self.left_behind.append((model, request, new))

    def take_misplacements(self, model: int, request: int, missed: Array) -> list[Misplacement]:
        """Remove and return the misplacements of a request that have `missed` indices."""
        taken: list[Misplacement] = []
        others: list[Misplacement] = []
        for each in self.misplacements[model, request]:
            (taken if np.isin(each.indices, missed).any() else others).append(each)
        self.misplacements[model, request] = others
        return taken

    def content(self, model: int, row: int, request: int, slot: int) -> str:
        """Say what a slot holds, as seen from `request`."""
        if not 0 <= slot < self.cells.shape[3]:
            return "nothing, because the cache has no such slot"
        owner, index, alive, _, node, _ = self.cells[:, model, row, slot].tolist()
        if owner < 0:
            return "nothing"
        if owner != request:
            return f"index {index} of request {owner}"
        if alive and node:
            return f"draft {node}"
        if alive:
            return f"index {index}"
        if self.provisional and MODELS[model] == "draft":
            return f"index {index} as it was guessed while it was a draft"
        return f"index {index} of a rejected draft"
