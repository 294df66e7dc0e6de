"""Masking: rejected columns stay in the cache as holes that the mask leaves out (BSP, Su et al. 2310.18813; EAGLE's batch code).

Every round writes the same K + 1 new columns in all rows, and a row keeps the first of them. Nothing moves, and the cache grows by
K + 1 a round whatever was accepted. It is valid as long as positions are explicit; what breaks it in published code is to derive
them from columns, so that they run ahead by the number of holes.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import torch

from specviz.engine.kv.layout import Columns
from specviz.engine.kv.moves import Move
from specviz.engine.state import State
from specviz.engine.strategies.base import Strategy


@dataclass(frozen=True)
class Masking(Strategy):
    """`positions="token"`: a token's position is its index in its row (valid). "column": the columns since its row's first token."""

    positions: str = "token"

    name: ClassVar[str] = "masking"
    description: ClassVar[str] = (
        'rejected columns stay as masked holes; positions="column" counts the holes, as BSP does, and fails'
    )
    cost: ClassVar[str] = "the cache grows by K + 1 slots a row and round, holes included"

    def __post_init__(self) -> None:
        if self.positions not in ("token", "column"):
            raise ValueError(f'positions={self.positions!r} is unknown; choose "token" or "column"')
        super().__post_init__()

    @property
    def valid(self) -> bool:  # type: ignore[override]
        return self.positions == "token"

    def slots(self, longest: int, budget: int, num_draft_tokens: int) -> int:
        """Up to K + 1 columns for each token of the budget, since a round may gain no more than one."""
        return longest + (budget + 1) * (num_draft_tokens + 1)

    def layout(
        self,
        rows: int,
        slots: int,
        num_draft_tokens: int,
        device: torch.device,
        max_positions: int | None,
    ) -> Columns:
        return Columns(
            rows, slots, num_draft_tokens + 1, device, self.positions == "column", max_positions
        )

    def align(self, state: State, fresh: Collection[int] = ()) -> None:
        """Called for new rows: they end at the common frontier, which moves on if a prompt is longer than that."""
        layout, live = _columns(state), state.batch.live
        if len(fresh) == len(live):
            layout.frontier = 0  # nobody is there who remembers older columns
        frontier = max(layout.frontier, max(live[row].length - 1 for row in fresh))
        staying = [row for row in range(len(live)) if row not in fresh]
        if frontier > layout.frontier:
            layout.advance(
                [live[row].length for row in range(len(live))], [0] * len(live), frontier
            )
        for row in sorted(fresh):
            layout.enter(row, live[row].length)
        self._make_room(state, staying)

    def synchronise(self, state: State) -> None:
        """Rejected columns become holes; all rows go on behind the last column that was written."""
        layout, rows = _columns(state), state.batch.rows
        layout.advance(
            [row.length for row in rows],
            [row.gained for row in rows],
            layout.frontier + state.num_draft_tokens + 1,
        )
        if not all(row.finished for row in rows):
            self._make_room(state, range(len(rows)))

    def _make_room(self, state: State, rows: Collection[int]) -> None:
        """When the slab is full, drop the leftmost columns, which hold nothing but padding since the rows that used them have left."""
        layout, live = _columns(state), state.batch.live
        if layout.frontier + state.headroom + 1 > state.caches["target"].slots:
            unused = min(layout.starts[: len(live)])
            span = {row: layout.frontier - layout.starts[row] for row in rows}
            state.move(
                [
                    Move(row, layout.starts[row], row, layout.starts[row] - unused, length)
                    for row, length in span.items()
                    if length
                ]
            )
            layout.shift(len(live), unused)


def _columns(state: State) -> Columns:
    assert isinstance(state.layout, Columns)
    return state.layout
