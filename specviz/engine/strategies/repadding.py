"""Repadding: the failure of DSD (Yan et al., arXiv 2402.01528) as arXiv 2510.22876 describes it.

Rows are padded on the left until all end in one column, as in EQSPEC, but with three mistakes:
- no unpadding first: each round adds padding for the longest gain and removes none, so padding
  accumulates;
- a mask of ones: padding is attended to, and counts in the positions that follow from the mask;
- a bonus token from the draft: the drafts up to and including the first mismatch are kept, and
  nothing follows a full acceptance.

The published code computes the whole rectangle again every round, pad tokens included. Here K/V is
kept and moved with the rows, as in the other strategies. So the padding that a mask of ones attends
to holds zeros, or what earlier rows left in the slab.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from specviz.engine.draft import Draft
from specviz.engine.kv.layout import Layout, Ones
from specviz.engine.state import State
from specviz.engine.strategies.eqspec import EqSpec, end_at
from specviz.engine.trees import Walk
from specviz.util.validate import require_bool


@dataclass(frozen=True)
class Repadding(EqSpec):
    """Makes each mistake that is switched on; by default all three.

    With `ones_mask` and `draft_bonus` off the text is right. With all three off this is EQSPEC.
    """

    skip_unpadding: bool = True
    ones_mask: bool = True
    draft_bonus: bool = True

    name: ClassVar[str] = "repadding"
    description: ClassVar[str] = (
        "repads without unpadding, mask of ones, bonus from the draft: "
        "the failure of DSD, each a switch"
    )
    cost: ClassVar[str] = "moves K/V every round, and padding accumulates"

    def __post_init__(self) -> None:
        require_bool("skip_unpadding", self.skip_unpadding)
        require_bool("ones_mask", self.ones_mask)
        require_bool("draft_bonus", self.draft_bonus)
        super().__post_init__()

    @property
    def valid(self) -> bool:  # type: ignore[override]
        return not (self.ones_mask or self.draft_bonus)

    @property
    def takes_trees(self) -> bool:  # type: ignore[override]
        return self.valid

    def slots(self, longest: int, budget: int, max_draft_tokens: int) -> int:
        """Allow padding to grow by K + 1 in every round until rows enter."""
        return longest + (budget + 1) * (max_draft_tokens + 1)

    def layout(
        self,
        rows: int,
        slots: int,
        max_draft_tokens: int,
        device: torch.device,
        max_positions: int | None,
    ) -> Layout:
        kind = Ones if self.ones_mask else Layout
        return kind(rows, device, max_positions)

    def keep(self, draft: Draft, walk: Walk, room: Tensor) -> Walk:
        """Keep the first mismatch too with `draft_bonus`, and nothing behind a full acceptance."""
        k = draft.tokens.shape[1]
        if not self.draft_bonus or k == 0:
            return walk
        # `clip` lets a row gain accepted + 1 tokens. One of them is now the rejected draft, and
        # after K accepted ones there must be none, hence K - 1.
        emitted = torch.cat([draft.tokens, walk.emitted[:, -1:]], 1)
        return walk._replace(accepted=walk.accepted.clamp(max=k - 1), emitted=emitted)

    def align(self, state: State, fresh: Collection[int] = ()) -> None:
        """Pad every row to the end of the one that gained most; new rows start all over."""
        if fresh or not self.skip_unpadding:
            super().align(state, fresh)
            return
        rows = state.batch.rows
        staying = [i for i, row in enumerate(rows) if not (row.finished and self.refill)]
        # Without unpadding, starts only ever grow: the end follows the row that reaches furthest,
        # not the one with most tokens.
        end = max((state.layout.starts[i] + rows[i].length for i in staying), default=0)
        end_at(state, end, staying)
