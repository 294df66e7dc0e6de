"""THE LOOP: schedule, draft, verify, accept, synchronise, until every prompt is done. One path for one row and for many.

It prints nothing, times nothing and knows no tokenizer; it yields an event after each phase. What differs between the methods of
batch speculative decoding stands in `strategies/`, who proposes in `drafters/`, how drafts are accepted in `accept.py`.
"""

from collections import deque
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from specviz.engine.accept import accept_greedy, clip
from specviz.engine.batch import Batch, Request
from specviz.engine.cache import CachedModel
from specviz.engine.drafters import Drafter
from specviz.engine.events import Accepted, Drafted, Event, Scheduled, Synchronised, Verified
from specviz.engine.layout import Layout
from specviz.engine.pair import Pair
from specviz.engine.state import State
from specviz.engine.strategies import Strategy


@torch.inference_mode()
def run_rounds(state: State, strategy: Strategy, drafter: Drafter, num_draft_tokens: int) -> Iterator[Event]:
    """Decode until no prompt waits and every row has finished; yields five events a round."""
    number = 0
    while state.waiting or not all(row.finished for row in state.batch.rows):
        # 1. schedule: rows that finished leave, prompts that wait enter and are prefilled
        strategy.schedule(state)
        yield Scheduled(number, state)

        # 2. draft: K tokens a row
        draft = drafter.propose(state, num_draft_tokens)  # (B, K)
        yield Drafted(number, state, draft)

        # 3. verify: one target forward over the pending token and the drafts
        logits = verify(state, draft.tokens)  # (B, K+1, V)
        yield Verified(number, state, logits)

        # 4. accept: a ragged number a row, and the target's own token
        accepted, emitted = accept_greedy(draft.tokens, logits)  # (B,), (B, K+1)
        room = state.batch.limits[: len(state.batch)] - state.batch.n
        outcome = clip(accepted, emitted, room, state.eos_token_ids)
        state.batch.commit(outcome)
        yield Accepted(number, state, outcome)

        # 5. synchronise: what differs between the methods
        strategy.synchronise(state)
        yield Synchronised(number, state)
        number += 1


def verify(state: State, drafts: Tensor) -> Tensor:
    """Logits (B, K+1, V) of the target after the pending token and after each draft."""
    pending, index = state.batch.last_tokens(1)  # (B, 1)
    tokens = torch.cat([pending, drafts], 1)
    indices = index + torch.arange(tokens.shape[1], device=tokens.device)
    return state.caches["target"].forward(state.feed(tokens, indices))


def prepare(pair: Pair, requests: Sequence[Request], drafter: Drafter, num_draft_tokens: int, batch_size: int) -> State:
    """Empty rows and slabs for `requests`: min(batch_size, requests) rows of the longest prompt + budget + K + 1 slots."""
    rows = min(batch_size, len(requests))
    slots = max(len(request.prompt) + request.budget for request in requests) + num_draft_tokens + 1
    models = {"target": pair.target, **drafter.models(pair)}
    return State(
        batch=Batch(rows, slots, pair.device),
        layout=Layout(rows, pair.device),
        caches={name: CachedModel(model, rows, slots) for name, model in models.items()},
        waiting=deque(requests),
        headroom=num_draft_tokens,
        eos_token_ids=torch.tensor(pair.eos_token_ids, dtype=torch.long, device=pair.device),
    )
