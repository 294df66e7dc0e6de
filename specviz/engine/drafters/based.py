"""Drafters that grow trees, from a draft model or from a draft head."""

from dataclasses import dataclass, field
from typing import ClassVar

from transformers import PreTrainedModel

from specviz.engine.drafters.base import Drafter, Task
from specviz.engine.drafters.heads import (
    CloverDrafter,
    Eagle3Drafter,
    HeadDrafter,
    MedusaDrafter,
)
from specviz.engine.drafters.model import ModelDrafter
from specviz.engine.features import Features
from specviz.engine.models.pair import Pair
from specviz.util.validate import require_choice

_CHAINS: dict[str, type[ModelDrafter] | type[HeadDrafter]] = {
    kind.name: kind for kind in (ModelDrafter, Eagle3Drafter, MedusaDrafter, CloverDrafter)
}


@dataclass(frozen=True)
class BasedDrafter(ModelDrafter):
    """Grow drafts from what `base` names.

    Attributes:
        base: "model" for the pair's draft model, or the name of a head.

    Raises:
        ValueError: an option cannot be used.
    """

    base: str = field(default="model", kw_only=True)

    branches: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_choice("base", self.base, _CHAINS)

    @property
    def _chain(self) -> Drafter:
        """The drafter of chains from the same base."""
        return _CHAINS[self.base]()

    @property
    def draft_kv(self) -> str:
        return self._chain.draft_kv

    @property
    def rereads_drafts(self) -> bool:
        return self._chain.rereads_drafts

    def features(self, pair: Pair) -> Features | None:
        return self._chain.features(pair)

    def fed_first(self, max_draft_tokens: int) -> int:
        return self._chain.fed_first(max_draft_tokens)

    def models(self, pair: Pair) -> dict[str, PreTrainedModel]:
        return self._chain.models(pair)

    def check_depth(self, depth: int, task: Task) -> None:
        """Raise ValueError if the base cannot draft `depth` tokens in a row."""
        chain = self._chain
        if isinstance(chain, HeadDrafter):
            chain.check_depth(depth, task.pair)
