"""Batched decoding without speculation: one token a row and round.

It is the reference that the other strategies are measured against.
"""

from dataclasses import dataclass
from typing import ClassVar

from specviz.engine.strategies.inplace import InPlace


@dataclass(frozen=True)
class Autoregressive(InPlace):
    """Emits the target's next token in every row; nothing is drafted, so rows stay in step."""

    name: ClassVar[str] = "autoregressive"
    description: ClassVar[str] = "no speculation: one target forward a token, all rows together"
    cost: ClassVar[str] = "one target forward a token"
    drafts: ClassVar[bool] = False
    capturable: ClassVar[bool] = True
