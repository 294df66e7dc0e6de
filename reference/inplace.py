"""Batched speculative decoding in which no K/V moves: the slot of a token is its position.

A forward writes K/V at each row's own positions, so ragged rows need neither padding nor a common
end. The mask hides the K/V of rejected drafts until the next round overwrites it.
"""

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel


@torch.inference_mode()
def decode(
    target: PreTrainedModel,
    draft: PreTrainedModel,
    prompts: list[list[int]],
    K: int = 4,
    max_new_tokens: int = 64,
    eos_token_id: int | list[int] | None = None,
) -> list[list[int]]:
    """Return the new tokens of each prompt, EOS included: what the target alone would write."""
    eos = [eos_token_id] if isinstance(eos_token_id, int) else eos_token_id or []
    outputs: list[list[int]] = [[] for _ in prompts]
    live = list(range(len(prompts)))  # the prompt that each row continues
    device = target.device
    longest = max(len(prompt) for prompt in prompts)
    tokens = fill(prompts, longest + max_new_tokens + K, device)  # (B, slots)
    target_cache, draft_cache = SlotCache(), SlotCache()

    # Prefill all but the last token; a base model computes no logits. What fills the end of a short
    # row is overwritten before any token attends to it.
    if longest > 1:
        positions = torch.arange(longest - 1, device=device).expand(len(prompts), -1)
        read(target.base_model, target_cache, tokens, positions)
        read(draft.base_model, draft_cache, tokens, positions)
    unread = 1  # committed tokens of a row that the draft may not have read
    while live:
        # A row's length is the position of its next token.
        lengths = torch.tensor([[len(prompts[i]) + len(outputs[i])] for i in live], device=device)

        # Draft K tokens, one after the other.
        positions = lengths + torch.arange(-unread, 0, device=device)
        for _ in range(K):
            best = read(draft, draft_cache, tokens, positions).argmax(dim=-1)
            positions = positions[:, -1:] + 1
            tokens.scatter_(1, positions, best[:, -1:])
        unread = 2  # the bonus, and the last draft if it was accepted

        # Verify: one forward reads the last committed token and the drafts.
        positions = lengths + torch.arange(-1, K, device=device)
        choices = read(target, target_cache, tokens, positions).argmax(dim=-1)  # (B, K+1)

        # Accept. The choices replace the drafts; the next drafts replace those behind the bonus.
        new = accept(tokens.gather(1, positions[:, 1:]), choices)
        tokens.scatter_(1, positions + 1, choices)
        staying = commit([outputs[i] for i in live], new, max_new_tokens, eos)

        # Rows that have ended leave the batch. Only then is K/V copied: that of the other rows.
        if len(staying) < len(live):
            live = [live[row] for row in staying]
            kept = torch.tensor(staying, dtype=torch.long, device=device)
            tokens = tokens[kept]
            target_cache.batch_select_indices(kept)
            draft_cache.batch_select_indices(kept)
    return outputs


def fill(prompts: list[list[int]], slots: int, device: torch.device) -> Tensor:
    """Return the tokens of all prompts, each at its position, and zeros behind them."""
    rows = [prompt + [0] * (slots - len(prompt)) for prompt in prompts]
    return torch.tensor(rows, device=device)


class SlotCache(DynamicCache):
    """A rectangle of slots. The next forward writes K/V at `positions`, (B, q)."""

    slots: int
    positions: Tensor

    def update(self, keys: Tensor, values: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        """Write K/V, (B, heads, q, head size); return that of all slots."""
        if layer_idx >= len(self.layers):  # the first forward
            empty = [x.new_zeros(*x.shape[:2], self.slots, x.shape[3]) for x in (keys, values)]
            super().update(*empty, layer_idx)
        layer = self.layers[layer_idx]
        row = torch.arange(len(keys), device=keys.device)[:, None]
        layer.keys[row, :, self.positions] = keys.transpose(1, 2)
        layer.values[row, :, self.positions] = values.transpose(1, 2)
        return layer.keys, layer.values


def read(model: PreTrainedModel, cache: SlotCache, tokens: Tensor, positions: Tensor) -> Tensor:
    """Feed the tokens at `positions`, (B, q); return the logits, (B, q, V)."""
    cache.slots = tokens.shape[1]
    cache.positions = positions
    # A token attends to the slots up to its own. The mask is added to the scores of all slots.
    later = torch.arange(cache.slots, device=tokens.device) > positions[:, :, None]
    mask = later.to(model.dtype) * torch.finfo(model.dtype).min  # (B, q, slots)
    ids = tokens.gather(1, positions)
    output = model(ids, attention_mask=mask[:, None], position_ids=positions, past_key_values=cache)
    return output[0]  # of a base model, which has no logits: hidden states


def accept(drafts: Tensor, choices: Tensor) -> list[list[int]]:
    """Return each row's new tokens: the accepted drafts and the bonus."""
    # A draft is accepted if it and all drafts before it are what the target would have written.
    accepted = (drafts == choices[:, :-1]).cumprod(dim=1).sum(dim=1).tolist()
    # So accepted drafts are choices of the target, and the choice after them is the bonus.
    return [row[: a + 1] for row, a in zip(choices.tolist(), accepted, strict=True)]


def commit(texts: list[list[int]], new: list[list[int]], budget: int, eos: list[int]) -> list[int]:
    """Append each row's new tokens up to EOS or the budget; return the rows that go on."""
    staying = []
    for row, text in enumerate(texts):
        for token in new[row]:
            text.append(token)
            if token in eos or len(text) == budget:
                break
        else:  # all new tokens are appended, and none ends the row
            staying.append(row)
    return staying
