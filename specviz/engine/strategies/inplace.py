"""In place: rows aligned on the left, K/V written at each row's own positions; nothing ever moves.

The slot of a token is its index. The K/V of a rejected draft stays where it is. It is invisible,
since its slot is at or beyond the row's n, and the next round overwrites it. This needs a cache
that can be written at a different column in every row.

Of a tree, an accepted draft moves one or more slots to the left where drafts that were not accepted
stood between it and its parent.
"""

from dataclasses import dataclass
from typing import ClassVar

from specviz.engine.strategies.base import Strategy


@dataclass(frozen=True)
class InPlace(Strategy):
    """Starts every row at slot 0 and leaves it there: the defaults of `Strategy`."""

    name: ClassVar[str] = "inplace"
    valid: ClassVar[bool] = True
    capturable: ClassVar[bool] = True
    description: ClassVar[str] = (
        "K/V written at per-row positions; rejected slots are overwritten, nothing ever moves"
    )
    cost: ClassVar[str] = "a cache that can be written at another column in every row"
