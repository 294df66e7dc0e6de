"""A batch, padded on the left. After each round its K/V is unpadded, and padded again.

The draft has no cache: it reads the rows again for each token.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad
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
) -> list[Tokens]:
    rows = [list(prompt) for prompt in prompts]
    outputs: list[Tokens] = [[] for _ in prompts]
    live = list(range(len(prompts)))  # the request of each row
    cache = DynamicCache()
    read(target, cache, [row[:-1] for row in rows], max(len(row) for row in rows) - 1)
    while live:
        padding = [max(len(row) for row in rows) - len(row) for row in rows]
        drafts = draft_greedily(draft, rows, K)
        longer = [row + new for row, new in zip(rows, drafts, strict=True)]
        choices = read(target, cache, longer, K + 1)
        staying = []
        for i, request in enumerate(live):
            a = count_accepted(drafts[i], choices[i])
            new = [*drafts[i][:a], choices[i][a]]
            rows[i] += new
            if not finish(outputs[request], new, max_new_tokens, eos):
                staying.append(i)
        live = [live[i] for i in staying]
        rows = [rows[i] for i in staying]
        if live:
            cache.batch_select_indices(torch.tensor(staying, device=target.device))
            repad(cache, rows, [padding[i] for i in staying])
    return outputs


def read(
    target: PreTrainedModel, cache: DynamicCache, rows: list[Tokens], last: int
) -> list[Tokens]:
    """Feed the last columns of the rows; return the best next tokens, (rows, last)."""
    ids, mask = left_padded(rows, target.device)
    output = target(
        ids[:, -last:],
        attention_mask=mask,
        position_ids=positions_of(mask)[:, -last:],
        past_key_values=cache,
    )
    return output.logits.float().argmax(-1).tolist()


def repad(cache: DynamicCache, rows: list[Tokens], padding: list[int]) -> None:
    """Bring the K/V of all tokens but the pending ones to the end of the rows."""
    for layer in cache.layers:
        layer.keys = repadded(layer.keys, rows, padding)
        layer.values = repadded(layer.values, rows, padding)


def repadded(states: Tensor, rows: list[Tokens], padding: list[int]) -> Tensor:
    """Return K or V of a layer, (rows, heads, slots, size), with the new padding."""
    width = max(len(row) for row in rows) - 1
    moved = []
    for state, row, start in zip(states, rows, padding, strict=True):
        kept = state[:, start : len(row) - 1]
        moved.append(pad(kept, (0, 0, width - kept.shape[1], 0)))
    return torch.stack(moved)
