"""One prompt after the other. Both models have a cache, which is cropped after each round."""

import torch
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
) -> list[Tokens]:
    outputs: list[Tokens] = []
    for prompt in prompts:
        tokens = list(prompt)
        outputs.append([])
        target_cache, draft_cache = DynamicCache(), DynamicCache()
        read(target, target_cache, prompt[:-1])
        done = False
        while not done:
            drafts: Tokens = []
            for _ in range(K):
                unread = (tokens + drafts)[draft_cache.get_seq_length() :]
                drafts.append(read(draft, draft_cache, unread)[-1])
            choices = read(target, target_cache, [tokens[-1], *drafts])
            a = count_accepted(drafts, choices)
            new = [*drafts[:a], choices[a]]
            tokens += new
            forget(target_cache, K - len(new))
            forget(draft_cache, K - len(new))
            done = finish(outputs[-1], new, max_new_tokens, eos)
    return outputs


def read(model: PreTrainedModel, cache: DynamicCache, tokens: Tokens) -> Tokens:
    """Feed tokens behind those of the cache; return the best next token after each."""
    ids = torch.tensor([tokens], device=model.device)
    logits = model(ids, past_key_values=cache).logits[0].float()
    return logits.argmax(-1).tolist()


def forget(cache: DynamicCache, count: int) -> None:
    """Cut the last K/V of a cache."""
    if count > 0:
        cache.crop(-count)
