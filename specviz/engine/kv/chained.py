"""A chain: several forwards as one compiled function, each over the token chosen by the one before.

On a CPU, calling a small compiled model takes nearly as long as its kernels. One call for all
drafts of a round pays that once.

Contract: code for torch.compile, which `compiled` runs. Not known here: rows and drafters.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from specviz.engine.kv.attention import grouped_mask
from specviz.engine.kv.compiled import MAX_PACKED_BYTES, CompiledModel, weight_bytes
from specviz.engine.kv.feed import Feed

# Torch compiles each layer once for every forward of a chain. Sixteen take as long to compile as
# the embedded target. In deeper models, calls are a small part of a forward anyway.
MAX_COMPILED_LAYERS = 16


class Chain(NamedTuple):
    """What K forwards give: tokens (b, K), and the logits (b, K, V) that each was chosen from."""

    tokens: Tensor
    logits: Tensor


def run_chain(model: nn.Module, **arguments: Any) -> tuple[Tensor, Tensor]:
    """Run `steps` forwards. The first reads `input_ids` (b, f), each later one the token chosen.

    Args:
        model: a causal LM, or a draft head.
        arguments: those of a forward, with these differences. `position_ids` (b, f + steps - 1) and
            `attention_mask` (b, f + steps - 1, w), which is additive, are those of all tokens read;
            the slots of all are in the cache's `access`. `features` (b, f, D), if given, are those
            of the first forward. Further: `steps`, `groups` as in `grouped_mask`, and
            `vocabulary`, V or None.
    """
    steps = arguments.pop("steps")
    groups = arguments.pop("groups")
    vocabulary = arguments.pop("vocabulary")
    tokens = arguments.pop("input_ids")
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
    """Calls `run_chain` on a model through torch.compile."""

    code = staticmethod(run_chain)
    output = Chain

    def __init__(self, call: CompiledModel) -> None:
        """call: what runs single forwards of the same model."""
        super().__init__(call._model)
        # Both lay out the same weights, which only one of them may do at a time.
        self._lock = call._lock


def is_worth_chaining(model: nn.Module, layers: int, steps: int | None) -> bool:
    """Return whether compiling `steps` forwards as one function pays and fits the limits."""
    if steps is None or steps < 2 or steps * layers > MAX_COMPILED_LAYERS:
        return False
    # On a GPU, graphs take the place of calls.
    if next(model.parameters()).device.type != "cpu":
        return False
    weights = weight_bytes(model)
    # A draft head borrows this, so it is not among the head's own modules.
    lm_head = getattr(model, "target_lm_head", None)
    if lm_head is not None:
        weights += weight_bytes(lm_head)
    # Each forward of a chain has packed weights of its own.
    return steps * weights <= MAX_PACKED_BYTES


def parts_of_chain(feed: Feed, fed: Tensor, tokens: Tensor) -> Iterator[Feed]:
    """Yield the feed of each forward of a chain, as if each had run alone.

    Args:
        feed: of all tokens that were read, (b, f + K - 1).
        fed: (b, f), the tokens that were read first.
        tokens: (b, K), those that were chosen.
    """
    stop = fed.shape[1]
    yield feed.part(fed, slice(0, stop))
    for read in tokens[:, :-1].split(1, 1):
        yield feed.part(read, slice(stop, stop + 1))
        stop += 1
