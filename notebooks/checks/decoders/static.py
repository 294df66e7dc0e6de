"""A batch in a StaticCache, under a 4-D mask. Rejected drafts stay, and the mask hides them.

The draft has no cache: it reads the rows again for each token.
"""

import torch
from torch import Tensor
from transformers import PreTrainedModel, StaticCache

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
) -> list[Tokens]:
    rows = [list(prompt) for prompt in prompts]
    outputs: list[Tokens] = [[] for _ in prompts]
    ids, mask = left_padded([row[:-1] for row in rows], target.device)
    used = ids.shape[1]  # slots that have been written
    slots = used + (K + 1) * max_new_tokens
    cache = StaticCache(config=target.config, max_cache_len=slots)
    seen = torch.zeros(len(rows), slots, dtype=torch.bool, device=target.device)
    seen[:, :used] = mask.bool()
    read(target, cache, ids, seen, 0)
    unfinished = set(range(len(rows)))
    while unfinished:
        drafts = draft_greedily(draft, rows, K)
        ids = torch.tensor([[row[-1], *new] for row, new in zip(rows, drafts, strict=True)])
        seen[:, used : used + K + 1] = True
        choices = read(target, cache, ids.to(target.device), seen, used)
        for i, row in enumerate(rows):
            a = count_accepted(drafts[i], choices[i])
            row += [*drafts[i][:a], choices[i][a]]
            seen[i, used + a + 1 : used + K + 1] = False
            if i in unfinished and finish(outputs[i], row[-a - 1 :], max_new_tokens, eos):
                unfinished.remove(i)
        used += K + 1
    return outputs


def read(
    model: PreTrainedModel, cache: StaticCache, ids: Tensor, seen: Tensor, first: int
) -> list[Tokens]:
    """Feed ids, (rows, q), into the slots from `first` on; return the best next tokens."""
    last = first + ids.shape[1]
    mask = seen[:, None, :].repeat(1, ids.shape[1], 1)  # (rows, q, slots)
    slots = torch.arange(seen.shape[1], device=seen.device)
    own = torch.arange(first, last, device=seen.device)  # slots of the q tokens
    mask &= slots <= own[:, None] + 1
    output = model(
        ids,
        attention_mask=mask[:, None],
        position_ids=positions_of(seen)[:, first:last],
        past_key_values=cache,
    )
    return output.logits.float().argmax(-1).tolist()
