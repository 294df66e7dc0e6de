"""Batched speculative decoding that realigns K/V after each round (EQSPEC, arXiv 2510.22876).

Rows are padded on the left, so that all end in one column, where an ordinary cache appends. After a
round they are ragged, as each row has accepted another number of drafts. Then the K/V of each row
is moved until all rows end in one column again.
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
    live = list(range(len(prompts)))  # the prompt of each row
    target_cache, draft_cache = DynamicCache(), DynamicCache()
    while live:
        # Pad: the first token of a row stands in column `padding`.
        rows = [torch.tensor(prompts[i] + outputs[i], device=target.device) for i in live]
        tokens = pad_sequence(rows, batch_first=True, padding_side="left")  # (B, columns)
        gaps = [[tokens.shape[1] - len(row)] for row in rows]
        padding = torch.tensor(gaps, device=target.device)  # (B, 1)

        # Draft K tokens, one after the other.
        for _ in range(K):
            best = read(draft, draft_cache, tokens, padding, last=1)
            tokens = torch.cat([tokens, best], dim=1)

        # Verify: one forward reads the last committed token and the drafts.
        choices = read(target, target_cache, tokens, padding, last=K + 1)  # (B, K+1)

        # Accept, and let finished rows leave.
        new = [outputs[i] for i in live]
        staying = accept(tokens[:, -K:], choices, new, max_new_tokens, eos)
        live = [live[row] for row in staying.tolist()]

        # Realign. No cache has the last token yet, and the draft's may lack the one before it.
        if live:
            lengths = [[len(prompts[i]) + len(outputs[i])] for i in live]
            known = torch.tensor(lengths, device=target.device) - 1  # (B, 1)
            realign(target_cache, staying, padding, known)
            realign(draft_cache, staying, padding, known - 1)
    return outputs


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
    return output.logits.float().argmax(dim=-1)


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


def realign(cache: DynamicCache, rows: Tensor, padding: Tensor, known: Tensor) -> None:
    """Keep these rows, and of each the K/V of its first `known` tokens; end all in one column."""
    width = int(known.max())
    shift = (width - known) - padding[rows]  # how many columns K/V moves to the right, (B, 1)
    source = torch.arange(width, device=rows.device) - shift  # (B, width)
    source = source.clamp(min=0)  # what lies in padding does not matter
    for layer in cache.layers:
        layer.keys = layer.keys[rows[:, None], :, source].transpose(1, 2)
        layer.values = layer.values[rows[:, None], :, source].transpose(1, 2)
