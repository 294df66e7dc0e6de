"""A model that keeps the K/V of each row's last tokens alone.

Contract: slot 0 of a row holds the token with index `firsts[row]`, and the tokens behind it follow.
So the slots of a feed do not count here, nor does the target's layout: both follow from the tokens'
indices. The caller reads tokens again when a row's window begins elsewhere.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedModel

from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.feed import Feed
from specviz.engine.kv.moves import Move
from specviz.engine.kv.transfer import to_device


class WindowedModel(CachedModel):
    """A causal LM with K/V slabs of `slots` slots a row, however long the row is.

    Attributes:
        firsts: (R,) int64, the index of the token in slot 0 of each row; it stays in place.
    """

    def __init__(
        self, model: PreTrainedModel, rows: int, slots: int, vocabulary: int | None
    ) -> None:
        super().__init__(model, rows, slots, vocabulary)
        self.firsts = torch.zeros(rows, dtype=torch.long, device=model.device)

    def set_firsts(self, firsts: Sequence[int]) -> None:
        """Let the windows of the first len(firsts) rows begin at these indices."""
        self.firsts[: len(firsts)] = to_device(firsts, self.firsts.device)

    def ready(self, feed: Feed) -> Feed:
        return super().ready(self._shifted(feed))

    def _arguments(self, feed: Feed, dense: bool) -> dict[str, Any]:
        # A feed that is ready has its slots and mask already.
        return super()._arguments(self._shifted(feed) if feed.added is None else feed, dense)

    def _shifted(self, feed: Feed) -> Feed:
        """Return the feed with slots and mask that count from the beginning of each window."""
        slots = feed.indices - self.firsts[feed.rows][:, None]  # (b, q)
        held = torch.arange(self.slots, device=slots.device)
        return replace(feed, slots=slots, visible=held <= slots[:, :, None])

    def _note(self, entry: Feed | list[Move]) -> None:
        """Note nothing: a record draws the draft's K/V in the target's slots."""

    def move(self, moves: Sequence[Move]) -> None:
        """Let rows trade places. Moves within a row are those of the target's layout."""
        pairs = {(move.from_row, move.to_row) for move in moves if move.from_row != move.to_row}
        super().move([Move(row, 0, to, 0, self.slots) for row, to in sorted(pairs)])
