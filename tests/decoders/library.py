"""Transformers' own generate(): a batch without speculation, and its ways to speculate row by row.

It is given no EOS but the caller's, and pads with a token that its mask hides.
"""

from collections.abc import Collection
from typing import Any

import torch
from transformers import PreTrainedModel


def plain(
    target: PreTrainedModel,
    draft: PreTrainedModel,
    prompts: list[list[int]],
    K: int,
    max_new_tokens: int,
    eos_token_ids: Collection[int] = (),
) -> list[list[int]]:
    """Right: greedy decoding of a batch with left padding, which ignores the draft."""
    longest = max(len(prompt) for prompt in prompts)
    rows = [[0] * (longest - len(prompt)) + prompt for prompt in prompts]
    masks = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    texts = target.generate(
        torch.tensor(rows, device=target.device),
        attention_mask=torch.tensor(masks, device=target.device),
        **settings(max_new_tokens, eos_token_ids),
    )
    return [up_to_eos(text, eos_token_ids) for text in texts[:, longest:].tolist()]


def assisted(
    target: PreTrainedModel,
    draft: PreTrainedModel,
    prompts: list[list[int]],
    K: int,
    max_new_tokens: int,
    eos_token_ids: Collection[int] = (),
) -> list[list[int]]:
    """Right: assisted generation with a draft model, one prompt at a time."""
    config = draft.generation_config
    before = (
        config.num_assistant_tokens,
        config.num_assistant_tokens_schedule,
        config.assistant_confidence_threshold,
    )
    config.num_assistant_tokens = K
    config.num_assistant_tokens_schedule = "constant"
    config.assistant_confidence_threshold = 0.0
    try:
        options = settings(max_new_tokens, eos_token_ids) | {"assistant_model": draft}
        return one_by_one(target, prompts, options)
    finally:
        config.num_assistant_tokens = before[0]
        config.num_assistant_tokens_schedule = before[1]
        config.assistant_confidence_threshold = before[2]


def prompt_lookup(
    target: PreTrainedModel,
    draft: PreTrainedModel,
    prompts: list[list[int]],
    K: int,
    max_new_tokens: int,
    eos_token_ids: Collection[int] = (),
) -> list[list[int]]:
    """Right: prompt lookup, one prompt at a time, which ignores the draft.

    Right with transformers 5.23; 5.17 returns nothing for a prompt that contains EOS.
    """
    options = settings(max_new_tokens, eos_token_ids) | {"prompt_lookup_num_tokens": K}
    return one_by_one(target, prompts, options)


def one_by_one(
    target: PreTrainedModel, prompts: list[list[int]], options: dict[str, Any]
) -> list[list[int]]:
    outputs = []
    for prompt in prompts:
        ids = torch.tensor([prompt], device=target.device)
        text = target.generate(ids, attention_mask=torch.ones_like(ids), **options)
        new = text[0, len(prompt) :].tolist()
        outputs.append(up_to_eos(new, options["eos_token_id"] or ()))
    return outputs


def settings(max_new_tokens: int, eos_token_ids: Collection[int]) -> dict[str, Any]:
    return {
        "do_sample": False,
        "max_new_tokens": max_new_tokens,
        "eos_token_id": sorted(eos_token_ids) or None,
        "pad_token_id": 0,
    }


def up_to_eos(tokens: list[int], eos_token_ids: Collection[int]) -> list[int]:
    for count, token in enumerate(tokens, 1):
        if token in eos_token_ids:
            return tokens[:count]
    return tokens
