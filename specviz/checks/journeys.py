"""What happens to a row between two of its rounds: whether it is moved, read again, or left alone.

Contract: reads the tables `rows`, `feeds` and `moves` of a record. Not known here: the rules.
"""

import numpy as np

from specviz.checks.rows import Rows
from specviz.record.schema import MODELS, PHASES, Array

_TARGET = MODELS.index("target")
_SCHEDULE, _ACCEPT, _SYNCHRONISE = (
    PHASES.index(name) for name in ("schedule", "accept", "synchronise")
)


class Journeys:
    """Of each entry of `rows`, (N,) bool.

    Attributes:
        is_still: its K/V is not moved in the round, and not computed again in its next one.
        is_left: it goes on in the same cache row, and until its next round ends scheduling its K/V
            is neither moved nor computed again.
        is_left_alone: the same, and no request enters meanwhile, which may push the common end of
            a batch further.
    """

    def __init__(self, rows: Rows) -> None:
        table = rows.trace.rows
        self._next = _next_entries(table["request"])
        has_next = self._next >= 0
        number = table["round"].astype(np.int64)
        then = np.where(has_next, number[self._next], number)
        row = table["row"].astype(np.int64)

        reads = _reads(rows)
        is_read = has_next & np.isin(_pairs(then, table["request"]), reads)
        # A request that is read twice: its last K/V may have been given up without a sign.
        is_never_read_again = np.unique(reads).size <= rows.trace.num_requests
        moves = _Moves(rows)
        begin, end = number * len(PHASES) + _SCHEDULE, number * len(PHASES) + _SYNCHRONISE
        goes_on = has_next | is_never_read_again
        self.is_still = goes_on & ~is_read & (moves.count(row, begin, end) == 0)

        later = then * len(PHASES) + _SCHEDULE
        same_row = has_next & (row[self._next] == row)
        self.is_left = same_row & ~is_read & (moves.count(row, end, later) == 0)
        entered = np.sort(number[_is_first(table["request"])])
        entering = np.searchsorted(entered, then, "right") - np.searchsorted(
            entered, number, "right"
        )
        self.is_left_alone = self.is_left & (entering == 0)

    def next_of(self, values: Array) -> Array:
        """Return `values` (N,) of the same request's next entry; the last entry keeps its own."""
        own = np.arange(values.size)
        following: Array = values[np.where(self._next >= 0, self._next, own)]
        return following


class _Moves:
    """The moves into rows of the target's cache, by row and stage."""

    def __init__(self, rows: Rows) -> None:
        moves = rows.trace.moves
        self._stages = rows.trace.num_rounds * len(PHASES)
        # The accepted drafts of a tree move within their row, which stays where it is.
        is_targets = (moves["model"] == _TARGET) & (moves["phase"] != _ACCEPT)
        stage = moves["round"].astype(np.int64) * len(PHASES) + moves["phase"]
        self._keys = np.sort((moves["to_row"] * np.int64(self._stages) + stage)[is_targets])

    def count(self, row: Array, after: Array, until: Array) -> Array:
        """Return how many moves into `row` (N,) come after a stage, up to another one; (N,)."""
        base = row * self._stages
        first = np.searchsorted(self._keys, base + after, "right")
        return np.searchsorted(self._keys, base + until, "right") - first


def read_again(rows: Rows, moves: dict[str, Array], entry: Array) -> Array:
    """Return for which moves (m,) the target is fed the row's index 0 in the same round.

    entry: (m,) the entry of `rows` of the row that they move to.
    """
    request = rows.trace.rows["request"][entry]
    found: Array = np.isin(_pairs(moves["round"], request), _reads(rows))
    return found


def _next_entries(request: Array) -> Array:
    """Return the next entry of the same request, (N,), -1 for its last one."""
    order = np.argsort(request, kind="stable")
    follows = np.flatnonzero(np.diff(request[order]) == 0)
    found = np.full(request.size, -1)
    found[order[follows]] = order[follows + 1]
    return found


def _is_first(request: Array) -> Array:
    found = np.zeros(request.size, bool)
    found[np.unique(request, return_index=True)[1]] = True
    return found


def _reads(rows: Rows) -> Array:
    """Return a key for each (round, request) in which the target is fed index 0, sorted."""
    feeds = rows.trace.feeds
    is_first = (feeds["model"] == _TARGET) & (feeds["index"] == 0)
    return np.unique(_pairs(feeds["round"][is_first], feeds["request"][is_first]))


def _pairs(number: Array, request: Array) -> Array:
    keys: Array = number.astype(np.int64) << 32 | request
    return keys
