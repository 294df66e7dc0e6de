"""Where K/V lies in the one cache that a record has for each model.

Contract: `Ledger` keeps which K/V lies where, by its print; `moves_of` says what must have been
moved, `blocks_of` joins single slots. Not known here: tokens.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

Place = tuple[int, int]  # row, slot
Move = tuple[Place, Place, int]  # from, to, print
NAMES = ("from_row", "from_slot", "to_row", "to_slot", "length")


@dataclass
class Ledger:
    """Which K/V lies where in the cache of one model."""

    held: dict[Place, int] = field(default_factory=dict)
    places: dict[int, set[Place]] = field(default_factory=dict)

    def put(self, place: Place, mark: int) -> None:
        before = self.held.get(place)
        if before is not None:
            self.places[before].discard(place)
        self.held[place] = mark
        self.places.setdefault(mark, set()).add(place)


def moves_of(
    ledger: Ledger, row: int, seen: Mapping[Place, int], lost: Collection[Place], nowhere: Place
) -> list[Move]:
    """Return what was moved so that a row holds what it does now.

    Args:
        ledger: what lay where before.
        row: the row.
        seen: {place: print} of what the row sees now.
        lost: places of it whose K/V no forward computed.
        nowhere: a place that holds nothing.
    """
    moved = {place: mark for place, mark in seen.items() if ledger.held.get(place) != mark}
    votes: Counter[int] = Counter()
    for mark in moved.values():
        votes.update({source[0] for source in ledger.places.get(mark, ())})
    if row not in votes and votes:
        # Another row was copied here. What both have in common, as a first token, was copied, too.
        moved = dict(seen)
    found: list[Move] = []
    for place, mark in moved.items():
        sources = ledger.places.get(mark)
        if sources:
            best = min(sources, key=lambda each: (-votes[each[0]], each[0] != row, each))
            found.append((best, place, mark))
        elif place in lost and place in ledger.held:
            found.append((nowhere, place, mark))
    return found


def blocks_of(
    moves: Sequence[Move], again: Collection[Place], held: Collection[Place]
) -> list[list[int]]:
    """Join moves of single slots to blocks, lists of `NAMES`.

    A block goes on into slots whose tokens are read again: what it left there cannot be seen.

    Args:
        moves: what was moved.
        again: places whose tokens are read again.
        held: places that held anything.
    """
    blocks: list[list[int]] = []
    for (from_row, from_slot), (to_row, to_slot), _ in moves:
        last = blocks[-1] if blocks else None
        if last is not None:
            length = last[4]
            follows = last[0] == from_row and last[1] + length == from_slot
            if follows and last[2] == to_row and last[3] + length == to_slot:
                last[4] += 1
                continue
        blocks.append([from_row, from_slot, to_row, to_slot, 1])
    for block in blocks:
        from_row, from_slot, to_row, to_slot, length = block
        while (to_row, to_slot + length) in again and (from_row, from_slot + length) in held:
            length += 1
        block[4] = length
    return blocks
