"""A draft model that keeps its K/V across rounds, under every strategy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.engine.draft import Draft
from specviz.engine.drafters.base import Drafter
from specviz.engine.kv.feed import Feed
from specviz.engine.models.pair import Pair
from specviz.engine.state import State


@dataclass(frozen=True)
class ModelDrafter(Drafter):
    """The pair's draft model, K forwards a round."""

    name: ClassVar[str] = "model"
    description: ClassVar[str] = "the pair's draft model, one forward a draft token"
    capturable: ClassVar[bool] = True

    def models(self, pair: Pair) -> dict[str, PreTrainedModel]:
        return {"draft": pair.draft}

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        # The last draft of a round is proposed, but never fed. If it is accepted, its K/V is
        # missing beside that of the pending token. Two tokens fill both slots, and feeding two in
        # every round keeps the shape the same, whatever was accepted.
        return run_ahead(state, "draft", num_draft_tokens, fed_first=2)


def run_ahead(
    state: State, model: str, num_tokens: int, fed_first: int, instead: Tensor | None = None
) -> Draft:
    """Run the model `state.caches[model]` for `num_tokens` tokens, one forward for each.

    The first forward reads each row's last `fed_first` tokens, the others the token just chosen, or
    the one in its place in `instead` (b, num_tokens).
    """
    cache = state.caches[model]
    is_chain = num_tokens == cache.chain_length and instead is None
    if is_chain:
        # One token would need compiled code of its own; that for two serves any larger number.
        fed_first = max(fed_first, 2)
    read: Callable[[Feed], Tensor] = cache.forward
    fed, indices = state.batch.last_tokens(fed_first)  # both (b, fed_first)
    new_indices = indices[:, -1:] + torch.arange(1, num_tokens, device=indices.device)
    indices = torch.cat([indices, new_indices], 1)
    # One feed for all forwards: where the tokens go is known, which ones they are is not yet.
    feed = cache.ready(state.feed(indices, indices))
    if is_chain:
        chain = cache.run_chain(feed, fed)
        return Draft(tokens=chain.tokens, logits=chain.logits)
    tokens = []
    logits = []
    for j in range(num_tokens):
        first_column = fed_first + j - 1 if j else 0
        columns = slice(first_column, fed_first + j)
        step_logits = read(feed.part(fed, columns))[:, -1].float()  # (b, V)
        read = cache.forward_next
        own = choose(state, step_logits, j)[:, None]  # (b, 1)
        fed = own if instead is None else instead[:, j : j + 1]
        tokens.append(fed)
        logits.append(step_logits)
    return Draft(torch.cat(tokens, 1), torch.stack(logits, 1))


def choose(state: State, logits: Tensor, ahead: int) -> Tensor:
    """Return the drafts (b,) chosen from logits (b, V), `ahead` tokens behind the first one."""
    # As in `accept`: both sides draw from the same numbers.
    return state.chooser.draft(logits, state.batch.places(ahead))
