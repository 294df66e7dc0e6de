"""The two caches of a record, one for each model, and what was moved in them.

Contract: `Caches` knows which K/V lies where and whose rows they are. It says what must have been
moved before a forward, so that its rows hold what they do. Not known here: rounds and phases.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from specviz.checks.watch.origins import SeenForward
from specviz.checks.watch.places import NAMES, CacheLedger, Move, Place, blocks_of, moves_of
from specviz.checks.watch.requests import Part

Found = tuple[list[Move], set[Place]]  # moves, and the slots whose tokens are read again
Moved = dict[str, Any]  # arguments of `TraceWriter.move`, but for the phase


class Caches:
    """What the caches of a record hold.

    Args:
        batch: rows of the largest batch. Behind them each request has a row of its own.
        count: requests.
        last: {(model, request): the last forward that read it}.
        read_again: gives the slots of committed tokens that a draft model reads again.
    """

    def __init__(
        self,
        batch: int,
        count: int,
        last: Mapping[tuple[str, int], int],
        read_again: Callable[[Part], list[int]],
    ) -> None:
        self._batch = batch
        self._nowhere = (batch + count, 0)
        self._last = last
        self._read_again = read_again
        self._ledgers = {"target": CacheLedger(), "draft": CacheLedger()}
        self._tenants: dict[tuple[str, int], int] = {}  # {(model, row): request}
        self._slots: dict[tuple[str, int], set[int]] = {}  # by model and request

    def put(self, model: str, place: Place, mark: int) -> None:
        """Note that a forward wrote K/V with this print."""
        self._ledgers[model].put(place, mark)

    def moves(
        self,
        seen: SeenForward,
        groups: Sequence[Sequence[Part]],
        rows: Mapping[int, int],
    ) -> list[list[Moved]]:
        """Return what was moved since the model's forward before, for each group of parts.

        Args:
            seen: the forward.
            groups: its parts.
            rows: {row of the forward: row of the record's cache}.
        """
        model = seen.forward.model
        # Before the moves, which may overwrite the rows of requests that wait.
        parked = self._park(seen, [part for group in groups for part in group], rows)
        found = [self._found(group, rows) for group in groups]
        moved = [self._noted(model, *each) for each in in_order(found)]
        moved[-1] = [*parked, *moved[-1]]
        return moved

    def _park(
        self, seen: SeenForward, parts: Sequence[Part], rows: Mapping[int, int]
    ) -> list[Moved]:
        """Return that requests which wait outside the batch are kept in rows of their own.

        Where a decoder really keeps them cannot be seen.
        """
        model = seen.forward.model
        held = self._ledgers[model].held
        kept: list[Move] = []
        here = {part.request for part in parts}
        for part in parts:
            row = rows[part.row]
            before = self._tenants.get((model, row), part.request)
            self._tenants[model, row] = part.request
            if before not in here and self._last[model, before] > part.number:
                own = self._batch + before
                kept += [
                    ((row, slot), (own, slot), held[row, slot])
                    for slot in sorted(self._slots[model, before])
                    if (row, slot) in held
                ]
        for part in parts:
            visible = np.flatnonzero(seen.seen[part.row].any(0)).tolist()
            own_slots = [slot for slot in seen.slots[part.row].tolist() if slot >= 0]
            self._slots[model, part.request] = {*visible, *own_slots}
        return self._noted(model, kept, set())

    def _found(self, parts: Sequence[Part], rows: Mapping[int, int]) -> Found:
        """Return what was moved into rows, and the slots whose tokens they read again."""
        found: list[Move] = []
        again: set[Place] = set()
        for part in parts:
            seen = part.seen
            model = seen.forward.model
            row = rows[part.row]
            if model == "draft":
                again |= {(row, slot) for slot in self._read_again(part)}
            own = set(seen.slots[part.row].tolist())
            visible = np.flatnonzero(seen.seen[part.row].any(0)).tolist()
            kept = {
                (row, slot): int(seen.marks[part.row, slot]) for slot in visible if slot not in own
            }
            lost = {place for place in kept if seen.held[part.row, place[1]] < 0}
            found += moves_of(self._ledgers[model], row, kept, lost, self._nowhere)
        return found, again

    def _noted(self, model: str, found: Sequence[Move], again: Collection[Place]) -> list[Moved]:
        """Return moves as blocks, after putting them into the ledger."""
        if not found:
            return []
        ledger = self._ledgers[model]
        blocks = blocks_of(found, again, ledger.held)
        for _, place, mark in found:
            ledger.put(place, mark)
        columns = {name: [block[i] for block in blocks] for i, name in enumerate(NAMES)}
        return [{"model": model, **columns}]


def in_order(groups: Sequence[Found]) -> list[Found]:
    """Return groups of moves one by one, or as one if a group overwrites what a later one reads.

    They were found at once, so each reads what was there before any of them.
    """
    overwritten: set[Place] = set()
    for moves, _ in groups:
        if any(source in overwritten for source, _, _ in moves):
            every = [move for each, _ in groups for move in each]
            again = {place for _, each in groups for place in each}
            return [*((list[Move](), set[Place]()) for _ in groups[1:]), (every, again)]
        overwritten |= {place for _, place, _ in moves}
    return list(groups)
