"""The two caches of a record, one for each model, and what was moved in them.

Contract: `Caches` knows which K/V lies where, by its print, and whose rows they are. It says what
must have been moved before a forward, so that its rows hold what they do. Not known here: rounds
and phases.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from specviz.checks.watch.origins import SeenForward
from specviz.checks.watch.requests import Part

Place = tuple[int, int]  # row, slot
Move = tuple[Place, Place, int]  # from, to, print
Moved = dict[str, Any]  # arguments of `TraceWriter.move`, but for the phase
NAMES = ("from_row", "from_slot", "to_row", "to_slot", "length")


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
        self._held: dict[str, dict[Place, int]] = {"target": {}, "draft": {}}
        self._tenants: dict[tuple[str, int], int] = {}  # {(model, row): request}
        self._rows: dict[tuple[str, int], int] = {}  # {(model, request): row}
        self._slots: dict[tuple[str, int], set[int]] = {}  # by model and request

    def put(self, model: str, place: Place, mark: int) -> None:
        """Note that a forward wrote K/V with this print."""
        self._held[model][place] = mark

    def moves(
        self, seen: SeenForward, groups: Sequence[Sequence[Part]], rows: Mapping[int, int]
    ) -> list[list[Moved]]:
        """Return what was moved since the model's forward before, for each group of parts.

        Args:
            seen: the forward.
            groups: its parts.
            rows: {row of the forward: row of the record's cache}.
        """
        # Before the moves, which may overwrite the rows of requests that wait.
        parked = self._park(seen, [part for group in groups for part in group], rows)
        found = [
            [move for part in group for move in self._found(part, rows[part.row])]
            for group in groups
        ]
        overwritten = {place for moves in found[:-1] for _, place, _ in moves}
        if any(source in overwritten for source, _, _ in found[-1]):
            # All were found at once, so each reads what was there before any of them.
            found = [*([] for _ in found[1:]), [move for moves in found for move in moves]]
        moved = [self._noted(seen.forward.model, moves) for moves in found]
        for part in (part for group in groups for part in group):
            self._rows[seen.forward.model, part.request] = rows[part.row]
        moved[-1] = [*parked, *moved[-1]]
        return moved

    def _park(
        self, seen: SeenForward, parts: Sequence[Part], rows: Mapping[int, int]
    ) -> list[Moved]:
        """Return that requests which wait outside the batch are kept in rows of their own.

        Where a decoder really keeps them cannot be seen.
        """
        model = seen.forward.model
        held = self._held[model]
        kept: list[Move] = []
        here = {part.request for part in parts}
        for part in parts:
            row = rows[part.row]
            before = self._tenants.get((model, row), part.request)
            self._tenants[model, row] = part.request
            if before not in here and self._last[model, before] > part.number:
                own = self._rows[model, before] = self._batch + before
                # It is looked for in its own row from here on, and not where another one is.
                kept += [
                    ((row, slot), (own, slot), held.pop((row, slot)))
                    for slot in sorted(self._slots[model, before])
                    if (row, slot) in held
                ]
        for part in parts:
            slots = {*_visible(part), *seen.slots[part.row].tolist()}
            self._slots[model, part.request] = {slot for slot in slots if slot >= 0}
        return self._noted(model, kept)

    def _found(self, part: Part, row: int) -> list[Move]:
        """Return what was moved into a row."""
        seen = part.seen
        held = self._held[seen.forward.model]
        own = seen.slots[part.row].tolist()
        marks = {s: int(seen.marks[part.row, s]) for s in _visible(part) if s not in own}
        moved = [slot for slot, mark in marks.items() if held.get((row, slot)) != mark]
        sources: dict[int, list[Place]] = {marks[slot]: [] for slot in moved}
        for place, mark in held.items() if moved else ():
            if mark in sources:
                sources[mark].append(place)
        votes = Counter(
            (from_row, from_slot - slot)
            for slot in moved
            for from_row, from_slot in sources[marks[slot]]
        )

        home = self._rows.get((seen.forward.model, part.request), row)

        def likely(slot: int) -> Place | None:
            """Return where a slot's K/V lay: in the request's own row, and where most of it lay."""
            return min(
                sources[marks[slot]],
                key=lambda each: (each[0] != home, -votes[each[0], each[1] - slot], each),
                default=self._nowhere if seen.held[part.row, slot] < 0 else None,
            )

        found: dict[int, Place] = {}
        for slot in sorted(marks, reverse=True):
            # A block may go on below, over what looks alike: another text's first token.
            from_row, from_slot = found.get(slot + 1, self._nowhere)
            source: Place | None = (from_row, from_slot - 1)
            if held.get((from_row, from_slot - 1)) != marks[slot]:
                source = likely(slot) if slot in moved else None
            if source in held or (source == self._nowhere and (row, slot) in held):
                found[slot] = source
        for slot in self._read_again(part) if seen.forward.model == "draft" else ():
            # What was moved with the slots below it cannot be seen any more.
            from_row, from_slot = found.get(slot - 1, self._nowhere)
            if (from_row, from_slot + 1) in held:
                found[slot] = (from_row, from_slot + 1)
        return [
            (source, (row, slot), held.get(source, marks.get(slot, 0)))
            for slot, source in sorted(found.items())
        ]

    def _noted(self, model: str, moves: Sequence[Move]) -> list[Moved]:
        """Return moves as blocks, after putting them into the cache."""
        blocks: list[list[int]] = []
        for (from_row, from_slot), (row, slot), mark in moves:
            self.put(model, (row, slot), mark)
            last = blocks[-1] if blocks else [-1] * 5
            after = [last[0], last[1] + last[4], last[2], last[3] + last[4]]
            if after == [from_row, from_slot, row, slot]:
                last[4] += 1
            else:
                blocks.append([from_row, from_slot, row, slot, 1])
        if not blocks:
            return []
        columns = zip(*blocks, strict=True)
        return [{"model": model, **dict(zip(NAMES, map(list, columns), strict=True))}]


def _visible(part: Part) -> list[int]:
    """Return the slots that any query of a row sees."""
    found: list[int] = np.flatnonzero(part.seen.seen[part.row].any(0)).tolist()
    return found
