"""Where K/V lies in the one cache that a record has for each model.

Contract: `CacheLedger` keeps which K/V lies where, by its print; `moves_of` says what must have
been moved, `blocks_of` joins single slots. Not known here: tokens.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

Place = tuple[int, int]  # row, slot
Move = tuple[Place, Place, int]  # from, to, print
NAMES = ("from_row", "from_slot", "to_row", "to_slot", "length")


@dataclass
class CacheLedger:
    """Which K/V lies where in the cache of one model."""

    held: dict[Place, int] = field(default_factory=dict)
    places: dict[int, set[Place]] = field(default_factory=dict)

    def put(self, place: Place, mark: int) -> None:
        before = self.held.get(place)
        if before is not None:
            self.places[before].discard(place)
        self.held[place] = mark
        self.places.setdefault(mark, set()).add(place)

    def of(self, mark: int) -> Collection[Place]:
        """Return all places of some K/V."""
        return self.places.get(mark, ())


def moves_of(
    ledger: CacheLedger,
    row: int,
    seen: Mapping[Place, int],
    lost: Collection[Place],
    nowhere: Place,
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
    votes: Counter[tuple[int, int]] = Counter()  # by row, and by how far slots are shifted
    for (_, slot), mark in moved.items():
        votes.update((from_row, from_slot - slot) for from_row, from_slot in ledger.of(mark))
    if votes and row not in {from_row for from_row, _ in votes}:
        # Another row was copied here. What both have in common, as a first token, was copied, too.
        moved = dict(seen)
    found: list[Move] = []
    for place, mark in moved.items():
        sources = ledger.of(mark)
        if sources:
            likely = {each: votes[each[0], each[1] - place[1]] for each in sources}
            # Blocks move as a whole, so the shift that most slots share is the likely one.
            best = min(sources, key=lambda each: (-likely[each], each[0] != row, each))
            found.append((best, place, mark))
        elif place in lost and place in ledger.held:
            found.append((nowhere, place, mark))
    return _with_equals(found, ledger, seen)


def _with_equals(found: list[Move], ledger: CacheLedger, seen: Mapping[Place, int]) -> list[Move]:
    """Extend moves downwards over slots that already held K/V with the same bits.

    So it is with a first token that is moved to where another request's first token lay.
    """
    extended: list[Move] = []
    taken = {place for _, place, _ in found}
    for move in found:
        (from_row, from_slot), (row, slot), _ = move
        below: list[Move] = []
        while True:
            from_slot -= 1
            slot -= 1
            mark = seen.get((row, slot))
            source = (from_row, from_slot)
            if mark is None or (row, slot) in taken or ledger.held.get(source) != mark:
                break
            below.insert(0, (source, (row, slot), mark))
        extended += [*below, move]
    return extended


def blocks_of(
    moves: Sequence[Move], again: Collection[Place], held: Collection[Place]
) -> list[list[int]]:
    """Join moves of single slots to blocks, lists of `NAMES`.

    A block goes on into slots behind it whose tokens are read again: what it left there cannot be
    seen.

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
    for row, slot in sorted(again):
        below = [block for block in blocks if block[2] == row and block[3] <= slot]
        if not below:
            continue
        block = max(below, key=lambda each: each[3])
        offset = slot - block[3]
        if offset < block[4] or (block[0], block[1] + offset) not in held:
            continue
        if offset == block[4]:
            block[4] += 1
        else:
            blocks.append([block[0], block[1] + offset, row, slot, 1])
    return blocks
