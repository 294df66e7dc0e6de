"""The lane of tokens: the target's cache with the pending and drafted tokens, and their fates.

A draft that the target does not verify stands there only in the phase that drafted it.

Contract: reads a Trace; frames go in, in the order of the record, and cells (5, B, T) come out (see
`lanes`). Not known here: JSON.
"""

import numpy as np

from specviz.record.index import Committed
from specviz.record.replay import Frame
from specviz.record.schema import PHASES, Array, missing_in
from specviz.record.trace import Trace
from specviz.record.trees import depths
from specviz.views.stepper.columns import pending_positions, verified
from specviz.views.stepper.lanes import KINDS, cache_cells, is_pending, mark_fates, put_tokens
from specviz.views.stepper.treefates import tree_fates
from specviz.views.stepper.untold import proposed, put_committed, put_drafts

_DRAFT = PHASES.index("draft")
_ACCEPT = PHASES.index("accept")


class TokenCells:
    """The cells of tokens of all rounds of a record."""

    def __init__(self, trace: Trace, texts: Committed) -> None:
        self._trace = trace
        self._texts = texts
        self._positions = pending_positions(trace)
        lacking = missing_in(trace.meta)
        self._has_positions = not lacking & {"feeds.target", "positions.target"}
        self._has_feeds = "feeds.target" not in lacking
        self._drafts = _drafts(trace) if self._has_feeds else proposed(trace)
        self._unverified = _unverified(trace)

    def after(self, frame: Frame) -> Array:
        """Return the cells (5, B, T) of all rows after the frame's phase."""
        phase = PHASES.index(frame.phase)
        entries = self._trace.index.rows_of(frame.round)
        cells = cache_cells(frame.target)
        if not self._has_feeds:
            put_committed(cells, frame, self._texts)
        rows = np.flatnonzero(is_pending(cells, frame.pending))
        request = frame.requests[rows]
        index = frame.lengths[rows] - 1
        position = self._positions[phase >= _ACCEPT][entries][rows]
        if not self._has_positions:
            position = np.full_like(position, -1)
        token = self._texts.tokens[self._texts.first[request] + index]
        pending = np.stack([index, position, request, token])
        slots = self._resumed(frame, entries) if phase == _ACCEPT else frame.pending
        slots = slots[rows]
        cells = _widened(cells, slots)
        # The draft that was rejected for the token keeps its slot where the token has another.
        cells[0, rows, frame.pending[rows]] = KINDS.index("stale")
        put_tokens(cells, rows, slots, "pending", pending)

        drafts = self._drafts[frame.round]
        # Before the forward the cache may not reach as far yet.
        drafts = drafts[:, drafts[1] < cells.shape[2]]
        if phase >= _DRAFT and not self._has_feeds:
            put_drafts(cells, frame, drafts)
        elif phase == _DRAFT:
            row, slot, index, position, token, *_ = drafts
            drafted = np.stack([index, position, frame.requests[row], token])
            put_tokens(cells, row, slot, "drafted", drafted)
        if phase == _DRAFT:
            self._put_unverified(cells, frame)
        if phase >= _ACCEPT:
            table = {name: column[entries] for name, column in self._trace.rows.items()}
            mark_fates(cells, table, frame.requests, drafts)
        return cells

    def _resumed(self, frame: Frame, entries: slice) -> Array:
        """Return by row the slot in which its last token will be read, after an acceptance.

        Where no K/V moves, that is the slot of the next round.
        """
        rows = self._trace.rows
        rests = rows["start_after"][entries] == rows["start"][entries]
        rests &= rows["finished"][entries] == 0
        resumed: Array = np.where(rests, rows["pending_after"][entries], frame.pending)
        return resumed

    def _put_unverified(self, cells: Array, frame: Frame) -> None:
        drafts = self._unverified[frame.round]
        row, slot, index, token = drafts[:, drafts[1] < cells.shape[2]]
        if row.size == 0:
            return
        # The target never reads it, so it has no position id.
        position = np.full(row.size, -1)
        put_tokens(
            cells,
            row,
            slot,
            "unverified",
            np.stack([index, position, frame.requests[row], token]),
        )


def _widened(cells: Array, slots: Array) -> Array:
    """Return cells (5, B, T) with empty ones behind them, so that all of `slots` exist.

    The cache itself may grow only once its rows are synchronised.
    """
    more = int(slots.max(initial=-1)) + 1 - cells.shape[2]
    if more <= 0:
        return cells
    empty = np.full((*cells.shape[:2], more), -1, cells.dtype)
    empty[0] = KINDS.index("empty")
    return np.concatenate([cells, empty], axis=2)


def _drafts(trace: Trace) -> list[Array]:
    """Return by round the drafts that the target's verification reads.

    Each round has (7, n): row number, slot, index, position and token of a draft, its number, and
    where its row's drafts branch its fate, else -1.
    """
    feeds = trace.feeds
    fed, entries = verified(trace)
    is_draft = feeds["index"][fed] >= trace.rows["length"][entries]
    fed = fed[is_draft]
    entries = entries[is_draft]
    order = np.argsort(feeds["round"][fed], kind="stable")
    fed = fed[order]
    rounds = feeds["round"][fed]
    columns = [feeds[name][fed] for name in ("slot", "index", "position", "token")]
    number = feeds["node"][fed] - 1
    fates = np.full(trace.rows["drafts"].shape, -1)
    branching, of_drafts, _ = tree_fates(trace, judge=False)
    fates[branching] = of_drafts
    rows = entries[order]
    drafts = np.stack(
        [rows - trace.index.row_bounds[rounds], *columns, number, fates[rows, number]]
    )
    return np.split(drafts, np.searchsorted(rounds, np.arange(1, trace.num_rounds)), axis=1)


def _unverified(trace: Trace) -> list[Array]:
    """Return by round the drafts that the target does not read.

    Each round has (4, n): row number, the slot that follows on the row's earlier drafts, index and
    token.
    """
    rows = trace.rows
    number = np.arange(rows["drafts"].shape[1])
    left_out = (number >= rows["verified"][:, None]) & (number < rows["drafted"][:, None])
    left_out &= rows["gained"][:, None] > 0  # of other rows nothing is judged
    entries, number = left_out.nonzero()
    rounds = rows["round"][entries]
    drafts = np.stack(
        [
            entries - trace.index.row_bounds[rounds],
            rows["pending"][entries] + 1 + number,
            rows["length"][entries] + depths(rows["parents"])[entries, number] - 1,
            rows["drafts"][entries, number],
        ]
    )
    return np.split(drafts, np.searchsorted(rounds, np.arange(1, trace.num_rounds)), axis=1)
