"""Fault injection: break one invariant of a valid strategy on purpose, and nothing else."""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from specviz.engine.draft import Draft
from specviz.engine.trees import Walk, columns_of

FAULTS = ("positions", "mask", "kv", "bonus")
# Those that only layers with states, or with a window, can have.
STATE, WINDOW = "state", "window"
# Those that only drafts that branch can have.
TREE_FAULTS = ("tree_mask", "tree_positions", "compaction")


@dataclass(frozen=True)
class Fault:
    """What breaks, in which rows of the batch, and from which round on.

    Attributes:
        kind: "positions": position ids run ahead, by one more each round, as if a hole had been
            counted.
            "mask": every query also sees the slot after its own.
            "kv": after each round the row's cached K/V moves one slot to the right.
            "bonus": after a rejection the draft's token is kept instead of the target's.
            "state": a row goes on from the states that its last forward left, rejected drafts
            included, instead of those after its last accepted token.
            "window": windows are too short, by one token more each round, as if rejected drafts
            counted; chunks begin too early by as many.
            "tree_mask": a draft of a tree sees all drafts before it, not only its ancestors.
            "tree_positions": position ids count the drafts before one, not those it follows.
            "compaction": accepted drafts of a tree stay where they were verified.
        rows: the rows of the batch that break, None for all.
        from_round: the first round that breaks.
    """

    kind: str
    rows: Collection[int] | None
    from_round: int

    def active(self, kind: str, number: int) -> bool:
        """Return whether this is that kind of fault, and it breaks round `number`."""
        return kind == self.kind and number >= self.from_round

    def includes(self, row: int) -> bool:
        """Return whether it breaks that row of the batch."""
        return self.rows is None or row in self.rows

    def positions(self, number: int, rows: Tensor, positions: Tensor) -> Tensor:
        """Return the position ids (b, q) of `rows` (b,) as the model is given them."""
        # The drift grows: a constant one would not change a model with relative positions.
        drift = number - self.from_round + 1
        return positions + drift * self._hit("positions", number, rows)[:, None]

    def visible(self, number: int, rows: Tensor, slots: Tensor, visible: Tensor) -> Tensor:
        """Return the mask (b, q, w) for queries at `slots` (b, q) as the model is given it."""
        # The next slot holds the following draft, or what an earlier round left there.
        slot = torch.arange(visible.shape[-1], device=visible.device)
        next_slot = slot == slots[:, :, None] + 1
        return visible | (next_slot & self._hit("mask", number, rows)[:, None, None])

    def shortened(self, number: int, rows: Tensor) -> Tensor | None:
        """Return by how many tokens the windows of `rows` (b,) are too short; None for none."""
        drift = number - self.from_round + 1
        return drift * self._hit(WINDOW, number, rows) if self.active(WINDOW, number) else None

    def goes_on(self, number: int, rows: Tensor) -> Tensor | None:
        """Return which of `rows` (b,) go on from the states left last, bool; None for none."""
        return self._hit(STATE, number, rows) if self.active(STATE, number) else None

    def ancestors(self, number: int, rows: Tensor, ancestors: Tensor) -> Tensor:
        """Return which columns of a tree (b, N+1, N+1) each node attends to."""
        causal = torch.ones_like(ancestors).tril()
        return torch.where(self._hit("tree_mask", number, rows)[:, None, None], causal, ancestors)

    def depths(self, number: int, rows: Tensor, depths: Tensor) -> Tensor:
        """Return how far behind the pending token the nodes (b, N+1) of a tree are said to be."""
        columns = torch.arange(depths.shape[1], device=depths.device).expand_as(depths)
        return torch.where(self._hit("tree_positions", number, rows)[:, None], columns, depths)

    def bonus(self, number: int, draft: Draft, walk: Walk) -> Walk:
        """Return the walk with the draft's own token where the target rejected it.

        Of several rejected drafts of a tree it is the first one.
        """
        drafts, accepted = draft.tokens, walk.accepted
        b, k = drafts.shape
        rejected = accepted
        number_of = torch.arange(k, device=drafts.device)
        if walk.path is not None and draft.parents is not None:
            last = columns_of(walk.path).gather(1, accepted[:, None])  # (b, 1)
            # Behind all of them where the last accepted one has no children.
            is_child = draft.parents + 1 == last
            rejected = number_of.masked_fill(~is_child, k).amin(1) if k else accepted
        # After a full acceptance there is no such draft: the target's token stays.
        has_one = rejected < (k if draft.lengths is None else draft.lengths)
        hit = has_one & self._hit("bonus", number, torch.arange(b, device=drafts.device))
        wrong = drafts.gather(1, rejected.clamp(max=k - 1)[:, None]) if k else walk.emitted[:, :1]
        index = torch.arange(k + 1, device=drafts.device)
        is_bonus = (index == accepted[:, None]) & hit[:, None]
        return walk._replace(emitted=torch.where(is_bonus, wrong, walk.emitted))

    def _hit(self, kind: str, number: int, rows: Tensor) -> Tensor:
        """Return which of `rows` (b,) break: (b,) bool."""
        if not self.active(kind, number):
            return torch.zeros_like(rows, dtype=torch.bool)
        if self.rows is None:
            return torch.ones_like(rows, dtype=torch.bool)
        return torch.isin(rows, torch.tensor(list(self.rows), dtype=torch.long, device=rows.device))
