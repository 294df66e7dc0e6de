"""What a drafter is: whoever proposes K tokens for each row, without knowing how rows are kept in step."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.engine.pair import Pair
from specviz.engine.state import State


@dataclass(frozen=True)
class Draft:
    """A round's proposals: `tokens` (b, K) int64; `logits` (b, K, V) float32 that they were chosen from, None without a model."""

    tokens: Tensor
    logits: Tensor | None = None


@dataclass(frozen=True)
class Drafter:
    """Proposes tokens. A drafter of your own subclasses this and overrides `propose`, and `models` if it needs K/V kept."""

    name: ClassVar[str] = ""
    description: ClassVar[str] = ""

    def models(self, pair: Pair) -> dict[str, PreTrainedModel]:
        """Models whose K/V the loop keeps for this drafter, by the name under which they stand in `state.caches`."""
        return {}

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        """K proposals for each live row, given its committed tokens."""
        raise NotImplementedError


@dataclass(frozen=True)
class NoDrafter(Drafter):
    """Proposes nothing, whatever K: what autoregressive decoding uses."""

    name: ClassVar[str] = "none"
    description: ClassVar[str] = "no proposals"

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        b = len(state.batch)
        return Draft(torch.empty(b, 0, dtype=torch.long, device=state.batch.tokens.device))
