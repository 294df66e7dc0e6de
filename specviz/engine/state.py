"""Everything that a run keeps between rounds, and the operations that touch all of it at once."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from specviz.engine.accept import Outcome
from specviz.engine.batch import Batch, Request
from specviz.engine.faults import Fault
from specviz.engine.features import FeatureStore
from specviz.engine.graphs import PhaseGraphs, key_of, next_window
from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.feed import Feed
from specviz.engine.kv.layout import Layout
from specviz.engine.kv.moves import Move
from specviz.engine.kv.transfer import to_device
from specviz.engine.processors import Processors, Stops
from specviz.engine.sampling import Chooser
from specviz.engine.trees import Tree, columns_of
from specviz.util.levers import NONE as NO_LEVERS
from specviz.util.levers import Levers

T = TypeVar("T")


class Store(Protocol):
    """Keeps K/V of rows that have finished, for later runs of the same texts."""

    def restore(self, state: "State", number: int) -> int:
        """Write what is kept of a row's text. Return how many tokens the target then has."""
        ...

    def keep_finished(self, state: "State") -> None:
        """Keep the K/V of the batch's rows that have finished in this round."""
        ...


@dataclass
class State:
    """The running batch: rows, where their tokens lie, and the KV state of every model involved.

    Attributes:
        caches: the models' KV state by name: "target", and "draft" where the drafter is a model.
            They share `layout`.
        waiting: requests that have not started.
        batch_size: B, rows that may take part in a round.
        max_draft_tokens: the most tokens that a row may draft in any round.
        num_draft_tokens: tokens that a row drafts in the running round; between rounds, in the last
            one.
        extra_draft_tokens: how many of those are beyond K, as some selectors draft them.
        draft_columns: how many slots behind the pending token the round's forwards may write.
        max_columns: the most that `draft_columns` may be in any round.
        block: how many of them a head writes in every round that drafts, whatever K.
        draft_capacity: C, how many drafts of the whole batch the running round may verify.
        eos_token_ids: (E,) int64 on the device.
        chooser: how tokens are chosen from logits: greedily or by sampling.
        processors, stops: what changes a row's logits by its text, and what ends it; None: nothing.
        keep_draft: whether the draft models' K/V is kept. If not, they read all text every round.
        fault: what is broken on purpose; None in every honest run.
        features: the target's hidden states of committed tokens, where the drafter reads them.
        levers: what the run does to take less memory.
        store: K/V of earlier runs, and where that of finished rows goes; None for nowhere.
        fed_first: how many of a row's last tokens the drafter may feed first in a round; they
            need no K/V before.
        round: number of the running round.
        admitted: rows whose request entered in this round.
        decision: what the scheduler decided in this round, an index into the strategy's
            `decisions`.
        passed_over: for a strategy with a pool: rounds that each live request has waited, by its
            index.
        memory: what else the strategy keeps between rounds.
        prepared: what the drafter's `prepare` returned for this round.
        caught_up: tokens that the draft models read in this round because they had missed them.
        graphs: runs the phases, or replays what it captured of them.
    """

    batch: Batch
    layout: Layout
    caches: dict[str, CachedModel]
    waiting: deque[Request]
    batch_size: int
    max_draft_tokens: int
    num_draft_tokens: int
    eos_token_ids: Tensor
    chooser: Chooser
    processors: Processors | None = None
    stops: Stops | None = None
    keep_draft: bool = True
    fault: Fault | None = None
    features: FeatureStore | None = None
    levers: Levers = NO_LEVERS
    store: Store | None = None
    fed_first: int = 2
    round: int = 0
    extra_draft_tokens: int = 0
    draft_columns: int = 0
    max_columns: int = 0
    block: int = 0
    draft_capacity: int = 0
    admitted: list[int] = field(default_factory=list)
    decision: int = 0
    passed_over: Mapping[int, int] = field(default_factory=dict)
    memory: Any = None
    prepared: Any = None
    caught_up: int = 0
    graphs: PhaseGraphs = field(default_factory=PhaseGraphs)

    @property
    def window(self) -> int:
        """Slots that this round's forwards see: up to the furthest one that a draft may take."""
        pending = [self.layout.pending(i, row.length) for i, row in enumerate(self.batch.rows)]
        window = max(pending) + 1 + max(self.num_draft_tokens, self.draft_columns)
        # A graph has the window it was captured with. Rounding up keeps the graphs few, and the
        # mask hides the slots that are too many.
        return next_window(window, self.caches["target"].slots) if self.graphs.active else window

    def run(self, phase: Callable[..., T], *arguments: Any) -> T:
        """Return phase(*arguments), or the result of its replay.

        Besides its arguments, a phase that is replayed may depend on tensors of this state that
        stay in place, on B, on K and on the window.
        """
        if not self.graphs.active:
            return phase(*arguments)
        key = key_of(phase, len(self.batch), self.window, *arguments)
        return self.graphs.run(key, lambda: phase(*arguments))

    # ---- feeds: from tokens to where the layout puts them, and what they attend to ----

    def feed(self, tokens: Tensor, indices: Tensor) -> Feed:
        """Return a feed of tokens (b, q) for the batch, at their indices (b, q) in the rows."""
        valid = torch.ones_like(tokens, dtype=torch.bool)
        return self.feed_rows(self.batch.index, tokens, indices, self.window, valid)

    def feed_rows(
        self, rows: Tensor, tokens: Tensor, indices: Tensor, window: int, valid: Tensor
    ) -> Feed:
        """Return a feed of tokens (b, q) at their indices (b, q) in `rows` (b,); see `Feed`."""
        # A slot says where K/V lies, a position how far the model takes two tokens to be apart.
        # Padding and holes take slots but no positions, so that a row reads as it would alone.
        slots = self.layout.slots(rows, indices)  # (b, q)
        positions = self.layout.positions(rows, indices)  # (b, q)
        visible = self.layout.visible(rows, indices, window)  # (b, q, w)
        requests = [row.request.index for row in self.batch.live]
        feed = Feed(rows, requests, tokens, indices, positions, slots, visible, valid)
        return self._with_faults(feed)

    def feed_nodes(
        self, tokens: Tensor, columns: Tensor, depths: Tensor, seen: Tensor, nodes: Tensor
    ) -> Feed:
        """Return a feed of nodes of trees, whose root is each row's pending token.

        Args:
            tokens: (b, q).
            columns: (b, q), how far behind the pending token's slot each of them goes.
            depths: (b, q), how many tokens each is behind the pending one.
            seen: bool (b, q, m), which of the columns 0..m-1 each attends to.
            nodes: (b, q), of the feed.
        """
        rows, layout = self.batch.index, self.layout
        _, pending = self.batch.last_tokens(1)  # (b, 1)
        indices = pending + depths
        feed = Feed(
            rows=rows,
            requests=[row.request.index for row in self.batch.live],
            tokens=tokens,
            indices=indices,
            positions=layout.positions(rows, indices),
            slots=layout.slots(rows, pending + columns),
            visible=layout.tree_visible(rows, pending, seen, self.window),
            valid=torch.ones_like(tokens, dtype=torch.bool),
            nodes=nodes,
        )
        return self._with_faults(feed)

    def feed_tree(self, tokens: Tensor, tree: Tree) -> Feed:
        """Return a feed of the pending tokens and the drafts of trees, (b, K+1) tokens."""
        columns = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        fault = self.fault
        if fault is None:
            return self.feed_nodes(tokens, columns, tree.depths, tree.ancestors, columns)
        seen = fault.ancestors(self.round, self.batch.index, tree.ancestors)
        depths = fault.depths(self.round, self.batch.index, tree.depths)
        feed = self.feed_nodes(tokens, columns, tree.depths, seen, columns)
        positions = feed.positions - tree.depths + depths
        return replace(feed, positions=positions.clamp(max=self.layout.last_position))

    def _with_faults(self, feed: Feed) -> Feed:
        """Return the feed with the position ids, masks and states that the fault makes of them."""
        if self.fault is None:
            return feed
        positions = self.fault.positions(self.round, feed.rows, feed.positions)
        return replace(
            feed,
            # A learned embedding has no row for a position beyond, and would stop the run.
            positions=positions.clamp(max=self.layout.last_position),
            visible=self.fault.visible(self.round, feed.rows, feed.slots, feed.visible),
            shortened=self.fault.shortened(self.round, feed.rows),
            goes_on=self.fault.goes_on(self.round, feed.rows),
        )

    def keep_features(self, features: Tensor | None, outcome: Outcome) -> None:
        """Keep the features (b, K+1, F) of what was pending and of accepted drafts, if any."""
        if self.features is None or features is None:
            return
        if outcome.path is not None:
            columns = columns_of(outcome.path)[..., None]  # (b, K+1, 1)
            features = features.gather(1, columns.expand_as(features))
        # All K + 1 are written, whatever was accepted: a fixed shape. What is rejected lies from
        # the pending token on, where nothing reads.
        first = self.batch.n - outcome.gained - 1  # (b,)
        offset = torch.arange(features.shape[1], device=features.device)
        self.features.write(self.batch.index, first[:, None] + offset, features)

    def zero_nonfinite(self, rows: Sequence[int]) -> None:
        """Put zeros in place of non-finite K/V in `rows` of the batch."""
        # A mask does not keep NaN out (0 * NaN is NaN), so it would reach the request that gets the
        # slot next. A row that goes on loses nothing: had its committed tokens any such K/V, its
        # logits would be non-finite, too, and it would have ended.
        if rows:
            for cache in self.caches.values():
                cache.zero_nonfinite(rows)
            if self.features is not None:
                self.features.zero_nonfinite(rows)

    # ---- moves: which K/V goes where ----

    def move(self, moves: Sequence[Move]) -> None:
        """Move blocks of K/V in the target's cache, and in the draft models' if those are kept."""
        for name, cache in self.caches.items():
            if name == "target" or self.keep_draft:
                cache.move(moves)

    def compact(self, rows: Sequence[int], stay: bool = False) -> None:
        """Move K/V of accepted drafts of trees to where the layout looks for them.

        That is behind the row's pending token, one slot each. With `stay`, it is where the target
        has written them, and only draft models that write elsewhere have to move any.
        """
        for name, cache in self.caches.items():
            if name != "target" and not self.keep_draft:
                continue
            moves: list[Move] = []
            for i in rows:
                row = self.batch.rows[i]
                # The K/V of what is pending now does not exist yet.
                count = max(row.gained - 1, 0)
                places = (row.path if name == "target" else row.draft_path)[:count]
                due = row.path if stay else range(1, count + 1)
                pending = self.layout.pending(i, row.length - row.gained)
                for at, to in zip(places, due, strict=False):
                    # A draft that the draft model was never fed, at place 0, has no K/V.
                    if at not in (0, to):
                        moves.append(Move(i, pending + at, i, pending + to, 1))
            cache.move(joined(moves))

    def take(self, order: Sequence[int]) -> None:
        """Let live row order[k] become row k, with its K/V. Rows that are not in `order` leave."""
        moves = []
        for k, row in enumerate(order):
            start = self.layout.starts[row]
            length = self.layout.pending(row, self.batch.live[row].length) - start
            if row != k and length:
                moves.append(Move(row, start, k, start, length))
        # K/V first: where it lies follows from the rows and starts as they still are. All moves go
        # in one call, which reads every block before it writes any, so rows may trade places.
        self.move(moves)
        self.batch.take(order)
        self.layout.take(order)
        if self.features is not None:
            self.features.take(to_device(order, self.batch.tokens.device))

    def drop(self, rows: Sequence[int]) -> None:
        """Remove rows. The last live ones take their places, so that rows stay dense."""
        order = list(range(len(self.batch.live)))
        # From the last row down: what fills a gap then is never a row that has to leave, too.
        for row in sorted(rows, reverse=True):
            last = order.pop()
            if row < len(order):
                order[row] = last
        self.take(order)

    def inject_kv_shift(self) -> None:
        """Shift the rows' cached K/V one slot to the right, if the fault "kv" was requested."""
        fault = self.fault
        if fault is None or not fault.active("kv", self.round):
            return
        moves = []
        for i, row in enumerate(self.batch.rows):
            start = self.layout.starts[i]
            length = self.layout.pending(i, row.length) - start - 1
            if fault.includes(i) and not row.finished and length > 0:
                moves.append(Move(i, start, i, start + 1, length))
        self.move(moves)


def joined(moves: Sequence[Move]) -> list[Move]:
    """Return the moves with blocks that lie behind one another, at both ends, as one."""
    found: list[Move] = []
    for move in moves:
        last = found[-1] if found else None
        if (
            last is not None
            and (move.from_row, move.from_slot) == (last.from_row, last.from_slot + last.length)
            and move.to_slot == last.to_slot + last.length
        ):
            found[-1] = last._replace(length=last.length + move.length)
        else:
            found.append(move)
    return found
