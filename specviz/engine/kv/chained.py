"""Several forwards as one compiled function: each reads the likeliest token after the one before.

A small model on a CPU is called so often that a call costs as much as half of its kernels. One call
for all drafts of a round costs that once.

Contract: code for torch.compile, which `compiled` runs. Not known here: caches, rows and drafters.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from specviz.engine.kv.attention import grouped_mask
from specviz.engine.kv.compiled import MAX_PACKED_BYTES, CompiledModel, weight_bytes
from specviz.engine.kv.feed import Feed

# Torch compiles a layer once for each forward of a chain. So many take as long as the verification
# by the embedded target, and where there are more, calls are a small part of a forward.
MAX_LAYERS = 16


class Chain(NamedTuple):
    """What a chain of K forwards gives: tokens (b, K), and the logits (b, K, V) behind them."""

    tokens: Tensor
    logits: Tensor


def run_chain(model: nn.Module, **arguments: Any) -> tuple[Tensor, Tensor]:
    """Run `steps` forwards, the first over `input_ids`, the others over the token just chosen.

    Args:
        model: a causal LM, or a draft head.
        arguments: of a forward, but for position_ids (b, f + steps - 1) and attention_mask
            (b, f + steps - 1, w), additive, of all tokens read. The cache's `access` has their
            slots. `features` (b, f, D) are a head's; `vocabulary` is V or None, and `groups` as in
            `grouped_mask`.
    """
    steps = arguments.pop("steps")
    groups = arguments.pop("groups")
    vocabulary = arguments.pop("vocabulary")
    tokens = arguments.pop("input_ids")  # (b, f)
    positions = arguments.pop("position_ids")
    added = arguments.pop("attention_mask")
    cache = arguments["past_key_values"]
    access = cache.access
    stop = tokens.shape[1]
    start = 0
    chosen = []
    logits = []
    for _ in range(steps):
        cache.access = replace(access, slots=access.slots[:, start:stop])
        output = model(
            input_ids=tokens,
            position_ids=positions[:, start:stop],
            attention_mask=grouped_mask(added[:, start:stop], groups),
            **arguments,
        )
        last = output.logits[:, -1, :vocabulary].float()
        tokens = last.argmax(-1, keepdim=True)
        if "features" in arguments:
            arguments["features"] = output.hidden[:, -1:]
        chosen.append(tokens)
        logits.append(last)
        start = stop
        stop += 1
    return torch.cat(chosen, 1), torch.stack(logits, 1)


class CompiledChain(CompiledModel):
    """Calls `run_chain` of a model through torch.compile."""

    code = staticmethod(run_chain)
    output = Chain


def is_worth_chaining(model: nn.Module, layers: int, steps: int | None) -> bool:
    """Return whether `steps` forwards gain from being one function, and can be compiled as such."""
    if steps is None:
        return False
    # Each forward of a chain has packed weights of its own.
    fits = steps * weight_bytes(model) <= MAX_PACKED_BYTES
    return steps > 1 and steps * layers <= MAX_LAYERS and fits


def parts_of_chain(feed: Feed, fed: Tensor, tokens: Tensor) -> Iterator[Feed]:
    """Yield the feed of each forward of a chain that read `fed` (b, f) and chose `tokens` (b, K).

    feed: of all tokens that were read, (b, f + K - 1).
    """
    stop = fed.shape[1]
    yield feed.part(fed, slice(0, stop))
    for read in tokens[:, :-1].split(1, 1):
        yield feed.part(read, slice(stop, stop + 1))
        stop += 1
