"""Lanes: what the slots of one row hold, left to right, as runs of slots that belong together.

Contract: cells of a frame go in, (5, B, T) numbers: kind, index, position, request, token. Out come
lists of runs [slot, stop, kind, index, position, request, tokens]: slots with one kind and request
whose indices and positions count up together. index and position are those of the first slot; they
and the request are -1 in slots that are empty or padding. Where positions are not known, that of
the run is -1. tokens is 0 where the request's own tokens at these indices are meant, else a list of
ids. A lane may also be [number, count, run, ...]: it begins with the first `count` runs of that
earlier lane, as rows full of holes do. Not known here: rounds, JSON.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from specviz.checks.fates import FATES
from specviz.record.index import Committed, joined_ranges
from specviz.record.replay import MASK, Slots
from specviz.record.schema import STATES, Array, Table

KINDS = (
    "empty",
    "padding",
    "held",
    "drafted",
    "stale",
    "pending",
    "accepted_now",
    "bonus_now",
    "rejected_now",
    "discarded_now",
    "unreached_now",
    "unverified",
)
_NUMBERS = {name: number for number, name in enumerate(KINDS)}
_HELD = _NUMBERS["held"]
# By state of a slot; what is committed counts as held.
_OF_STATE = np.array([_NUMBERS.get(state, _HELD) for state in STATES], np.int32)
# By fate of a draft of a tree, what a slot is in which only its stale K/V is left.
_LEFT_BEHIND = {
    "rejected": "rejected_now",
    "discarded": "discarded_now",
    "ended": "unreached_now",
    "unreached": "unreached_now",
}
_OF_FATE = np.array([_NUMBERS[_LEFT_BEHIND.get(fate, "stale")] for fate in FATES], np.int32)
Lane = list[Any]
_MANY = 6  # a lane refers to an earlier one where it shares at least so many runs with it


def cache_cells(slots: Slots) -> Array:
    """Return (5, B, T) int32: kind, index, position, request, token.

    A mask entry of a draft head has no token: -1.
    """
    token = np.where(slots.source == MASK, -1, slots.token)
    return np.stack([_OF_STATE[slots.state], slots.index, slots.position, slots.request, token])


def is_pending(cells: Array, slots: Array) -> Array:
    """Return whether `slots` (B,), one of each row, await the K/V of the row's last token."""
    pending: Array = cells[0, np.arange(slots.size), slots] == _NUMBERS["pending"]
    return pending


def put_tokens(cells: Array, rows: Array, slots: Array, kind: str, tokens: Array) -> None:
    """Put, in place, tokens that the cache lacks into `slots` (n,) of `rows` (n,).

    tokens: (4, n): index, position, request, token.
    """
    cells[0, rows, slots] = _NUMBERS[kind]
    cells[1:, rows, slots] = tokens


def mark_fates(cells: Array, rows: Table, requests: Array, drafts: Array) -> None:
    """Mark, in place, what a round accepted, rejected, threw away, did not reach and added.

    At most one draft of a chain is rejected; the drafts behind it are not reached. Of a tree, all
    drafts beside the accepted branch are rejected.

    Args:
        cells: as in the module's contract.
        rows: the round's part of the record's table.
        requests: (B,).
        drafts: (7, n): row, slot, index, position, token, number and fate of what was verified. The
            fate counts where the row's drafts branch, else it is -1.
    """
    kind, index, _, request, token = cells
    length = rows["length"][:, None]
    gained = rows["gained"][:, None]
    kept = np.minimum(rows["accepted"], rows["gained"])[:, None]
    held = (request == requests[:, None]) & (kind == _HELD)
    # The bonus lies behind the kept drafts, so it is marked after them.
    kind[held & (index >= length)] = _NUMBERS["accepted_now"]
    kind[held & (index >= length + kept)] = _NUMBERS["bonus_now"]
    kind[(kind == _NUMBERS["pending"]) & (gained > kept)] = _NUMBERS["bonus_now"]

    # A stale slot shows a refused draft only if nothing else was written there since.
    row, slot, drafted, _, drafted_token, number, fate = drafts
    accepted = rows["accepted"][row]
    discarded = rows["discarded"][row]
    refused = (kind[row, slot] == _NUMBERS["stale"]) & (index[row, slot] == drafted)
    refused &= token[row, slot] == drafted_token
    branches = fate >= 0
    refused &= branches | ((number >= accepted) & (number < rows["drafted"][row]))
    rejected = (number == accepted) & (discarded == 0) & (rows["gained"][row] > accepted)
    kinds = np.full(number.shape, _NUMBERS["unreached_now"])
    kinds[number < accepted + discarded] = _NUMBERS["discarded_now"]
    kinds[rejected] = _NUMBERS["rejected_now"]
    kinds[branches] = _OF_FATE[fate[branches]]
    kind[row[refused], slot[refused]] = kinds[refused]


