"""A batch in which the slot of a token is its position. New prompts enter as soon as rows end.

Rejected drafts are overwritten by the next round, and what a row held before by its new prompt.
"""

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from checks.decoders.common import Tokens, count_accepted, finish


@torch.inference_mode()
def decode(
    target: PreTrainedModel,
    draft: PreTrainedModel,
    prompts: list[Tokens],
    K: int = 4,
    max_new_tokens: int = 32,
    eos: int = 2,
    batch_size: int = 8,
) -> list[Tokens]:
    outputs: list[Tokens] = [[] for _ in prompts]
    waiting = list(range(len(prompts)))
    B = min(batch_size, len(prompts))
    slots = max(map(len, prompts)) + max_new_tokens + K
    tokens = torch.zeros(B, slots, dtype=torch.long, device=target.device)
    caches = SlotCache(B, slots), SlotCache(B, slots)
    request = [-1] * B  # that each row works on
    lengths = [0] * B
    while True:
        fresh = [row for row in range(B) if request[row] < 0][: len(waiting)]
        for row in fresh:
            request[row] = waiting.pop(0)
            lengths[row] = len(prompts[request[row]])
            tokens[row, : lengths[row]] = torch.tensor(prompts[request[row]])
        if fresh:
            count = max(lengths[fresh[0]] - 1, 1)
            fill(target, caches[0], tokens, fresh, count)
            fill(draft, caches[1], tokens, fresh, count)
        rows = [row for row in range(B) if request[row] >= 0]
        if not rows:
            return outputs
        n = torch.tensor([lengths[row] for row in rows], device=tokens.device)[:, None]
        propose(draft, caches[1], tokens, rows, n, K)
        choices = verify(target, caches[0], tokens, rows, n, K)
        for row, chosen in zip(rows, choices, strict=True):
            drafts = tokens[row, lengths[row] : lengths[row] + K].tolist()
            new = chosen[: count_accepted(drafts, chosen) + 1]
            tokens[row, lengths[row] : lengths[row] + len(new)] = torch.tensor(new)
            lengths[row] += len(new)
            if finish(outputs[request[row]], new, max_new_tokens, eos):
                request[row] = -1


def fill(
    model: PreTrainedModel, cache: "SlotCache", tokens: Tensor, rows: list[int], count: int
) -> None:
    """Read the first `count` tokens of rows that a prompt has entered."""
    positions = torch.arange(count, device=tokens.device).expand(len(rows), -1)
    read(model, cache, tokens, rows, positions)


def propose(
    draft: PreTrainedModel, cache: "SlotCache", tokens: Tensor, rows: list[int], n: Tensor, K: int
) -> None:
    """Write K drafts behind the n tokens of each row, (rows, 1)."""
    positions = (n + torch.arange(-2, 0, device=tokens.device)).clamp(min=0)
    for _ in range(K):
        best = read(draft, cache, tokens, rows, positions).argmax(dim=-1)
        positions = positions[:, -1:] + 1
        tokens[torch.tensor(rows)[:, None], positions] = best[:, -1:]


def verify(
    target: PreTrainedModel, cache: "SlotCache", tokens: Tensor, rows: list[int], n: Tensor, K: int
) -> list[Tokens]:
    """Read the last committed token and the drafts; return the target's choices."""
    positions = n + torch.arange(-1, K, device=tokens.device)
    return read(target, cache, tokens, rows, positions).argmax(dim=-1).tolist()


class SlotCache(DynamicCache):
    """A rectangle of slots. A forward of `rows` writes K/V at `positions`, (rows, q)."""

    def __init__(self, size: int, slots: int) -> None:
        super().__init__()
        self.size = size
        self.slots = slots
        self.rows = torch.arange(size)
        self.positions = torch.zeros(size, 1)

    def update(self, keys: Tensor, values: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        if layer_idx >= len(self.layers):
            shape = self.size, keys.shape[1], self.slots, keys.shape[3]
            super().update(keys.new_zeros(shape), values.new_zeros(shape), layer_idx)
        layer = self.layers[layer_idx]
        layer.keys[self.rows[:, None], :, self.positions] = keys.transpose(1, 2)
        layer.values[self.rows[:, None], :, self.positions] = values.transpose(1, 2)
        return layer.keys[self.rows], layer.values[self.rows]


def read(
    model: PreTrainedModel, cache: SlotCache, tokens: Tensor, rows: list[int], positions: Tensor
) -> Tensor:
    """Feed the tokens of some rows at `positions`, (rows, q); return logits, (rows, q, V)."""
    cache.rows = torch.tensor(rows, device=tokens.device)
    cache.positions = positions
    later = torch.arange(cache.slots, device=tokens.device) > positions[:, :, None]
    mask = later.to(model.dtype) * torch.finfo(model.dtype).min
    return model(
        input_ids=tokens[cache.rows[:, None], positions],
        attention_mask=mask[:, None],
        position_ids=positions,
        past_key_values=cache,
    ).logits
