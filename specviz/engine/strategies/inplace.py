"""Rows aligned on the left, K/V written at each row's own positions: a ragged acceptance needs no synchronisation at all.

The slot of a token is its index. A rejected draft's K/V stays where it is, is not visible (its slot is at or beyond the row's n),
and is overwritten by the next round. The price is a cache that can be written at a different column in every row.
"""

from dataclasses import dataclass
from typing import ClassVar

from specviz.engine.strategies.base import Strategy


@dataclass(frozen=True)
class InPlace(Strategy):
    """Nothing to align: every row starts at slot 0 and stays there."""

    name: ClassVar[str] = "inplace"
    valid: ClassVar[bool] = True
    capturable: ClassVar[bool] = True
    description: ClassVar[str] = (
        "K/V written at per-row positions; rejected slots are overwritten, nothing ever moves"
    )
    cost: ClassVar[str] = "a cache that can be written at another column in every row"
