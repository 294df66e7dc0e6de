"""The table `holes` by feed: which slots inside of what a query sees were hidden from it.

Contract: feeds are numbers in the table `feeds`. Not known here: what the slots hold.
"""

import numpy as np

from specviz.record.schema import Array
from specviz.record.trace import Trace


class Holes:
    """The holes of all feeds of a record."""

    def __init__(self, trace: Trace) -> None:
        self._groups = trace.index.holes_by_feed
        order = self._groups.order
        start, stop = trace.holes["start"][order], trace.holes["stop"][order]
        self._ranges = np.stack([start, stop], axis=1)

    def number(self, feeds: Array) -> tuple[list[int], list[list[list[int]]]]:
        """Return the number of the list of holes of each of `feeds` (n,), and the lists.

        A hole is [start, stop]. List 0 is empty. Feeds with the same holes share a list.
        """
        first, stop = self._groups.bounds(feeds)
        ranges = self._ranges.tolist()
        numbers = [0] * feeds.size
        lists: list[list[list[int]]] = [[]]
        known: dict[bytes, int] = {}
        for at in np.flatnonzero(stop > first).tolist():
            own = slice(int(first[at]), int(stop[at]))
            number = known.setdefault(self._ranges[own].tobytes(), len(lists))
            if number == len(lists):
                lists.append(ranges[own])
            numbers[at] = number
        return numbers, lists

    def change(self, feeds: Array) -> Array:
        """Return whether the holes of each of `feeds` (n,) differ from those before it."""
        first, stop = self._groups.bounds(feeds)
        count = stop - first
        changes = np.zeros(feeds.size, bool)
        changes[1:] = count[1:] != count[:-1]
        # Of feeds with equally many holes, compare the first hole, then the second, and so on.
        for k in range(int(count[~changes].max(initial=0))):
            same = np.flatnonzero(~changes & (count > k))
            same = same[same > 0]
            differ = self._ranges[first[same] + k] != self._ranges[first[same - 1] + k]
            changes[same] = differ.any(1)
        return changes
