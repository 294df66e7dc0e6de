"""Everything that a run keeps between rounds, and the few operations that touch all of it at once."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specviz.engine.batch import Batch, Request
from specviz.engine.cache import CachedModel, Feed, Move
from specviz.engine.layout import Layout


@dataclass
class State:
    """The running batch: rows, where their tokens lie, and the KV state of every model that is involved.

    Attributes:
        caches: the models' KV state by name: "target", and "draft" where the drafter is a model. They share `layout`.
        waiting: requests that have not started.
        headroom: slots beyond a row's n that a round may write, K.
        eos_token_ids: (E,) int64 on the device.
        admitted: rows whose request entered in this round.
    """

    batch: Batch
    layout: Layout
    caches: dict[str, CachedModel]
    waiting: deque[Request]
    headroom: int
    eos_token_ids: Tensor
    admitted: list[int] = field(default_factory=list)

    @property
    def window(self) -> int:
        """Slots that this round's forwards see: up to the last draft of the row that reaches furthest."""
        ends = (start + row.length for start, row in zip(self.layout.starts, self.batch.rows, strict=False))
        return max(ends) + self.headroom

    def feed(self, tokens: Tensor, indices: Tensor) -> Feed:
        """Tokens (b, q) of all live rows, at their indices (b, q) in their rows."""
        rows = self.batch.index
        return Feed(
            rows=rows,
            tokens=tokens,
            indices=indices,
            positions=self.layout.positions(rows, indices),
            slots=self.layout.slots(rows, indices),
            visible=self.layout.visible(rows, indices, self.window),
            valid=torch.ones_like(tokens, dtype=torch.bool),
        )

    def prefill(self, rows: Sequence[int]) -> None:
        """Write the K/V of all tokens but the last of `rows` into every cache; the last one is pending."""
        counts = [self.batch.rows[row].length - 1 for row in rows]
        if max(counts, default=0) == 0:
            return
        device = self.batch.tokens.device
        index = torch.tensor(list(rows), device=device)
        indices = torch.arange(max(counts), device=device).expand(len(rows), -1)
        valid = indices < torch.tensor(counts, device=device)[:, None]
        slots = self.layout.slots(index, indices)
        feed = Feed(
            rows=index,
            tokens=self.batch.tokens[index, : max(counts)],
            indices=indices,
            positions=self.layout.positions(index, indices),
            slots=slots.clamp(max=self.batch.tokens.shape[1] - 1),  # filling of shorter rows lands behind their n and is overwritten
            visible=self.layout.visible(index, indices, self.window),
            valid=valid,
        )
        for cache in self.caches.values():
            cache.prefill(feed)

    def move(self, moves: Sequence[Move]) -> None:
        """Move blocks of K/V in every cache alike."""
        for cache in self.caches.values():
            cache.move(moves)

    def drop_row(self, row: int) -> None:
        """Remove a row; the last live row takes its place, so that rows stay dense."""
        last = len(self.batch) - 1
        if row != last:
            n, start = self.batch.rows[last].length, self.layout.starts[last]
            self.move([Move(last, start, row, start, n - 1)])
            self.batch.move_row(last, row)
            starts = self.layout.starts[: last + 1]
            starts[row] = start
            self.layout.set_starts(starts)
        self.batch.rows.pop()
