"""A batch of a fixed size. When a row ends, the next prompt takes its place at once.

Rejected drafts stay in the cache, and the mask hides them. The draft has no cache.
"""

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from checks.decoders.common import (
    Tokens,
    count_accepted,
    draft_greedily,
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
    batch_size: int = 2,
) -> list[Tokens]:
    outputs: list[Tokens] = [[] for _ in prompts]
    live = list(range(len(prompts)))[:batch_size]  # the request of each row
    waiting = list(range(len(prompts)))[batch_size:]
    rows = [list(prompts[request]) for request in live]
    ids, seen = left_padded([prompt[:-1] for prompt in prompts], target.device)
    cache, seen = DynamicCache(), seen[:batch_size]  # the mask, (rows, slots)
    read(target, cache, ids[:batch_size], seen)
    while live:
        drafts = draft_greedily(draft, rows, K)
        fed = [[row[-1], *new] for row, new in zip(rows, drafts, strict=True)]
        ids = torch.tensor(fed, device=target.device)
        seen = torch.cat([seen, torch.ones_like(ids)], dim=1)
        choices = read(target, cache, ids, seen)
        staying = []
        for i, request in enumerate(live):
            a = count_accepted(drafts[i], choices[i])
            new = [*drafts[i][:a], choices[i][a]]
            rows[i] += new
            seen[i, seen.shape[1] - K + a :] = 0
            if not finish(outputs[request], new, max_new_tokens, eos):
                staying.append(i)
            elif waiting:
                live[i] = waiting.pop(0)
                rows[i] = enter(target, cache, seen, i, prompts[live[i]])
                staying.append(i)
        live = [live[i] for i in staying]
        rows = [rows[i] for i in staying]
        seen = seen[staying]
        if live:
            cache.batch_select_indices(torch.tensor(staying, device=target.device))
    return outputs


def read(target: PreTrainedModel, cache: DynamicCache, ids: Tensor, seen: Tensor) -> list[Tokens]:
    """Append tokens to the rows; return the best next tokens, (rows, tokens)."""
    output = target(
        ids,
        attention_mask=seen,
        position_ids=positions_of(seen)[:, -ids.shape[1] :],
        past_key_values=cache,
    )
    return output.logits.float().argmax(-1).tolist()


def enter(
    target: PreTrainedModel, cache: DynamicCache, seen: Tensor, row: int, prompt: Tokens
) -> Tokens:
    """Read a prompt but its last token, alone; write its K/V to the last slots of a row.

    Return the tokens of the row.
    """
    ids = torch.tensor([prompt[:-1]], device=target.device)
    alone = target(ids, use_cache=True).past_key_values
    start = seen.shape[1] - len(prompt) + 1
    for layer, source in zip(cache.layers, alone.layers, strict=True):
        layer.keys[row, :, start:] = source.keys[0]
        layer.values[row, :, start:] = source.values[0]
    seen[row, start:] = 1
    return list(prompt)
