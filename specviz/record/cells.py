"""What is kept of each cache cell while a record is walked through, in planes with names."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from specviz.record.schema import MODELS, Array, Table

MOVE = ("model", "from_row", "from_slot", "to_row", "to_slot", "length")


class Cells:
    """The (model, row, slot) cells of both caches; int32 planes, -1 where nothing was written.

    The plane "written" has the number of each cell's last write. A cell that was moved is newer
    than one that stayed, and moved cells keep their order among themselves.

    Attributes:
        latest: by model, the number of the last write into its cache.
    """

    def __init__(self, names: Sequence[str], moves: Table, shape: tuple[int, int]) -> None:
        """Make empty cells.

        Args:
            names: of the planes, beside "written".
            moves: the table of a record, whose entries `move` applies.
            shape: rows and slots.
        """
        self._places = {name: place for place, name in enumerate((*names, "written"))}
        self._planes = np.full((len(self._places), len(MODELS), *shape), -1, np.int32)
        self._moves = np.stack([moves[name] for name in MOVE], axis=1)  # (N, 6)
        self._writes = 0
        self.latest = [0] * len(MODELS)

    def __getitem__(self, name: str) -> Array:
        """Return a plane, (models, rows, slots), to read or to write."""
        plane: Array = self._planes[self._places[name]]
        return plane

    def of(self, model: int, rows: Array, width: int) -> Table:
        """Return a copy of the planes of some rows and the first `width` slots, (B, T) by name."""
        held = self._planes[:, model, rows, :width]
        return {name: held[place] for name, place in self._places.items()}

    def write(self, model: int, rows: Array, slots: Array, **values: Any) -> None:
        """Write what is given for each of the planes into n cells at once."""
        self._writes += 1
        self.latest[model] = self._writes
        for name, value in {**values, "written": self._writes}.items():
            self._planes[self._places[name], model, rows, slots] = value

    def move(self, entries: Array) -> None:
        """Apply these entries of the table `moves` at once: all are read before any is written."""
        blocks = self._moves[entries].tolist()
        copies = [
            self._planes[:, model, row, slot : slot + length].copy()
            for model, row, slot, _, _, length in blocks
        ]
        written = self._places["written"]
        ages = np.unique(np.concatenate([copied[written] for copied in copies]))
        self._writes += 1
        for (model, _, _, row, slot, length), copied in zip(blocks, copies, strict=True):
            copied[written] = self._writes + np.searchsorted(ages, copied[written])
            self._planes[:, model, row, slot : slot + length] = copied
            self.latest[model] = self._writes
        self._writes += ages.size
