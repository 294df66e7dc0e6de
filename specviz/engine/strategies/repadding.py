"""Repadding: the failure of DSD (Yan et al. 2402.01528) as arXiv 2510.22876 describes it, each of its three mistakes a switch.

Rows are padded on the left until all end in one column, as in EQSPEC, but
- without unpadding first: each round adds padding for the longest gain and takes none away, so that padding accumulates;
- with a mask of ones: padding is attended to, and counts in the positions that follow from the mask;
- with a bonus token of the draft: the drafts up to and including the first mismatch are kept, and nothing follows a full acceptance.

The published code computes the whole rectangle anew every round, pad tokens included. Here K/V is kept and moved with the rows, as in
the other strategies, so what a mask of ones attends to in the padding is whatever the slab holds there: zeros, or what rows left behind.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from specviz.engine.kv.layout import Layout, Ones
from specviz.engine.state import State
from specviz.engine.strategies.eqspec import EqSpec, end_at
from specviz.util.validate import require_bool


@dataclass(frozen=True)
class Repadding(EqSpec):
    """All three mistakes are on by default. With `ones_mask` and `draft_bonus` off the text is right; with all three off this is EQSPEC."""

    skip_unpadding: bool = True
    ones_mask: bool = True
    draft_bonus: bool = True

    name: ClassVar[str] = "repadding"
    description: ClassVar[str] = (
        "repads without unpadding, mask of ones, bonus from the draft: the failure of DSD, each a switch"
    )
    cost: ClassVar[str] = "moves K/V every round, and padding accumulates"

    def __post_init__(self) -> None:
        for name in ("skip_unpadding", "ones_mask", "draft_bonus"):
            require_bool(name, getattr(self, name))
        super().__post_init__()

    @property
    def valid(self) -> bool:  # type: ignore[override]
        return not (self.ones_mask or self.draft_bonus)

    def slots(self, longest: int, budget: int, num_draft_tokens: int) -> int:
        """Padding grows by K + 1 a round at the most, until rows enter."""
        return longest + (budget + 1) * (num_draft_tokens + 1)

    def layout(
        self,
        rows: int,
        slots: int,
        num_draft_tokens: int,
        device: torch.device,
        max_positions: int | None,
    ) -> Layout:
        return Ones(rows, device, max_positions) if self.ones_mask else Layout(rows, device)

    def keep(
        self, drafts: Tensor, accepted: Tensor, emitted: Tensor, room: Tensor
    ) -> tuple[Tensor, Tensor]:
        """With `draft_bonus`: drafts up to and including the first mismatch, and all K after a full acceptance."""
        if not self.draft_bonus or drafts.shape[1] == 0:
            return accepted, emitted
        return accepted.clamp(max=drafts.shape[1] - 1), torch.cat([drafts, emitted[:, -1:]], 1)

    def align(self, state: State, fresh: Collection[int] = ()) -> None:
        """Pad every row to the end of the row that gained most; new rows make all of them start over, unpadded."""
        rows = state.batch.rows
        if fresh or not self.skip_unpadding:
            return super().align(state, fresh)
        staying = [i for i, row in enumerate(rows) if not (row.finished and self.refill)]
        end_at(
            state,
            max((state.layout.starts[i] + rows[i].length for i in staying), default=0),
            staying,
        )
