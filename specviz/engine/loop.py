"""The loop: schedule, draft, verify, accept and synchronise, until every prompt is done.

It is the same for one row and for many. It prints nothing, times nothing and knows no tokenizer; it
yields an event after each phase. How the methods of batch speculative decoding differ is in
`strategies/`, how tokens are proposed in `drafters/`, which of them are verified in `selectors.py`,
how drafts are judged in `sampling.py`, and what a row keeps of them in `accept.py`.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from specviz.engine.accept import Outcome, check_finite, clip
from specviz.engine.draft import Draft
from specviz.engine.draft_length import DraftLength
from specviz.engine.drafters.base import Drafter, NoDrafter
from specviz.engine.events import Accepted, Drafted, Event, Scheduled, Synchronised, Verified
from specviz.engine.kv.cache import Output
from specviz.engine.prefill import catch_up
from specviz.engine.selectors import Everything, Selector
from specviz.engine.state import State
from specviz.engine.strategies import Strategy


@torch.inference_mode()
def run_rounds(
    state: State,
    strategy: Strategy,
    drafter: Drafter,
    selector: Selector,
    draft_length: DraftLength,
) -> Iterator[Event]:
    """Decode until no prompt waits and every row has finished. Yield five events a round."""
    while state.waiting or not all(row.finished for row in state.batch.live):
        # 1. schedule: finished rows leave, waiting prompts enter and are prefilled
        strategy.schedule(state)
        # K comes after the rows, because it may depend on how many and which they are.
        K = strategy.shorten(state, draft_length.choose(state))
        plan(state, selector, K, draft_length.most)
        state.draft_columns = max(drafter.columns(state.num_draft_tokens), state.block) if K else 0
        yield Scheduled(state.round, state)

        # 2. draft: K tokens a row, or a few more of which some are selected
        draft = propose(state, drafter, selector)  # (B, K)
        yield Drafted(state.round, state, draft)

        # 3. verify: one target forward over the pending token and the drafts
        verified = state.run(verify, state, draft)
        yield Verified(state.round, state, verified.logits)

        # 4. accept: a ragged number of drafts a row, and the target's own token
        outcome = state.run(accept, state, strategy, draft, verified.logits)
        state.keep_features(verified.features, outcome)
        # The round's only wait for the device. The event comes after it, so that its readers find
        # the rows on the host up to date. NaN is cleared before anything could spread it.
        state.zero_nonfinite(state.batch.sync_to_host(outcome))
        if outcome.path is not None:
            strategy.compact(state)
        yield Accepted(state.round, state, outcome)

        # 5. synchronise: where the methods differ. Finished rows are still in the batch.
        strategy.synchronise(state)
        state.inject_kv_shift()  # only if that fault was requested
        yield Synchronised(state.round, state)
        state.round += 1


def plan(state: State, selector: Selector, num_draft_tokens: int, most: int) -> None:
    """Set how many tokens the rows of the round draft, and how many of those may be verified."""
    K = num_draft_tokens
    if not 0 <= K <= most:
        raise ValueError(
            f"the K of a round must be 0 to {most}, got {K}; "
            "let `choose` of the DraftLength return no more than its `most`"
        )
    state.num_draft_tokens = selector.drafted(K) if K else 0
    state.extra_draft_tokens = state.num_draft_tokens - K
    state.draft_capacity = K * state.batch.working


def propose(state: State, drafter: Drafter, selector: Selector) -> Draft:
    """Return the proposals for each row of the batch. With K = 0 the drafter is skipped."""
    K = state.num_draft_tokens
    if K == 0:
        return state.run(NoDrafter().propose, state, 0)
    catch_up(state)
    draft = state.run(drafter.propose, state, K)
    shape = len(state.batch), K
    if draft.tokens.shape != shape or draft.tokens.dtype != torch.long:
        raise ValueError(
            f"Draft.tokens must be int64 of shape {shape}, got {draft.tokens.dtype} of shape "
            f"{tuple(draft.tokens.shape)}; let drafter={drafter.name!r} propose K tokens for each "
            "row, and say in `lengths` where rows have fewer"
        )
    # A captured phase that does nothing would be one more replay a round.
    if type(selector) is not Everything:
        draft = state.run(selector.choose, state, draft, state.draft_capacity)
    if draft.lengths is None or draft.lengths.device.type != "cpu":
        return draft
    # On a CPU, reading the lengths costs no wait, and a forward may leave their filling out.
    return replace(draft, total=int(draft.lengths.sum()))


def verify(state: State, draft: Draft) -> Output:
    """Run the target over the pending token and each draft (B, K).

    Return logits (B, K+1, V) after each of them, and features where the drafter reads the target's
    hidden states. What comes behind a row's `lengths` means nothing.
    """
    # The last committed token has no K/V yet. Feeding it before the drafts writes its K/V and gives
    # the logits that judge the first draft: K + 1 tokens in, K + 1 logits out.
    pending, index = state.batch.last_tokens(1)  # (B, 1)
    tokens = torch.cat([pending, draft.tokens], 1)  # (B, K+1)
    offset = torch.arange(tokens.shape[1], device=tokens.device)
    tree = draft.tree()
    feed = state.feed(tokens, index + offset) if tree is None else state.feed_tree(tokens, tree)
    if draft.lengths is not None:
        count = None if draft.total is None else len(tokens) + draft.total
        feed = replace(feed, valid=offset <= draft.lengths[:, None], count=count)
    select = None if state.features is None else state.features.select
    output = state.caches["target"].forward(feed, select=select)
    if state.processors is None:
        return output
    return output._replace(logits=state.processors.all(state.batch, draft, output.logits))


def accept(state: State, strategy: Strategy, draft: Draft, logits: Tensor) -> Outcome:
    """Commit to each row of the batch what it gains.

    A row gains the drafts that the target accepts and the strategy keeps, and the target's own
    token, up to the first EOS, its budget, and the first non-finite logits.
    """
    batch = state.batch
    # The first of the K + 1 choices is the token with index n.
    agreed = state.chooser.judge(draft, logits, batch.places())
    if state.fault is not None:
        agreed = state.fault.bonus(state.round, draft, agreed)
    room = batch.limits[: len(batch)] - batch.n  # (B,)
    stops = None
    if state.stops is not None:
        stops = state.stops.limits(batch.rows, agreed.emitted, agreed.accepted)
    # What a strategy does not keep was verified and right; `clip` counts it as discarded.
    outcome = clip(
        strategy.keep(draft, agreed, room),
        room,
        state.eos_token_ids,
        stops=stops,
        agreed=agreed.accepted,
        max_gain=max_gain(strategy, draft),
        finite=check_finite(logits, draft, agreed.path),
        draft=draft,
    )
    batch.append(outcome)
    return outcome


def max_gain(strategy: Strategy, draft: Draft) -> int | Tensor | None:
    """Return how many tokens a row may gain: one number for all rows, or one for each (B,).

    None allows all of them.
    """
    K = draft.tokens.shape[1]
    most = strategy.max_gain(K)
    if draft.lengths is None:
        return None if most > K else most
    # A strategy that knows only K drops as many tokens of a row that verifies fewer.
    return (draft.lengths + 1 - (K + 1 - most)).clamp(min=1)
