"""Masking: rejected columns stay in the cache as holes that the mask leaves out.

Every round writes the same K + 1 new columns in all rows, and a row keeps the first of them.
Nothing moves, and the cache grows by K + 1 a round whatever was accepted. This is valid as long as
positions are explicit. Published code breaks it by deriving positions from columns, so that they
run ahead by the number of holes. Source: BSP (Su et al., arXiv 2310.18813); EAGLE's batch code.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import torch

from specviz.engine.kv.layout import Columns
from specviz.engine.kv.moves import Move
from specviz.engine.state import State
from specviz.engine.strategies.base import Strategy
from specviz.util.validate import require_choice


@dataclass(frozen=True)
class Masking(Strategy):
    """Leaves rejected columns where they are.

    Attributes:
        positions: "token": a token's position is its index in its row, which is valid. "column":
            it is the number of columns since the row's first token, holes included.
    """

    positions: str = "token"

    name: ClassVar[str] = "masking"
    right_aligned: ClassVar[bool] = True
    description: ClassVar[str] = (
        "rejected columns stay as masked holes; "
        'positions="column" counts the holes, as BSP does, and fails'
    )
    cost: ClassVar[str] = "the cache grows by K + 1 slots a row and round, holes included"

    def __post_init__(self) -> None:
        require_choice("positions", self.positions, ("token", "column"))
        super().__post_init__()

    @property
    def valid(self) -> bool:  # type: ignore[override]
        return self.positions == "token"

    @property
    def takes_trees(self) -> bool:  # type: ignore[override]
        # A column says nothing of how deep in a tree its token is.
        return self.positions == "token" and self.break_invariant != "compaction"

    def slots(self, longest: int, budget: int, max_draft_tokens: int) -> int:
        """Allow K + 1 columns for each token of the budget: a round may gain a single token."""
        return longest + (budget + 1) * (max_draft_tokens + 1)

    def layout(
        self,
        rows: int,
        slots: int,
        max_draft_tokens: int,
        device: torch.device,
        max_positions: int | None,
    ) -> Columns:
        by_column = self.positions == "column"
        return Columns(rows, slots, max_draft_tokens + 1, device, by_column, max_positions)

    def align(self, state: State, fresh: Collection[int] = ()) -> None:
        """End new rows at the common frontier, which moves on if a prompt reaches further."""
        layout = _columns(state)
        live = state.batch.live
        if len(fresh) == len(live):
            # No row is left that uses the old columns.
            layout.frontier = 0
        frontier = max(layout.frontier, max(live[row].length - 1 for row in fresh))
        if frontier > layout.frontier:
            # The old rows gain nothing by this: the columns up to the new frontier become holes.
            layout.advance([row.length for row in live], [0] * len(live), frontier)
        for row in sorted(fresh):
            layout.enter(row, live[row].length)
        staying = [row for row in range(len(live)) if row not in fresh]
        self._make_room(state, staying)

    def compact(self, state: State) -> None:
        """Leave accepted drafts of trees in their columns; the others become holes.

        Only a draft model that keeps its K/V in other columns than the target has to move any.
        """
        state.compact(self.compacted(state), stay=True)

    def synchronise(self, state: State) -> None:
        """Turn rejected columns into holes; all rows go on behind the last column written."""
        layout = _columns(state)
        rows = state.batch.rows
        lengths = [row.length for row in rows]
        gained = [row.gained for row in rows]
        # By K + 1 for all, however few a row gained. So one rectangle suffices again, and what a
        # row did not gain stays a hole for good: closing it would move K/V, which is EQSPEC.
        paths = {i: row.path for i, row in enumerate(rows) if row.path}
        frontier = layout.frontier + state.num_draft_tokens + 1
        layout.advance(lengths, gained, frontier, paths)
        if not all(row.finished for row in rows):
            self._make_room(state, range(len(rows)))

    def _make_room(self, state: State, rows: Collection[int]) -> None:
        """Drop the leftmost columns when the slab is full."""
        layout = _columns(state)
        if layout.frontier + state.max_columns + 1 <= state.caches["target"].slots:
            return
        live = len(state.batch.live)
        # They hold nothing but padding by now: the rows that used them have left.
        unused = min(layout.starts[:live])
        moves = []
        for row in rows:
            start = layout.starts[row]
            length = layout.frontier - start
            if length:
                moves.append(Move(row, start, row, start - unused, length))
        state.move(moves)
        layout.shift(live, unused)


def _columns(state: State) -> Columns:
    assert isinstance(state.layout, Columns)
    return state.layout
