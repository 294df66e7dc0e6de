"""Batched speculative decoding that realigns K/V after each round (EQSPEC, arXiv 2510.22876).

Rows are padded on the left, so that all end in one column, where an ordinary cache appends. A round
leaves them ragged, as each row has accepted a different number of drafts. So they are unpadded and
padded again after each round, and their K/V moves with them.
"""

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
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
    tokens, padding = pad(prompts, target.device)
    target_cache, draft_cache = DynamicCache(), DynamicCache()
    while True:
        # Draft K tokens, one after the other.
        for _ in range(K):
            best = read(draft, draft_cache, tokens, padding, last=1)
            tokens = torch.cat([tokens, best], dim=1)

        # Verify: one forward reads the last committed token and the drafts.
        choices = read(target, target_cache, tokens, padding, last=K + 1)  # (B, K+1)

        # Accept. Rows that have ended leave the batch.
        new = accept(tokens[:, -K:], choices)
        staying = commit([outputs[i] for i in live], new, max_new_tokens, eos)
        live = [live[row] for row in staying]
        if not live:
            return outputs

        # Unpad, append, repad. The lists have no padding, and the new tokens are in them already.
        old_padding = padding[staying]
        tokens, padding = pad([prompts[i] + outputs[i] for i in live], target.device)

        # Realign. Both caches lack the last token, and the draft's may lack the one before it.
        shift = padding - old_padding
        realign(target_cache, staying, shift, width=tokens.shape[1] - 1)
        realign(draft_cache, staying, shift, width=tokens.shape[1] - 2)


def pad(rows: list[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the tokens of all rows, (B, columns), and how much padding each has, (B, 1)."""
    ragged = [torch.tensor(row, device=device) for row in rows]
    tokens = pad_sequence(ragged, batch_first=True, padding_side="left")
    padding = [[tokens.shape[1] - len(row)] for row in rows]
    return tokens, torch.tensor(padding, device=device)


def read(
    model: PreTrainedModel, cache: DynamicCache, tokens: Tensor, padding: Tensor, last: int
) -> Tensor:
    """Feed the columns that the cache lacks; return the best token after each of the last ones."""
    positions = torch.arange(tokens.shape[1], device=tokens.device) - padding  # (B, columns)
    unread = slice(cache.get_seq_length(), None)  # at first the whole prompts
    output = model(
        input_ids=tokens[:, unread],
        attention_mask=(positions >= 0).long(),
        position_ids=positions[:, unread].clamp(min=0),
        past_key_values=cache,
        logits_to_keep=last,
    )
    return output.logits.argmax(dim=-1)


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


def realign(cache: DynamicCache, rows: list[int], shift: Tensor, width: int) -> None:
    """Keep these rows, and move the K/V of each to the right by its `shift`, (B, 1).

    A negative shift moves to the left. Only `width` columns remain, so rejected drafts are dropped.
    """
    source = torch.arange(width, device=shift.device) - shift  # (B, width)
    source = source.clamp(min=0)  # what lies in padding does not matter
    row = torch.tensor(rows, device=shift.device)[:, None]
    for layer in cache.layers:
        layer.keys = layer.keys[row, :, source].transpose(1, 2)
        layer.values = layer.values[row, :, source].transpose(1, 2)
