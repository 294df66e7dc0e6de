"""Lanes: what the slots of one row hold, left to right, as runs of slots that belong together; each lane that occurs is kept once.

Contract: cells of a frame go in, (5, B, T) numbers; out come lists of runs [slot, stop, kind, index, position, request, tokens]: slots with
one kind and request whose indices and positions count up together. index and position are those of the first slot; they and the request
are -1 in slots that are empty or padding. tokens is 0 where the request's own tokens at these indices are meant, else a list of ids.
A lane may also be [number, count, run, ...]: it begins with the first `count` runs of that earlier lane, as rows full of holes do.
Not known here: rounds, JSON.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from specviz.record.index import Committed
from specviz.record.replay import Slots
from specviz.record.schema import (
    BONUS,
    DRAFTED,
    EMPTY,
    PADDING,
    PENDING,
    PROMPT,
    STALE,
    Array,
    Table,
)

KINDS = (
    "empty", "padding", "held", "drafted", "stale", "pending", "accepted_now", "bonus_now", "rejected_now", "discarded_now",
    "unreached_now",
)  # fmt: skip
(
    _HELD,
    _DRAFTED,
    _STALE,
    _PENDING,
    _ACCEPTED_NOW,
    _BONUS_NOW,
    _REJECTED_NOW,
    _DISCARDED_NOW,
    _UNREACHED_NOW,
) = range(2, 11)
_OF_STATE = np.empty(8, np.int32)
_OF_STATE[[EMPTY, PADDING, DRAFTED, STALE, PENDING]] = 0, 1, _DRAFTED, _STALE, _PENDING
_OF_STATE[PROMPT : BONUS + 1] = _HELD
Lane = list[Any]
_MANY = 6  # with so many runs that are the same, a lane says from which one it has them


def in_cells(slots: Slots) -> Array:
    """(5, B, T) int32: kind, index, position, request, token."""
    return np.stack(
        [_OF_STATE[slots.state], slots.index, slots.position, slots.request, slots.token]
    )


def is_pending(cells: Array, slots: Array) -> Array:
    """Whether `slots` (B,), one of each row, await the K/V of the row's last token."""
    pending: Array = cells[0, np.arange(slots.size), slots] == _PENDING
    return pending


def foretell(cells: Array, rows: Array, slots: Array, kind: str, ahead: Array) -> None:
    """Put, in place, tokens that the cache lacks into `slots` (n,) of `rows` (n,); ahead (4, n): index, position, request, token."""
    cells[0, rows, slots], cells[1:, rows, slots] = KINDS.index(kind), ahead


def judge(cells: Array, rows: Table, requests: Array, drafts: Array) -> None:
    """Mark, in place, what a round accepted, rejected, threw away, did not reach and added: of a row's drafts one is rejected at most,
    and what was drafted behind it is not reached.

    rows: the round's part of the record's table; requests (B,); drafts (5, n): row, slot, index, position, token of what was verified.
    """
    kind, index, _, request, token = cells
    length, gained, kept = (
        values[:, None]
        for values in (rows["length"], rows["gained"], np.minimum(rows["accepted"], rows["gained"]))
    )
    held = (request == requests[:, None]) & (kind == _HELD)
    kind[held & (index >= length)] = _ACCEPTED_NOW
    kind[held & (index >= length + kept)] = _BONUS_NOW
    kind[(kind == _PENDING) & (gained > kept)] = _BONUS_NOW
    row, slot, drafted, _, said = drafts
    number, accepted = drafted - rows["length"][row], rows["accepted"][row]
    there = (kind[row, slot] == _STALE) & (index[row, slot] == drafted) & (token[row, slot] == said)
    refused = there & (number >= accepted) & (number < rows["drafted"][row])
    discarded = rows["discarded"][row]
    fate = np.where(number < accepted + discarded, _DISCARDED_NOW, _UNREACHED_NOW)
    fate[(number == accepted) & (discarded == 0) & (rows["gained"][row] > accepted)] = _REJECTED_NOW
    kind[row[refused], slot[refused]] = fate[refused]


