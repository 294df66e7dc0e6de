"""Rollback: every row is cut to what the worst row of the batch accepted, so that rows never fall out of step (arXiv 2510.22876, on
rollback; early vLLM ideas, transformers issue 32165).

What is thrown away was verified and right: it is drafted and verified again in the next round.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from specviz.engine.strategies.eqspec import EqSpec


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

    def keep(
        self, drafts: Tensor, accepted: Tensor, emitted: Tensor, room: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The batch minimum over rows that have not finished; a longer row keeps the draft that the target accepted there."""
        smallest = accepted.masked_fill(room == 0, emitted.shape[1]).min()
        return accepted.clamp(max=smallest), emitted
