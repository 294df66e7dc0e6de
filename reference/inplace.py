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
    live = list(range(len(prompts)))  # the prompt of each row
    device = target.device
    longest = max(len(prompt) for prompt in prompts)
    slots = longest + max_new_tokens + K
    rows = [prompt + [0] * (slots - len(prompt)) for prompt in prompts]
    tokens = torch.tensor(rows, device=device)  # (B, slots), each token at its position
    target_cache, draft_cache = SlotCache(), SlotCache()

    # Prefill all but the last token, without computing logits. What fills the end of a short row
    # is overwritten before it is seen.
    positions = torch.arange(max(longest - 1, 1), device=device).expand(len(prompts), -1)
    read(target.base_model, target_cache, tokens, positions)
    read(draft.base_model, draft_cache, tokens, positions)
    unread = 1  # at most so many committed tokens of a row are not in the draft's cache
    while live:
        # A row's length is the position of its next token.
        lengths = torch.tensor([[len(prompts[i]) + len(outputs[i])] for i in live], device=device)

        # Draft K tokens, one after the other.
        positions = lengths + torch.arange(-unread, 0, device=device)
        for _ in range(K):
            logits = read(draft, draft_cache, tokens, positions)[:, -1:]
            positions = positions[:, -1:] + 1
            tokens.scatter_(1, positions, logits.float().argmax(dim=-1))
        unread = 2  # the bonus, and the last draft if it is accepted

        # Verify: one forward reads the last committed token and the drafts.
        positions = lengths + torch.arange(-1, K, device=device)
        choices = read(target, target_cache, tokens, positions).float().argmax(dim=-1)  # (B, K+1)

        # Accept. The choices are written over the drafts.
        drafts = tokens.gather(1, positions[:, 1:])
        staying = accept(drafts, choices, [outputs[i] for i in live], max_new_tokens, eos)
        tokens.scatter_(1, positions + 1, choices)

        # Let finished rows leave. Only then is K/V copied: that of the other rows.
        if len(staying) < len(live):
            live = [live[row] for row in staying.tolist()]
            tokens = tokens[staying]
            target_cache.batch_select_indices(staying)
            draft_cache.batch_select_indices(staying)
    return outputs


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
        rows = torch.arange(len(keys), device=keys.device)[:, None]
        layer.keys[rows, :, self.positions] = keys.transpose(1, 2)
        layer.values[rows, :, self.positions] = values.transpose(1, 2)
        return layer.keys, layer.values


def read(model: PreTrainedModel, cache: SlotCache, tokens: Tensor, positions: Tensor) -> Tensor:
    """Feed the tokens at these positions, (B, q); return the logits, (B, q, V)."""
    cache.slots = tokens.shape[1]
    cache.positions = positions
    later = torch.arange(cache.slots, device=tokens.device) > positions[:, :, None]
    mask = later.to(model.dtype) * torch.finfo(model.dtype).min  # (B, q, slots)
    return model(
        input_ids=tokens.gather(1, positions),
        attention_mask=mask[:, None],
        position_ids=positions,
        past_key_values=cache,
    )[0]


def accept(
    drafts: Tensor, choices: Tensor, outputs: list[list[int]], max_new_tokens: int, eos: list[int]
) -> Tensor:
    """Append to each row's output its accepted drafts and the bonus; return the rows that go on."""
    # Drafts are accepted up to the first that is not what the target would have written.
    accepted = (drafts == choices[:, :-1]).cumprod(dim=1).sum(dim=1).tolist()
    staying = []
    for row, chosen in enumerate(choices.tolist()):
        for token in chosen[: accepted[row] + 1]:  # accepted drafts are choices of the target
            outputs[row].append(token)
            if token in eos or len(outputs[row]) == max_new_tokens:
                break
        else:
            staying.append(row)
    return torch.tensor(staying, dtype=torch.long, device=drafts.device)
