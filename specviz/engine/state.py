"""Everything that a run keeps between rounds, and the few operations that touch all of it at once."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from specviz.engine.accept import Chooser
from specviz.engine.batch import Batch, Request
from specviz.engine.faults import Fault
from specviz.engine.graphs import PhaseGraphs, next_window
from specviz.engine.kv.cache import CachedModel, Feed
from specviz.engine.kv.layout import Layout
from specviz.engine.kv.moves import Move
from specviz.engine.kv.transfer import to_device

T = TypeVar("T")


@dataclass
class State:
    """The running batch: rows, where their tokens lie, and the KV state of every model that is involved.

    Attributes:
        caches: the models' KV state by name: "target", and "draft" where the drafter is a model. They share `layout`.
        waiting: requests that have not started.
        batch_size: B, rows that may take part in a round.
        headroom: slots beyond a row's n that a round may write, the largest K.
        num_draft_tokens: K of the running round; between rounds, of the last one.
        keep_draft: whether K/V of the draft models is kept from round to round; without, they read every row's text again in each round.
        eos_token_ids: (E,) int64 on the device.
        chooser: how tokens are chosen from logits: greedy or by sampling.
        last_position: the largest position id that the models know.
        fault: what is broken on purpose, None in every honest run.
        hidden: (R, D), the target's last hidden state at each row's last token but one, from which its pending token was chosen; None
            unless the drafter asks for it.
        round: number of the running round.
        admitted: rows whose request entered in this round.
        decision: what the scheduler decided in this round, an index into the strategy's `decisions`.
        passed_over: for a strategy with a pool: rounds that each live request has waited, by the request's index.
        memory: what else the strategy keeps between rounds.
        prepared: what the drafter's `prepare` returned for this round.
        caught_up: tokens that the draft models were shown in this round because they had missed them.
        graphs: runs the phases, or replays what it captured of them.
    """

    batch: Batch
    layout: Layout
    caches: dict[str, CachedModel]
    waiting: deque[Request]
    batch_size: int
    headroom: int
    num_draft_tokens: int
    eos_token_ids: Tensor
    chooser: Chooser
    last_position: int
    keep_draft: bool = True
    fault: Fault | None = None
    hidden: Tensor | None = None
    round: int = 0
    admitted: list[int] = field(default_factory=list)
    decision: int = 0
    passed_over: Mapping[int, int] = field(default_factory=dict)
    memory: Any = None
    prepared: Any = None
    caught_up: int = 0
    graphs: PhaseGraphs = field(default_factory=PhaseGraphs)

    @property
    def window(self) -> int:
        """Slots that this round's forwards see: up to the last draft of the row that reaches furthest."""
        pending = (self.layout.pending(i, row.length) for i, row in enumerate(self.batch.rows))
        window = max(pending) + 1 + self.num_draft_tokens
        return next_window(window, self.caches["target"].slots) if self.graphs.active else window

    def run(self, phase: Callable[..., T], *arguments: Any) -> T:
        """phase(*arguments), or its replay: besides them it reads tensors of this state that stay in place, B, K and the window."""
        if not self.graphs.active:
            return phase(*arguments)
        sizes = (
            value.shape if isinstance(value, Tensor) else value
            for value in arguments
            if isinstance(value, Tensor | int)
        )
        return self.graphs.run(
            (phase.__qualname__, len(self.batch), self.window, *sizes), lambda: phase(*arguments)
        )

    def feed(self, tokens: Tensor, indices: Tensor) -> Feed:
        """Tokens (b, q) of all rows of the batch, at their indices (b, q) in their rows."""
        return self._feed(
            self.batch.index,
            tokens,
            indices,
            self.window,
            torch.ones_like(tokens, dtype=torch.bool),
        )

    def _feed(
        self, rows: Tensor, tokens: Tensor, indices: Tensor, window: int, valid: Tensor
    ) -> Feed:
        slots, positions = self.layout.slots(rows, indices), self.layout.positions(rows, indices)
        visible = self.layout.visible(rows, indices, window)
        if self.fault is not None:
            positions = self.fault.positions(self.round, rows, positions).clamp(
                max=self.last_position
            )
            visible = self.fault.visible(self.round, rows, slots, visible)
        requests = [row.request.index for row in self.batch.live]
        return Feed(rows, requests, tokens, indices, positions, slots, visible, valid)

    def prefill(self, rows: Sequence[int]) -> None:
        """Write the K/V of all tokens but the last of `rows` into every cache, batch_size rows at a time; the last one is pending.

        Draft models are left out while nothing is drafted, and where they keep nothing: `catch_up` shows them what they missed.
        """
        names = list(self.caches) if self.keep_draft and self.num_draft_tokens else ["target"]
        for i in range(0, len(rows), self.batch_size):
            if self.hidden is not None:
                self.hidden[to_device(rows[i : i + self.batch_size], self.hidden.device)] = 0
            self._read(
                rows[i : i + self.batch_size], [0] * len(rows[i : i + self.batch_size]), names
            )

    def catch_up(self) -> None:
        """Let the draft models read what they have missed of the batch's rows, before they draft."""
        names = [name for name in self.caches if name != "target"]
        firsts = [row.held if self.keep_draft else 0 for row in self.batch.rows]
        behind = (
            [i for i, row in enumerate(self.batch.rows) if firsts[i] < row.length - 2]
            if names
            else []
        )
        self.caught_up = len(behind) * max(
            (self.batch.live[i].length - 1 - firsts[i] for i in behind), default=0
        )
        if behind:
            self._read(behind, [firsts[i] for i in behind], names)

    def _read(self, rows: Sequence[int], firsts: Sequence[int], names: Sequence[str]) -> None:
        """One prefill of the caches `names` over each row's tokens from the index in `firsts` up to the last but one."""
        counts = [self.batch.live[row].length - 1 for row in rows]
        longest = max(count - first for count, first in zip(counts, firsts, strict=True))
        if longest == 0:
            return
        device = self.batch.tokens.device
        index, first, ends = (to_device(values, device) for values in (rows, firsts, counts))
        ends = ends[:, None]
        along = first[:, None] + torch.arange(longest, device=device)
        indices = torch.minimum(
            along, ends
        )  # the filling of shorter rows lands on the pending token's slot, which is written next
        window = 1 + max(
            self.layout.pending(row, count + 1) for row, count in zip(rows, counts, strict=True)
        )
        feed = self._feed(
            index, self.batch.tokens[index].gather(1, indices), indices, window, along < ends
        )
        if names != ["target"]:
            for row, count in zip(rows, counts, strict=True):
                self.batch.live[row].held = count
        for name in names:
            hidden = self.caches[name].prefill(feed)
            if name == "target" and self.hidden is not None:
                last = hidden.gather(
                    1, (ends - 1).clamp(min=0)[:, :, None].expand(-1, -1, hidden.shape[-1])
                )[:, 0]
                self.hidden[index] = last.masked_fill(
                    ends == 0, 0
                )  # nothing stands before the only token of a prompt

    def zero_nonfinite(self, rows: Sequence[int]) -> None:
        """Put zeros in place of K/V that is no number in `rows` of the batch: a mask would not stop it from whoever gets the slot next.

        A row that goes on has none among its committed tokens, or its logits would be none either.
        """
        for cache in self.caches.values() if rows else ():
            cache.zero_nonfinite(rows)

    def move(self, moves: Sequence[Move]) -> None:
        """Move blocks of K/V in every cache that is kept alike."""
        for name, cache in self.caches.items():
            if name == "target" or self.keep_draft:
                cache.move(moves)

    def take(self, order: Sequence[int]) -> None:
        """Let live row order[k] become row k, with its K/V; rows that are not named leave."""
        moves = []
        for k, row in enumerate(order):
            n, start = self.batch.live[row].length, self.layout.starts[row]
            length = self.layout.pending(row, n) - start
            if row != k and length:
                moves.append(Move(row, start, k, start, length))
        self.move(moves)
        self.batch.take(order)
        self.layout.take(order)
        if self.hidden is not None:
            self.hidden[: len(order)] = self.hidden[to_device(order, self.hidden.device)]

    def drop(self, rows: Sequence[int]) -> None:
        """Remove rows; the last live ones take their places, so that rows stay dense."""
        order = list(range(len(self.batch.live)))
        for row in sorted(rows, reverse=True):
            last = order.pop()
            if row < len(order):
                order[row] = last
        self.take(order)

    def inject_kv_shift(self) -> None:
        """The fault "kv": cached K/V of the rows that it hits lands one slot too far to the right."""
        fault, moves = self.fault, []
        if fault is not None and fault.active("kv", self.round):
            for i, row in enumerate(self.batch.rows):
                start, length = (
                    self.layout.starts[i],
                    self.layout.pending(i, row.length) - self.layout.starts[i] - 1,
                )
                if fault.includes(i) and not row.finished and length > 0:
                    moves.append(Move(i, start, i, start + 1, length))
        self.move(moves)
