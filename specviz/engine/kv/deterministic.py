"""The deterministic mode: every forward in one shape, so that a row's result does not depend on
others.

Floating-point sums depend on the order of their terms. Kernels choose that order by shape: by batch
size, by tokens a row, and by the length of the K/V and the place of a token in it. Here each
forward has the same rows (`FixedShape.rows`, filled up), the same tokens a row (K + 1, filled up;
`FixedShape.prefill` in a prefill) and the same attended length, and K/V is attended to in the order
of the row's tokens whatever their slots. The reference is autoregressive decoding in the same
shapes. The cost: filling is computed, and K/V is copied into order. Source of the idea: LLM-42
(arXiv 2601.17768), fixed-shape verification.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.engine.features import Select
from specviz.engine.kv.cache import CachedModel, Output
from specviz.engine.kv.feed import Feed


@dataclass(frozen=True)
class FixedShape:
    """The shape of every forward.

    Attributes:
        rows: rows of a forward.
        width: tokens a row in a round, K + 1.
        prefill: tokens a row in a prefill.
        attended: slots of K/V.
    """

    rows: int
    width: int
    prefill: int
    attended: int


def fixed_shape(width: int, longest: int) -> FixedShape:
    """Return the shape for runs with `width` = K + 1 and up to `longest` tokens (prompt + budget).

    Forwards have 8 rows. The attended length is a multiple of 256.
    """
    steps = math.ceil((longest + width) / 256)
    return FixedShape(rows=8, width=width, prefill=64, attended=256 * steps)


class FixedModel(CachedModel):
    """A `CachedModel` that computes every forward in pieces of one shape."""

    def __init__(
        self,
        model: PreTrainedModel,
        rows: int,
        slots: int,
        vocabulary: int | None,
        shape: FixedShape,
    ) -> None:
        # One more slot takes the K/V of the filling. No query of a real token sees it.
        super().__init__(model, rows, slots + 1, vocabulary)
        self.slots = slots
        self.shape = shape

    @property
    def forward_tokens(self) -> None:
        """None: every piece of a prefill has the same shape, so short rows gain nothing."""

    def forward(self, feed: Feed, *, select: Select | None = None, dense: bool = True) -> Output:
        """Run one forward as `CachedModel.forward` does, in pieces."""
        self._note(feed)
        log, self.log = self.log, None  # the pieces are not logged
        feed = replace(feed, count=None)  # packed, a forward would have another shape
        # Fewer than K + 1 tokens, as in drafting or with a smaller K, are filled up, too.
        width = feed.tokens.shape[1]
        logits = []
        features = []
        for piece, rows in self._pieces(feed, self.shape.width):
            output = super().forward(piece, dense=False, select=select)
            logits.append(output.logits[:rows, :width])
            if output.features is not None:
                features.append(output.features[:rows, :width])
        self.log = log
        return Output(torch.cat(logits), torch.cat(features) if features else None)

    def _compiles_prefill_of(self, feed: Feed) -> bool:
        return False  # the pieces of a prefill have another shape than those of a forward

    def ready(self, feed: Feed) -> Feed:
        return feed  # each piece makes its own mask

    def prefill(self, feed: Feed, *, select: Select | None = None) -> Tensor | None:
        """Prefill as `CachedModel.prefill` does, in pieces of rows and chunks of the prompt."""
        self._note(feed)
        log, self.log = self.log, None  # the pieces are not logged
        chunks = []
        for first in range(0, feed.tokens.shape[1], self.shape.prefill):
            along = slice(first, first + self.shape.prefill)
            chunk = feed.part(feed.tokens[:, along], along)
            features = []
            for piece, rows in self._pieces(chunk, self.shape.prefill):
                found = super().prefill(piece, select=select)
                if found is not None:
                    features.append(found[:rows])
            if features:
                chunks.append(torch.cat(features)[:, : chunk.tokens.shape[1]])
        self.log = log
        return torch.cat(chunks, 1) if chunks else None

    def _pieces(self, feed: Feed, width: int) -> list[tuple[Feed, int]]:
        """Return the feed as feeds of `shape.rows` rows, each with the number of its real rows."""
        ordered = self._ordered(feed)
        size = self.shape.rows
        pieces = []
        for first in range(0, len(feed.rows), size):
            piece = self._fill(ordered, slice(first, first + size), width)
            pieces.append((piece, min(size, len(feed.rows) - first)))
        return pieces

    def _ordered(self, feed: Feed) -> Feed:
        """Return the feed with `visible` and `order` over the slots that each row attends to.

        They are in the order of the slots, which is that of the row's tokens.
        """
        # Padding and holes differ with the batch. Without them a token has the same place among the
        # K/V, and so in every sum, whatever the strategy and the other rows.
        seen = feed.visible.any(1)  # (b, w)
        rank = (seen.cumsum(1) - 1).clamp(max=self.shape.attended - 1)
        slot = torch.arange(seen.shape[1], device=seen.device).expand_as(seen)
        # Slots that are not seen all go to one more column, which is cut off again. A selection by
        # mask would have to ask the device for sizes.
        order = torch.full((len(seen), self.shape.attended + 1), self.slots, device=seen.device)
        column = torch.where(seen, rank, self.shape.attended)
        order.scatter_(1, column, torch.where(seen, slot, self.slots))
        order = order[:, : self.shape.attended]
        visible = _pad(feed.visible, self.slots + 1, 2, False)
        visible = visible.gather(2, order[:, None].expand(-1, visible.shape[1], -1))
        return replace(feed, order=order, visible=visible)

    def _fill(self, feed: Feed, rows: slice, width: int) -> Feed:
        """Return a piece of the feed, filled up to shape.rows rows of `width` tokens.

        The filling writes to the spare slot.
        """
        # Filling sees everything: a softmax over nothing is NaN.
        fillings = {
            "tokens": 0,
            "indices": 0,
            "positions": 0,
            "slots": self.slots,
            "visible": True,
            "valid": False,
        }
        size = self.shape.rows
        columns: dict[str, Any] = {}
        for name, by in fillings.items():
            filled = _pad(getattr(feed, name)[rows], width, 1, by)
            columns[name] = _pad(filled, size, 0, by)
        if feed.order is not None:
            columns["order"] = _pad(feed.order[rows], size, 0, self.slots)
        if feed.shortened is not None:
            columns["shortened"] = _pad(feed.shortened[rows], size, 0, 0)
        return replace(feed, rows=_pad(feed.rows[rows], size, 0, 0), **columns)


def _pad(values: Tensor, size: int, dim: int, by: int) -> Tensor:
    """Return `values` with `by` appended along `dim` up to `size` entries."""
    shape = list(values.shape)
    shape[dim] = size - shape[dim]
    return torch.cat([values, values.new_full(shape, by)], dim)
