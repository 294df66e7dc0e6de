"""THE LOOP: schedule, draft, verify, accept, synchronise, until every prompt is done. One path for one row and for many.

It prints nothing, times nothing and knows no tokenizer; it yields an event after each phase. What differs between the methods of
batch speculative decoding stands in `strategies/`, who proposes in `drafters/`, how drafts are accepted in `accept.py`.
"""

from collections import deque
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from specviz.engine.accept import Chooser, Outcome, clip, soundness
from specviz.engine.batch import Batch, Request
from specviz.engine.draft_length import DraftLength
from specviz.engine.drafters import Draft, Drafter, NoDrafter
from specviz.engine.events import Accepted, Drafted, Event, Scheduled, Synchronised, Verified
from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.deterministic import FixedModel, fixed_shape
from specviz.engine.kv.layout import NO_LIMIT
from specviz.engine.models.pair import Pair
from specviz.engine.state import State
from specviz.engine.strategies import Strategy


@torch.inference_mode()
def run_rounds(
    state: State, strategy: Strategy, drafter: Drafter, depth: DraftLength
) -> Iterator[Event]:
    """Decode until no prompt waits and every row has finished; yields five events a round."""
    while state.waiting or not all(row.finished for row in state.batch.live):
        # 1. schedule: rows that finished leave, prompts that wait enter and are prefilled
        strategy.schedule(state)
        state.num_draft_tokens = strategy.shorten(state, depth.choose(state))  # K of this round
        yield Scheduled(state.round, state)

        # 2. draft: K tokens a row
        draft = propose(state, drafter)  # (B, K)
        yield Drafted(state.round, state, draft)

        # 3. verify: one target forward over the pending token and the drafts
        logits = state.run(verify, state, draft.tokens)  # (B, K+1, V)
        yield Verified(state.round, state, logits)

        # 4. accept: a ragged number a row, and the target's own token
        outcome = state.run(accept, state, strategy, draft, logits)
        state.zero_nonfinite(state.batch.sync_to_host(outcome))
        yield Accepted(state.round, state, outcome)

        # 5. synchronise: what differs between the methods
        strategy.synchronise(state)
        state.inject_kv_shift()  # does nothing, unless a fault was asked for
        yield Synchronised(state.round, state)
        state.round += 1


def propose(state: State, drafter: Drafter) -> Draft:
    """K proposals for each row of the batch, by draft models that have read all that came before; with K = 0 nobody is asked."""
    if not 0 <= state.num_draft_tokens <= state.headroom:
        raise ValueError(
            f"K={state.num_draft_tokens} was chosen for a round; there is room for 0 to {state.headroom}"
        )
    if state.num_draft_tokens == 0:
        return state.run(NoDrafter().propose, state, 0)
    state.catch_up()
    return state.run(drafter.propose, state, state.num_draft_tokens)


def verify(state: State, drafts: Tensor) -> Tensor:
    """Logits (B, K+1, V) of the target after the pending token and after each draft."""
    pending, index = state.batch.last_tokens(1)  # (B, 1)
    tokens = torch.cat([pending, drafts], 1)
    indices = index + torch.arange(tokens.shape[1], device=tokens.device)
    return state.caches["target"].forward(
        state.feed(tokens, indices), keep_hidden=state.hidden is not None
    )


def accept(state: State, strategy: Strategy, draft: Draft, logits: Tensor) -> Outcome:
    """What each row of the batch gains, and now has: what the target accepts, as far as the strategy keeps it, up to EOS and budget."""
    rows = state.batch.rows
    verified, emitted = state.chooser.accept(
        draft.tokens,
        draft.logits,
        logits,
        [row.request.index for row in rows],
        [row.length for row in rows],
    )
    if state.fault is not None:
        emitted = state.fault.bonus(state.round, draft.tokens, verified, emitted)
    room = state.batch.limits[: len(rows)] - state.batch.n
    accepted, emitted = strategy.keep(draft.tokens, verified, emitted, room)
    sound = soundness(logits, draft.tokens, draft.logits)
    outcome = clip(accepted, emitted, room, state.eos_token_ids, verified, strategy.bonus, *sound)
    hidden = state.caches["target"].hidden  # (B, K+1, D), if the drafter asked for it
    if state.hidden is not None and hidden is not None:
        last = (outcome.gained - 1).clamp(min=0)[:, None, None].expand(-1, 1, hidden.shape[-1])
        state.hidden[: len(rows)] = torch.where(
            outcome.gained[:, None] > 0, hidden.gather(1, last)[:, 0], state.hidden[: len(rows)]
        )
    state.batch.append(outcome)
    return outcome


def prepare(
    pair: Pair,
    drafter: Drafter,
    num_draft_tokens: int,
    chooser: Chooser,
    fixed_width: int | None,
    requests: Sequence[Request],
    strategy: Strategy,
    batch_size: int,
) -> State:
    """Empty rows and slabs for `requests`; the strategy says how many rows it keeps and how many slots they may need.

    `fixed_width`: K + 1 of the shape that every forward has in the deterministic mode, of all models that decide; None without it.
    """
    rows = strategy.capacity(batch_size, len(requests))
    longest, budget = (
        max(len(r.prompt) + r.budget for r in requests),
        max(r.budget for r in requests),
    )
    slots = strategy.slots(longest, budget, num_draft_tokens)
    models = {"target": pair.target, **drafter.models(pair)}
    wide = pair.target.config.get_text_config().hidden_size if drafter.needs_hidden else 0
    caches = {
        name: CachedModel(model, rows, slots, pair.vocabulary_size)
        for name, model in models.items()
    }
    if fixed_width is not None:
        shape = fixed_shape(fixed_width, longest)
        for name in caches if chooser.weighs_drafts else ("target",):
            caches[name] = FixedModel(models[name], rows, slots, pair.vocabulary_size, shape)
    return State(
        batch=Batch(rows, longest + num_draft_tokens + 1, pair.device),
        layout=strategy.layout(rows, slots, num_draft_tokens, pair.device, pair.max_positions),
        caches=caches,
        waiting=deque(strategy.order(requests)),
        batch_size=min(batch_size, rows),
        headroom=num_draft_tokens,
        num_draft_tokens=num_draft_tokens,
        eos_token_ids=torch.tensor(pair.eos_token_ids, dtype=torch.long, device=pair.device),
        chooser=chooser,
        last_position=(pair.max_positions or NO_LIMIT) - 1,
        keep_draft=drafter.keeps_cache,
        fault=strategy.fault,
        hidden=torch.zeros(rows, wide, dtype=pair.target.dtype, device=pair.device)
        if wide
        else None,
    )