class Lanes:
    """The lanes that were met, each once.

    Attributes:
        found: the lanes, by number.
        runs: how many runs they have in all.
    """

    def __init__(self, texts: Committed) -> None:
        self.found: list[Lane] = []
        self.runs = 0
        self._texts = texts
        self._numbers: dict[bytes, int] = {}
        self._last: dict[str, tuple[Array, list[int]]] = {}

    def add(self, which: str, cells: Array) -> list[int]:
        """Return the numbers of the lanes of all rows.

        Args:
            which: the kind of lanes, which change little from one call to the next.
            cells: (5, B, T) int32.
        """
        size = cells.shape[1]
        rows, firsts, stops = _runs(cells)
        # A row full of holes has many runs, of which a phase changes the last ones.
        heads = self._heads(which, cells, rows, stops)
        foreign = self._foreign_runs(cells, rows, firsts)
        if heads:
            known = np.zeros(size, np.int64)
            for row, (_, count) in heads.items():
                known[row] = count
            new = np.arange(rows.size) - np.searchsorted(rows, rows) >= known[rows]
            rows, firsts, stops, foreign = rows[new], firsts[new], stops[new], foreign[new]

        entries, keys, edges = _entries(cells, rows, firsts, stops, foreign)
        numbers = []
        for row, (first, stop) in enumerate(pairwise(edges)):
            numbers.append(self._number(keys[row], heads.get(row), entries[first:stop]))
        self._last[which] = cells, numbers
        return numbers

    def _heads(self, which: str, cells: Array, rows: Array, stops: Array) -> dict[int, list[int]]:
        """Return by row [lane, count]: its earlier lane, and how many runs of it are unchanged."""
        before, numbers = self._last.get(which, (cells[:, :0], []))
        size = cells.shape[1]
        if before.shape[1] != size or rows.size <= _MANY * size:
            return {}
        width = min(before.shape[2], cells.shape[2])
        differs = (before[:, :, :width] != cells[:, :, :width]).any(0)
        first = np.where(differs.any(1), differs.argmax(1), width)  # slots before the first change
        known = np.bincount(rows[stops < first[rows]], minlength=size).tolist()
        return {row: [numbers[row], count] for row, count in enumerate(known) if count >= _MANY}

    def _number(self, key: bytes, head: list[int] | None, runs: list[list[Any]]) -> int:
        if head:
            key += np.array(head, np.int32).tobytes()
        number = self._numbers.setdefault(key, len(self.found))
        if number == len(self.found):
            self.found.append([*head, *runs] if head else runs)
            self.runs += len(runs)
        return number

    def _foreign_runs(self, cells: Array, rows: Array, firsts: Array) -> Array:
        """Return which runs (n,) hold another token than the request's own at that index.

        What counts as held is always the request's own.
        """
        at = np.flatnonzero(cells[0] > _HELD)
        _, index, _, request, token = cells.reshape(5, -1).take(at, axis=1)
        # Where the index is none of the request's, any other stands in for it.
        known = (request >= 0) & (index >= 0) & (index < self._texts.size.take(request))
        place = self._texts.first.take(request) + np.where(known, index, 0)
        own = self._texts.tokens.take(place) == token
        slots = at[(request >= 0) & ~(known & own)]
        starts = rows * cells.shape[2] + firsts
        foreign = np.zeros(rows.size, bool)
        foreign[np.searchsorted(starts, slots, "right") - 1] = True
        return foreign


def _runs(cells: Array) -> tuple[Array, Array, Array]:
    """Return row, first slot and stop of each run, (n,) each."""
    width = cells.shape[2]
    flat = cells.reshape(5, -1)  # one row behind the other: a run ends with its row in any case
    kind, index, position, request, _ = flat
    breaks = np.ones(kind.size, bool)
    goes_on = request[1:] == request[:-1]
    goes_on &= index[1:] - index[:-1] == 1
    # A log may not say positions; then they are -1.
    unknown = (position[1:] & position[:-1]) < 0  # both are negative
    goes_on &= (position[1:] - position[:-1] == 1) | unknown
    goes_on |= kind[1:] < _HELD
    goes_on &= kind[1:] == kind[:-1]
    np.logical_not(goes_on, out=breaks[1:])
    if width:
        breaks[::width] = True
    starts = breaks.nonzero()[0]
    rows, firsts = np.divmod(starts, max(width, 1))
    stops = np.append(starts[1:], kind.size) - rows * width
    return rows, firsts, stops


def _entries(
    cells: Array, rows: Array, firsts: Array, stops: Array, foreign: Array
) -> tuple[list[Lane], list[bytes], list[int]]:
    """Return the runs as lists, by row a key that tells lanes apart, and where each row begins."""
    flat = cells.reshape(5, -1)
    starts = rows * cells.shape[2] + firsts
    # How many tokens of its own each run has to name.
    lengths = np.where(foreign, stops - firsts, 0)
    runs = np.empty((rows.size, 7), np.int32)
    runs[:, 0] = firsts
    runs[:, 1] = stops
    runs[:, 2:6] = flat[:4].take(starts, axis=1).T
    runs[:, 6] = lengths
    runs[runs[:, 2] < _HELD, 3:6] = -1  # what lies there belongs to no token
    entries = runs.tolist()
    tokens = flat[4].take(joined_ranges(starts, lengths))
    bounds = np.append(0, lengths.cumsum())
    named = tokens.tolist()
    named_bounds = bounds.tolist()
    for run in np.flatnonzero(foreign).tolist():
        entries[run][-1] = named[named_bounds[run] : named_bounds[run + 1]]
    # A lane is known by the bytes of its runs, and by the tokens that are not the request's.
    edges = np.searchsorted(rows, np.arange(cells.shape[1] + 1))
    written = runs.tobytes()
    spelled = tokens.tobytes()
    of_runs = (edges * runs.strides[0]).tolist()
    of_tokens = (bounds[edges] * tokens.itemsize).tolist()
    parts = zip(pairwise(of_runs), pairwise(of_tokens), strict=True)
    keys = [written[slice(*these)] + spelled[slice(*those)] for these, those in parts]
    return entries, keys, edges.tolist()
