"""Rows one after the other, on a target whose layers keep states: snapshot before a round, replay.

After a rejection, the states from before the round are put back, and accepted tokens are read
again. K/V of the rejected ones is cut off.
"""

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from checks.decoders.common import Tokens, count_accepted, draft_greedily, finish


@torch.inference_mode()
def decode(
    target: PreTrainedModel,
    draft: PreTrainedModel,
    prompts: list[Tokens],
    K: int = 4,
    max_new_tokens: int = 32,
    eos: int = 2,
) -> list[Tokens]:
    outputs: list[Tokens] = [[] for _ in prompts]
    for prompt, output in zip(prompts, outputs, strict=True):
        row = list(prompt)
        cache = DynamicCache(config=target.config)
        read(target, cache, row[:-1])
        is_done = False
        while not is_done:
            (drafts,) = draft_greedily(draft, [row], K)
            saved = snapshot(cache)
            choices = read(target, cache, [row[-1], *drafts])
            accepted = count_accepted(drafts, choices)
            if accepted < K:
                put_back(cache, saved)
                read(target, cache, [row[-1], *drafts[:accepted]])
            new = [*drafts[:accepted], choices[accepted]]
            is_done = finish(output, new, max_new_tokens, eos)
            row += new
    return outputs


def read(model: PreTrainedModel, cache: DynamicCache, tokens: Tokens) -> Tokens:
    """Read tokens behind those in the cache; return the model's choice after each."""
    ids = torch.tensor([tokens], device=model.device)
    return model(ids, past_key_values=cache).logits[0].float().argmax(-1).tolist()


def snapshot(cache: DynamicCache) -> list[tuple[Tensor, Tensor] | int]:
    """Return what each layer has: its states, or how many slots hold K/V."""
    return [
        (layer.conv_states[0], layer.recurrent_states[0])
        if hasattr(layer, "recurrent_states")
        else layer.keys.shape[2]
        for layer in cache.layers
    ]


def put_back(cache: DynamicCache, saved: list[tuple[Tensor, Tensor] | int]) -> None:
    """Let each layer have what it had."""
    for layer, had in zip(cache.layers, saved, strict=True):
        if isinstance(had, int):
            layer.keys = layer.keys[:, :, :had]
            layer.values = layer.values[:, :, :had]
        else:
            layer.conv_states[0], layer.recurrent_states[0] = had
