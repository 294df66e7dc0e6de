"""A draft model that keeps its K/V across rounds, under every strategy.

At the first step of a round it is fed the last two committed tokens: after a full acceptance the K/V of the last draft is missing
(a draft is proposed, never fed), and feeding two tokens always keeps the shape the same and fills that slot.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.engine.drafters.base import Draft, Drafter
from specviz.engine.models.pair import Pair
from specviz.engine.state import State
from specviz.util.validate import require_bool


@dataclass(frozen=True)
class ModelDrafter(Drafter):
    """The pair's draft model, K forwards a round.

    `keep_cache=False` is what it costs to do without: no K/V is kept, and before each round the model reads every row's whole text again.
    """

    keep_cache: bool = field(default=True, kw_only=True)

    name: ClassVar[str] = "model"
    description: ClassVar[str] = "the pair's draft model, one forward a draft token"
    capturable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_bool("keep_cache", self.keep_cache)

    @property
    def keeps_cache(self) -> bool:
        return self.keep_cache

    def models(self, pair: Pair) -> dict[str, PreTrainedModel]:
        return {"draft": pair.draft}

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        """The first forward goes over two tokens, the others over the token just drafted."""
        return run_ahead(state, "draft", num_draft_tokens, fed_first=2)


def run_ahead(
    state: State, model: str, num_tokens: int, fed_first: int, instead: Tensor | None = None
) -> Draft:
    """One forward a token of the model `state.caches[model]`: the first over each row's last tokens, the others over the one just chosen.

    Args:
        fed_first: how many tokens the first forward is given.
        instead: (b, num_tokens), tokens that take the places of those that are chosen.
    """
    tokens, logits = [], []
    cache, requests = state.caches[model], [row.request.index for row in state.batch.rows]
    fed, indices = state.batch.last_tokens(fed_first)
    along = torch.cat(
        [indices, indices[:, -1:] + torch.arange(1, num_tokens, device=indices.device)], 1
    )
    way = cache.ready(
        state.feed(along, along)
    )  # where each token goes; which ones they are is not known yet
    for j in range(num_tokens):
        columns = slice(fed_first + j - 1 if j else 0, fed_first + j)
        step = cache.forward(way.part(fed, columns))[:, -1].float()  # (b, V)
        ahead = [row.length + j for row in state.batch.rows]
        fed = state.chooser.draft(step, requests, ahead)[:, None]
        fed = fed if instead is None else instead[:, j : j + 1]
        tokens.append(fed)
        logits.append(step)
    return Draft(torch.cat(tokens, 1), torch.stack(logits, 1))
