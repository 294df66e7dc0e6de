"""Where rows begin and end in the cache, as forwards and moves of a log say.

Contract: `LoggedLayout` walks through the events of the target's cache and answers for each entry
of the table `rows`. A row begins where the K/V of its index 0 lies. What was given with a round
counts instead. Not known here: whether any of it is right.
"""

import numpy as np

from specviz.record.log.events import Forward, Placed
from specviz.record.schema import PHASES, Array

_SYNCHRONISE = PHASES.index("synchronise")


class LoggedLayout:
    """Starts and pending slots of N entries of the table `rows`, in their order.

    Attributes:
        start, start_after, pending, pending_after: int64 (N,).
        slots: int64 (rounds,), how many columns each verification saw.
    """

    def __init__(
        self,
        rounds: int,
        rows: dict[str, Array],
        events: list[Placed],
        given: dict[str, Array],
    ) -> None:
        """Walk through the events of `rounds` rounds.

        Args:
            rows: the columns round, request, length and gained of the table.
            given: starts, starts_after, pending and pending_after, -1 where they were not given.
        """
        self._rows = rows
        self._first: dict[int, tuple[int, int]] = {}  # by request: row and slot of its index 0
        self._fed: dict[tuple[int, int, int], int] = {}  # slot by round, request and index
        self._seen: dict[
            tuple[int, int], int
        ] = {}  # by round and request: the first slot that it saw
        size = rows["round"].size
        self.start = np.full(size, -1, np.int64)
        self.start_after = self.start.copy()
        self.slots = np.zeros(rounds, np.int64)
        self._walk(rounds, events)
        self.start = np.where(given["starts"] >= 0, given["starts"], self.start)
        self.pending = given["pending"].copy()
        self._fill()
        after = given["starts_after"]
        self.start_after = np.where(after >= 0, after, self.start_after)
        self.start_after = np.where(self.start_after < 0, self.start, self.start_after)
        after = given["pending_after"]
        self.pending_after = np.where(after >= 0, after, self._pending_after())

    def _walk(self, rounds: int, events: list[Placed]) -> None:
        edges = np.searchsorted(self._rows["round"], np.arange(rounds + 1)).tolist()
        by_time: dict[tuple[int, bool], list[Placed]] = {}
        for each in events:
            is_late = PHASES.index(each.event.phase) == _SYNCHRONISE
            by_time.setdefault((each.round, is_late), []).append(each)
        for number in range(rounds):
            for is_late, starts in ((False, self.start), (True, self.start_after)):
                for each in by_time.get((number, is_late), []):
                    self._apply(each)
                for entry in range(edges[number], edges[number + 1]):
                    request = int(self._rows["request"][entry])
                    starts[entry] = self._first.get(request, (-1, -1))[1]

    def _apply(self, placed: Placed) -> None:
        event = placed.event
        if not isinstance(event, Forward):
            self._move(event.blocks)
            return
        if event.slot is None:
            return
        firsts = np.flatnonzero(event.index == 0)
        for k in firsts.tolist():
            self._first[int(event.request[k])] = int(event.row[k]), int(event.slot[k])
        if event.phase != "verify":
            return
        if event.sight is not None:
            stop = int(event.sight.stop.max(initial=0))
            self.slots[placed.round] = max(self.slots[placed.round], stop)
        for k in range(event.slot.size):
            request = int(event.request[k])
            self._fed[placed.round, request, int(event.index[k])] = int(event.slot[k])
            if event.sight is not None:
                self._seen.setdefault((placed.round, request), int(event.sight.start[k]))

    def _move(self, blocks: Array) -> None:
        moved = {}
        for from_row, from_slot, to_row, to_slot, length in blocks.tolist():
            for request, (row, slot) in self._first.items():
                if row == from_row and from_slot <= slot < from_slot + length:
                    moved[request] = to_row, slot - from_slot + to_slot
        self._first |= moved

    def _fill(self) -> None:
        """Fill in what is not known yet of starts and pending slots."""
        names = ("round", "request", "length")
        entries = zip(*(self._rows[name].tolist() for name in names), strict=True)
        for entry, (number, request, length) in enumerate(entries):
            fed = self._fed.get((number, request, length - 1), -1)
            if self.start[entry] < 0:
                # The target was never fed index 0, as with a prefix that was in the cache before.
                without = max(fed - length + 1, 0)
                self.start[entry] = self._seen.get((number, request), without)
            if self.pending[entry] < 0:
                self.pending[entry] = self.start[entry] + length - 1 if fed < 0 else fed

    def _pending_after(self) -> Array:
        """Return where each row's last token goes, as its next round says."""
        order = np.argsort(self._rows["request"], kind="stable")
        request = self._rows["request"][order]
        follows = np.flatnonzero(request[1:] == request[:-1])
        this, following = order[follows], order[follows + 1]
        found: Array = self.start_after + (self.pending - self.start) + self._rows["gained"]
        # Rows may move between the two rounds, and keep the distance.
        distance = self.pending[following] - self.start[following]
        found[this] = self.start_after[this] + distance
        return found
