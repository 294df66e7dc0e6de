"""The deterministic mode: every forward in one shape, so that a row's result does not depend on its neighbours. That is each forward of the
target, and of a draft model where the text depends on what it says.

Floating-point sums depend on the order of their terms, and kernels choose that order by shape: batch size, tokens a row, and how long
the K/V is and where in it a token lies. Here each forward has the same rows (`Shape.rows`, filled up), the same tokens a row (K + 1, filled
up; `Shape.prefill` in a prefill) and the same attended length, and K/V is attended to in the order of the row's tokens whatever their
slots. Autoregressive decoding in the same shapes is then the reference. The price: filling is computed, and K/V copied into order.
Source of the idea: LLM-42 (arXiv 2601.17768), fixed-shape verification.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.engine.kv.cache import CachedModel, Feed


@dataclass(frozen=True)
class Shape:
    """rows: rows of every forward. width: tokens a row in a round, K + 1. prefill: tokens a row in a prefill. attended: K/V length."""

    rows: int
    width: int
    prefill: int
    attended: int


def fixed_shape(width: int, longest: int) -> Shape:
    """The shape for runs with `width` = K + 1 whose longest prompt + budget is `longest`: 8 rows, K/V in steps of 256."""
    return Shape(rows=8, width=width, prefill=64, attended=-(-(longest + width) // 256) * 256)


class FixedModel(CachedModel):
    """A `CachedModel` that computes every forward in pieces of one shape."""

    def __init__(
        self, model: PreTrainedModel, rows: int, slots: int, vocabulary: int | None, shape: Shape
    ) -> None:
        super().__init__(
            model, rows, slots + 1, vocabulary
        )  # the last slot takes what is written for filling
        self.slots, self.shape = slots, shape

    def forward(self, feed: Feed, *, keep_hidden: bool = False, dense: bool = True) -> Tensor:
        """As `CachedModel.forward`."""
        self._note(feed)
        log, self.log = self.log, None
        said, hidden = [], []
        for piece, rows in self._pieces(feed, self.shape.width):
            said.append(
                super().forward(piece, dense=False, keep_hidden=keep_hidden)[
                    :rows, : feed.tokens.shape[1]
                ]
            )
            if keep_hidden and self.hidden is not None:
                hidden.append(self.hidden[:rows, : feed.tokens.shape[1]])
        self.log, self.hidden = log, torch.cat(hidden) if hidden else None
        return torch.cat(said)

    def ready(self, feed: Feed) -> Feed:
        """As it is: each piece has a mask of its own."""
        return feed

    def prefill(self, feed: Feed) -> Tensor:
        """As `CachedModel.prefill`, in chunks along the prompt, too."""
        self._note(feed)
        log, self.log = self.log, None
        chunks = []
        for first in range(0, feed.tokens.shape[1], self.shape.prefill):
            chunk = self._chunk(feed, slice(first, first + self.shape.prefill))
            pieces = self._pieces(chunk, self.shape.prefill)
            chunks.append(
                torch.cat(
                    [super(FixedModel, self).prefill(piece)[:rows] for piece, rows in pieces]
                )[:, : chunk.tokens.shape[1]]
            )
        self.log = log
        return torch.cat(chunks, 1)

    def _chunk(self, feed: Feed, along: slice) -> Feed:
        names = ("tokens", "indices", "positions", "slots", "visible", "valid")
        return replace(feed, **{name: getattr(feed, name)[:, along] for name in names})

    def _pieces(self, feed: Feed, width: int) -> list[tuple[Feed, int]]:
        """The feed as feeds of `shape.rows` rows, and how many of them are real."""
        ordered, size = self._ordered(feed), self.shape.rows
        starts = range(0, len(feed.rows), size)
        return [
            (
                self._fill(ordered, slice(first, first + size), width),
                min(size, len(feed.rows) - first),
            )
            for first in starts
        ]

    def _ordered(self, feed: Feed) -> Feed:
        """`visible` and `order` over what the rows attend to, in the order of their slots, which is that of their tokens."""
        seen = feed.visible.any(1)  # (b, w)
        rank = (seen.cumsum(1) - 1).clamp(max=self.shape.attended - 1)
        slot = torch.arange(seen.shape[1], device=seen.device).expand_as(seen)
        order = torch.full((len(seen), self.shape.attended + 1), self.slots, device=seen.device)
        order.scatter_(
            1, torch.where(seen, rank, self.shape.attended), torch.where(seen, slot, self.slots)
        )
        order = order[:, : self.shape.attended]
        padded = torch.cat(
            [
                feed.visible,
                feed.visible.new_zeros(
                    *feed.visible.shape[:2], self.slots + 1 - feed.visible.shape[2]
                ),
            ],
            2,
        )
        return replace(
            feed,
            order=order,
            visible=padded.gather(2, order[:, None].expand(-1, feed.visible.shape[1], -1)),
        )

    def _fill(self, feed: Feed, rows: slice, width: int) -> Feed:
        """A piece of the feed, filled up to shape.rows rows of `width` tokens that write to the spare slot."""
        fillings = {
            "tokens": 0,
            "indices": 0,
            "positions": 0,
            "slots": self.slots,
            "visible": True,
            "valid": False,
        }
        columns: dict[str, Any] = {}
        for name, by in fillings.items():
            columns[name] = _pad(
                _pad(getattr(feed, name)[rows], width, 1, by), self.shape.rows, 0, by
            )
        order = (
            _pad(feed.order[rows], self.shape.rows, 0, self.slots)
            if feed.order is not None
            else None
        )
        return replace(
            feed, rows=_pad(feed.rows[rows], self.shape.rows, 0, 0), order=order, **columns
        )


def _pad(values: Tensor, size: int, dim: int, by: int) -> Tensor:
    """`values` with `by` appended along `dim` up to `size` entries."""
    shape = list(values.shape)
    shape[dim] = size - shape[dim]
    return torch.cat([values, values.new_full(shape, by)], dim)