class Lanes:
    """The lanes that were met, each once.

    found: the lanes, by number; runs: how many runs they have in all.
    """

    def __init__(self, texts: Committed) -> None:
        self.found: list[Lane] = []
        self.runs = 0
        self._texts = texts
        self._numbers: dict[bytes, int] = {}
        self._last: dict[str, tuple[Array, list[int]]] = {}

    def add(self, which: str, cells: Array) -> list[int]:
        """Numbers of the lanes of all rows. cells: (5, B, T) int32; `which` names the kind of lanes, which change little from one call to
        the next.
        """
        rows, firsts = _breaks(cells)
        flat = rows * cells.shape[2] + firsts
        stops = np.append(flat[1:], cells[0].size) - rows * cells.shape[2]
        foreign = np.searchsorted(flat, self._foreign(cells), "right") - 1
        heads, new = (
            self._begins(which, cells, rows, stops),
            np.arange(rows.size),
        )  # new: the runs that no earlier lane has told
        if heads:
            known = np.array(
                [heads[row][1] if row in heads else 0 for row in range(cells.shape[1])]
            )
            new = new[new - np.searchsorted(rows, rows) >= known[rows]]
            foreign = np.searchsorted(new, np.intersect1d(foreign, new))
            rows, firsts, stops = rows[new], firsts[new], stops[new]
        runs = np.column_stack(
            [firsts, stops, cells[:4, rows, firsts].T, np.zeros_like(rows)]
        ).astype(np.int32)  # (n, 7)
        runs[runs[:, 2] < _HELD, 3:6] = -1
        found, keys, size = runs.tolist(), runs.tobytes(), runs.itemsize * runs.shape[1]
        more = {row: np.array(head, np.int32).tobytes() for row, head in heads.items()}
        for run, row, tokens, key in _foreign_tokens(
            cells, rows, firsts, stops, foreign[np.diff(foreign, prepend=-1) > 0]
        ):
            found[run][-1] = tokens
            more[row] = (
                more.get(row, b"") + keys[size * run : size * run + runs.itemsize] + key
            )  # behind the run's slot
        edges = np.searchsorted(rows, np.arange(cells.shape[1] + 1)).tolist()
        numbers = [
            self._number(
                keys[size * first : size * stop] + more.get(row, b""),
                heads.get(row),
                found[first:stop],
            )
            for row, (first, stop) in enumerate(pairwise(edges))
        ]
        self._last[which] = cells, numbers
        return numbers

    def _begins(self, which: str, cells: Array, rows: Array, stops: Array) -> dict[int, list[int]]:
        """By row, the lane that it had before and how many of its runs are still the same ones, where that saves something."""
        before, numbers = self._last.get(which, (cells[:, :0], []))
        if before.shape[1] != cells.shape[1] or rows.size <= _MANY * cells.shape[1]:
            return {}
        width = min(before.shape[2], cells.shape[2])
        differs = (before[:, :, :width] != cells[:, :, :width]).any(0)
        first = np.where(differs.any(1), differs.argmax(1), width)  # slots before the first change
        known = np.bincount(rows[stops < first[rows]], minlength=cells.shape[1]).tolist()
        return {row: [numbers[row], count] for row, count in enumerate(known) if count >= _MANY}

    def _number(self, key: bytes, head: list[int] | None, runs: list[list[Any]]) -> int:
        number = self._numbers.setdefault(key, len(self.found))
        if number == len(self.found):
            self.found.append([*head, *runs] if head else runs)
            self.runs += len(runs)
        return number

    def _foreign(self, cells: Array) -> Array:
        """Places in the flattened (B, T) where something else than the request's own token lies; what counts as held is always its own."""
        at = np.flatnonzero(cells[0] > _HELD)
        _, index, _, request, token = cells.reshape(5, -1)[:, at]
        known = (request >= 0) & (index >= 0) & (index < self._texts.size[request])
        own = self._texts.tokens[self._texts.first[request] + np.where(known, index, 0)] == token
        foreign: Array = at[(request >= 0) & ~(known & own)]
        return foreign


def _foreign_tokens(
    cells: Array, rows: Array, firsts: Array, stops: Array, runs: Array
) -> Iterator[tuple[int, int, list[int], bytes]]:
    """Of each of `runs` (n,): its number, its row, and its tokens, as ids and as bytes."""
    sizes = stops[runs] - firsts[runs]
    ends = sizes.cumsum()
    flat = np.repeat(rows[runs] * cells.shape[2] + firsts[runs] - ends + sizes, sizes) + np.arange(
        sizes.sum()
    )
    tokens = cells[4].ravel()[flat]
    ids, raw, size = tokens.tolist(), tokens.tobytes(), tokens.itemsize
    for run, row, first, stop in zip(
        *(values.tolist() for values in (runs, rows[runs], ends - sizes, ends)), strict=True
    ):
        yield run, row, ids[first:stop], raw[size * first : size * stop]


def _breaks(cells: Array) -> tuple[Array, Array]:
    """Row and slot where each run begins."""
    kind, index, position, request, _ = cells
    breaks = np.ones(kind.shape, bool)
    goes_on = (
        (request[:, 1:] == request[:, :-1])
        & (index[:, 1:] - index[:, :-1] == 1)
        & (position[:, 1:] - position[:, :-1] == 1)
    )
    goes_on |= kind[:, 1:] < _HELD
    breaks[:, 1:] = ~(goes_on & (kind[:, 1:] == kind[:, :-1]))
    rows, slots = breaks.nonzero()
    return rows, slots
