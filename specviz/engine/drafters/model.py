"""A draft model that keeps its K/V across rounds, under every strategy.

At the first step of a round it is fed the last two committed tokens: after a full acceptance the K/V of the last draft is missing
(a draft is proposed, never fed), and feeding two tokens always keeps the shape the same and fills that slot.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from transformers import PreTrainedModel

from specviz.engine.drafters.base import Draft, Drafter
from specviz.engine.pair import Pair
from specviz.engine.state import State


@dataclass(frozen=True)
class ModelDrafter(Drafter):
    """The pair's draft model, drafting greedily: K forwards a round."""

    name: ClassVar[str] = "model"
    description: ClassVar[str] = "the pair's draft model, one forward a draft token"

    def models(self, pair: Pair) -> dict[str, PreTrainedModel]:
        return {"draft": pair.draft}

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        """K forwards of the draft model: the first over two tokens, the others over the token just drafted."""
        drafts, logits = [], []
        tokens, indices = state.batch.last_tokens(2)
        for _ in range(num_draft_tokens):
            step = state.caches["draft"].forward(state.feed(tokens, indices))[:, -1].float()  # (b, V)
            tokens, indices = step.argmax(-1, keepdim=True), indices[:, -1:] + 1
            drafts.append(tokens)
            logits.append(step)
        return Draft(torch.cat(drafts, 1), torch.stack(logits, 1))
