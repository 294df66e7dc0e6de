"""Batched decoding without speculation: one token a row and round. The reference that the others are measured against."""

from dataclasses import dataclass
from typing import ClassVar

from specviz.engine.strategies.inplace import InPlace


@dataclass(frozen=True)
class Autoregressive(InPlace):
    """Every row emits the target's choice after its last token; nothing is drafted, so rows never fall out of step."""

    name: ClassVar[str] = "autoregressive"
    description: ClassVar[str] = "no speculation: one target forward a token, all rows together"
    cost: ClassVar[str] = "one target forward a token"
    drafts: ClassVar[bool] = False
    capturable: ClassVar[bool] = True
