"""Compute what a model returns for a whole row at once, and how exactly that can be repeated.

Contract: forwards of one row, with the positions 0, 1, 2, ... and no cache of anybody's. Not known
here: what a decoder did.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.engine.kv.slabs import plain_cache, states_of

MARGIN = 4  # a difference of more than this many times the measured noise is real
FLOOR = 1e-5  # of log-probabilities in float32
CHUNK = 5  # tokens a forward, where noise is measured


@dataclass
class FreshRow:
    """A row of n tokens, read at once. L layers.

    Attributes:
        logprobs: (n, V) float32, on the CPU.
        states: keys and values (heads, n, head size) of each layer.
    """

    logprobs: Tensor
    states: list[tuple[Tensor, Tensor]]


@torch.inference_mode()
def read_at_once(model: PreTrainedModel, tokens: Sequence[int]) -> FreshRow:
    """Read a row in one forward."""
    cache = plain_cache()
    ids = torch.tensor([list(tokens)], device=model.device)
    logits = model(ids, past_key_values=cache, use_cache=True).logits[0]
    states = [(keys[0], values[0]) for keys, values in states_of(cache)]
    return FreshRow(logits.float().log_softmax(-1).cpu(), states)


@torch.inference_mode()
def tolerance_of(model: PreTrainedModel, rows: Sequence[tuple[Sequence[int], FreshRow]]) -> float:
    """Return how far log-probabilities of leading tokens may differ by rounding.

    Each row is read again in other shapes: twice in a batch, and `CHUNK` tokens at a time. The
    largest change of a leading token's log-probability is the noise; the tolerance is `MARGIN`
    times as much.
    """
    noise = 0.0
    for tokens, fresh in rows:
        leading = fresh.logprobs.topk(min(8, fresh.logprobs.shape[-1]), -1)
        cache = plain_cache()
        # Two rows and short forwards use other kernels, as a decoder's forwards do.
        ids = torch.tensor([list(tokens)] * 2, device=model.device)
        first = max(len(tokens) // 2, 1)
        bounds = [0, *range(first, len(tokens), CHUNK), len(tokens)]
        for start, stop in pairwise(bounds):
            output = model(ids[:, start:stop], past_key_values=cache, use_cache=True)
            again = output.logits.float().log_softmax(-1).cpu()
            found = again.gather(-1, leading.indices[start:stop].expand(2, -1, -1))
            change = (found - leading.values[start:stop]).abs().max()
            noise = max(noise, float(change))
    return MARGIN * noise + FLOOR
