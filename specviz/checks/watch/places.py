"""Where K/V lies in the one cache that a record has for each model.

Contract: `Ledger` keeps which token lies where; `blocks_of` joins moves of single slots. Not known
here: what a token is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

Place = tuple[int, int]  # row, slot


@dataclass
class Ledger:
    """Where each token's K/V lies in the cache of one model."""

    held: dict[Place, int] = field(default_factory=dict)
    places: dict[int, set[Place]] = field(default_factory=dict)

    def put(self, place: Place, entry: int) -> None:
        before = self.held.get(place)
        if before is not None:
            self.places[before].discard(place)
        self.held[place] = entry
        self.places.setdefault(entry, set()).add(place)


def blocks_of(moves: Sequence[tuple[Place, Place, int]]) -> list[list[int]]:
    """Join single slots to blocks: from_row, from_slot, to_row, to_slot, length."""
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
    return blocks
