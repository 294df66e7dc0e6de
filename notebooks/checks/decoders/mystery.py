"""A batch with two caches of one layout. Rejected drafts stay, and one mask hides them."""

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from checks.decoders.common import (
    Tokens,
    count_accepted,
    finish,
    left_padded,
    positions_of,
)


@torch.inference_mode()
def decode(
    target: PreTrainedModel,
    draft: PreTrainedModel,
    prompts: list[Tokens],
    K: int = 4,
    max_new_tokens: int = 32,
    eos: int = 2,
) -> list[Tokens]:
    rows = [list(prompt) for prompt in prompts]
    outputs: list[Tokens] = [[] for _ in prompts]
    live = list(range(len(prompts)))  # the request of each row
    target_cache, draft_cache = DynamicCache(), DynamicCache()
    ids, seen = left_padded([row[:-1] for row in rows], target.device)
    target(ids, seen, positions_of(seen), target_cache)
    draft(ids, seen, positions_of(seen), draft_cache)
    while live:
        pending = torch.tensor([[row[-1]] for row in rows], device=target.device)
        ids, seen = propose(draft, draft_cache, pending, seen, K)
        positions = positions_of(seen)[:, -K - 1 :]
        choices = target(ids, seen, positions, target_cache).logits.float().argmax(-1)
        staying = []
        for i, request in enumerate(live):
            drafts, chosen = ids[i, 1:].tolist(), choices[i].tolist()
            a = count_accepted(drafts, chosen)
            new = [*drafts[:a], chosen[a]]
            rows[i] += new
            seen[i, seen.shape[1] - K + a :] = 0
            if not finish(outputs[request], new, max_new_tokens, eos):
                staying.append(i)
        live = [live[i] for i in staying]
        rows = [rows[i] for i in staying]
        seen = seen[staying]
        for cache in (target_cache, draft_cache):
            if live:
                cache.batch_select_indices(torch.tensor(staying, device=target.device))
    return outputs


def propose(
    draft: PreTrainedModel, cache: DynamicCache, pending: Tensor, seen: Tensor, K: int
) -> tuple[Tensor, Tensor]:
    """Return the pending tokens with K drafts each, (rows, K+1), and the mask with their slots.

    The last draft is read as well, so that the cache has what the target's will have.
    """
    ids = pending
    for _ in range(K + 1):
        seen = torch.cat([seen, torch.ones_like(pending)], dim=1)
        output = draft(ids[:, -1:], attention_mask=seen, past_key_values=cache)
        ids = torch.cat([ids, output.logits[:, -1:].float().argmax(-1)], dim=1)
    return ids[:, :-1], seen
