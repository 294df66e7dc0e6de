"""One prompt after the other. Drafts are what followed the last two tokens earlier in the text."""

import torch
from transformers import DynamicCache, PreTrainedModel

from checks.decoders.common import Tokens, count_accepted


@torch.inference_mode()
def decode(
    target: PreTrainedModel,
    draft: PreTrainedModel | None,  # not used
    prompts: list[Tokens],
    K: int = 4,
    max_new_tokens: int = 32,
    eos: int = 2,
) -> list[Tokens]:
    outputs: list[Tokens] = []
    for prompt in prompts:
        tokens = list(prompt)
        most = len(prompt) + max_new_tokens
        cache = DynamicCache()
        read(target, cache, tokens[:-1])
        done = False
        while not done:
            drafts = propose(tokens, K)
            choices = read(target, cache, [tokens[-1], *drafts])
            a = count_accepted(drafts, choices)
            new = [*drafts[:a], choices[a]]
            tokens += new
            if a < len(drafts):
                cache.crop(a - len(drafts))
            done = new[-1] == eos or len(tokens) >= most
        outputs.append(tokens[len(prompt) : most])
    return outputs


def propose(tokens: Tokens, K: int) -> Tokens:
    """Return up to K tokens that followed the last two before."""
    for start in reversed(range(len(tokens) - 2)):
        if tokens[start : start + 2] == tokens[-2:]:
            return tokens[start + 2 : start + 2 + K]
    return []


def read(target: PreTrainedModel, cache: DynamicCache, tokens: Tokens) -> Tokens:
    """Feed tokens behind those of the cache; return the best next token after each."""
    ids = torch.tensor([tokens], device=target.device)
    return target(ids, past_key_values=cache).logits[0].float().argmax(-1).tolist()
