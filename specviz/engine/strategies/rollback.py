"""Rollback: every row is cut to what the worst row accepted, so that rows never get out of step.

The tokens that are thrown away were verified and right. They are drafted and verified again in the
next round. Source: arXiv 2510.22876, on rollback; transformers issue 32165.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from specviz.engine.draft import Draft
from specviz.engine.strategies.eqspec import EqSpec
from specviz.engine.trees import Walk


@dataclass(frozen=True)
class Rollback(EqSpec):
    """Right-aligned rows that all gain the same; K/V moves only when rows leave or enter."""

    name: ClassVar[str] = "rollback"
    valid: ClassVar[bool] = True
    capturable: ClassVar[bool] = True
    description: ClassVar[str] = (
        "every row cut to the smallest acceptance of the batch, so that nothing is ragged"
    )
    cost: ClassVar[str] = "throws verified tokens away: the batch is as slow as its worst row"

    def keep(self, draft: Draft, walk: Walk, room: Tensor) -> Walk:
        """Cut all rows to the batch minimum, taken over the rows that have not finished.

        A row that accepted more keeps the draft that the target accepted at the cut.
        """
        # A finished row in a static batch must not hold the others back.
        finished = room == 0  # (b,)
        smallest = walk.accepted.masked_fill(finished, walk.emitted.shape[1]).min()
        return walk._replace(accepted=walk.accepted.clamp(max=smallest))
