"""The rows of every simulated device, laid out in places as in the engine's slabs.

Rows of the batch come first, so that the moves of K/V are those that a run records. Not known
here: time, costs, queues.
"""

from __future__ import annotations

import numpy as np

from specviz.record.schema import Array

REQUEST, LENGTH, LEFT, POINTER, START, ARRIVAL, SERVED = range(7)
UNPLACED = -1  # start of a row whose K/V has no place yet


class Slabs:
    """Rows of L devices in P places each.

    Attributes:
        rows: (7, L, P) int64, the row in each place: its request, n, tokens left, next index into
            the acceptances, start column, order of arrival, and order of service.
        count: (L,), the first places, which hold live rows.
        working: (L,), those of them with tokens left.
        columns: of a slab.
    """

    def __init__(self, devices: int, places: int, columns: int) -> None:
        self.rows = np.zeros((7, devices, places), np.int64)
        self.count = np.zeros(devices, np.int64)
        self.working = np.zeros(devices, np.int64)
        self.columns = columns
        self._device = np.arange(devices)
        self._place = np.arange(places)

    @property
    def places(self) -> int:
        """P: places, one for each row that fits on a device."""
        return len(self._place)

    def free(self, devices: Array) -> Array:
        """Return whether each place of `devices` is empty, or its row has finished (D, P)."""
        return (self._place >= self.count[devices, None]) | (self.rows[LEFT, devices] == 0)

    def close_gaps(self, devices: Array) -> Array:
        """Remove the finished rows of `devices`; their last live rows take the free places.

        Returns the slots that moved (L,).
        """
        if not len(devices):
            return np.zeros_like(self.count)
        live = (self._place < self.count[devices, None]) & (self.rows[LEFT, devices] > 0)
        self.count[devices] = self.working[devices]
        inside = self._place < self.count[devices, None]
        # As many places are free inside as live rows lie outside: both lists pair up.
        index, to = (inside & ~live).nonzero()
        _, place = (live & ~inside).nonzero()
        device = devices[index]
        self.rows[:, device, to] = self.rows[:, device, place]
        return self._sum_by_device(device, self.rows[LENGTH, device, to] - 1)

    def bring_to_front(self, batch: Array, device: Array, place: Array) -> Array:
        """Let the chosen rows take the first places; those that were there take theirs.

        Args:
            batch: (L,), rows of each batch.
            device, place: of each chosen row.

        Returns the slots that moved (L,).
        """
        if (place < batch[device]).all():
            return np.zeros_like(self.count)
        chosen = np.zeros(self.rows.shape[1:], bool)
        chosen[device, place] = True
        front = self._place < batch[:, None]
        # As many rows leave the front as enter it, in the same order of devices, so both lists
        # pair up.
        device, out = (front & ~chosen).nonzero()
        _, into = (chosen & ~front).nonzero()
        leaving = self.rows[:, device, out]
        entering = self.rows[:, device, into]
        self.rows[:, device, out] = entering
        self.rows[:, device, into] = leaving
        return self._sum_by_device(device, leaving[LENGTH] + entering[LENGTH] - 2)

    def align_to_common_end(self, batch: Array, in_batch: Array) -> Array:
        """Let the rows of each batch end in one column; return the slots that moved (L,).

        It is the column where half of the batch or more already ends, or else the leftmost that
        its longest row allows. batch: (L,), rows of each; in_batch: see `in_batch`.
        """
        ends = self.ends(in_batch)
        # Rows of the batch that end where this one does, by comparing all pairs, (L, b, b).
        same = (ends[:, :, None] == ends[:, None, :]).sum(2) * in_batch
        most_common = same.argmax(1)
        end = ends[self._device, most_common]
        rows_there = same[self._device, most_common]
        longest = self._longest(in_batch)
        keeps = (2 * rows_there >= batch) & (longest <= end) & (end <= self.columns)
        return self._move(in_batch, np.where(keeps, end, longest))

    def align_to_longest(self, in_batch: Array, skip_finished: bool = True) -> Array:
        """Let the rows of each batch end in the column of the longest; return the slots moved (L,).

        Finished rows that are about to leave stay where they are.
        """
        if skip_finished:
            in_batch = in_batch & (self.rows[LEFT, :, : in_batch.shape[1]] > 0)
        return self._move(in_batch, self._longest(in_batch))

    def in_batch(self, batch: Array) -> Array:
        """Return whether the batch of a device reaches to a place (L, b); b is the largest one."""
        return self._place[: batch.max()] < batch[:, None]

    def ends(self, in_batch: Array) -> Array:
        """Return the column after each row of the batch (L, b), -1 where there is none."""
        width = in_batch.shape[1]
        end = self.rows[START, :, :width] + self.rows[LENGTH, :, :width]
        return np.where(in_batch, end, -1)

    def _longest(self, in_batch: Array) -> Array:
        """Return n of the longest row of each batch (L,)."""
        lengths = self.rows[LENGTH, :, : in_batch.shape[1]] * in_batch
        return lengths.max(1, initial=0)

    def _move(self, moving: Array, end: Array) -> Array:
        """Let the rows `moving` (L, b) end in column `end` (L,); return the slots moved (L,)."""
        # All K/V of a row moves but that of its pending token, which does not exist yet.
        length = self.rows[LENGTH, :, : moving.shape[1]]
        start = self.rows[START, :, : moving.shape[1]]
        target = end[:, None] - length
        has_moved = moving & (start != target) & (start != UNPLACED)
        slots = np.where(has_moved, length - 1, 0).sum(1)
        start[...] = np.where(moving, target, start)
        return slots

    def _sum_by_device(self, device: Array, slots: Array) -> Array:
        return np.bincount(device, slots, len(self.count)).astype(np.int64)
