"""What the target writes with which chance: every text up to a length, by enumeration."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.engine.sampling import SamplingParams
from specviz.record.schema import Array

MOST_PREFIXES = 100_000
CHUNK = 4096  # rows of a forward
EDGE = 1e-5  # of a cumulative chance: nearer to top_p, rounding may decide

Prefix = tuple[tuple[int, ...], tuple[int, ...]]  # a prompt, and the new tokens behind it


@dataclass(frozen=True, eq=False)
class Texts:
    """The distributions behind all prefixes. V tokens, C prefixes."""

    length: int  # T, new tokens of a whole text
    prefixes: Sequence[Prefix]  # (C,), those of a prompt together, by length
    longer: Array  # (C, V), the number of the prefix that a token leads to; -1 if the text is whole
    p: Array  # (C, V), of the target
    q: Array | None  # (C, V), of the draft; None without one
    unclear: Array  # (C,), where rounding decides what top_p keeps of p

    @property
    def size(self) -> int:
        """V: tokens of the vocabulary."""
        return int(self.p.shape[1])

    @property
    def place(self) -> Array:
        """(C,): how many new tokens each prefix has."""
        return np.array([len(tokens) for _, tokens in self.prefixes])

    def starts(self, prompts: Sequence[Sequence[int]]) -> Array:
        """Return the numbers (B,) of prompts without a new token."""
        numbers = {prompt: i for i, (prompt, tokens) in enumerate(self.prefixes) if not tokens}
        return np.array([numbers[tuple(prompt)] for prompt in prompts])

    def chances(self) -> Array:
        """Return the chance (C,) that a text of its prompt begins with each prefix."""
        found = np.ones(len(self.p))
        for number, longer in enumerate(self.longer):
            if longer[0] >= 0:
                found[longer] = found[number] * self.p[number]
        return found


def count_prefixes(prompts: Sequence[Sequence[int]], size: int, length: int) -> int:
    different = {tuple(prompt) for prompt in prompts}
    return len(different) * sum(size**place for place in range(length))


def enumerate_texts(
    target: PreTrainedModel,
    draft: PreTrainedModel | None,
    prompts: Sequence[Sequence[int]],
    length: int,
    size: int,
    params: SamplingParams,
) -> Texts:
    """Compute the distributions behind all prefixes of all prompts."""
    prefixes: list[Prefix] = []
    longer = []
    for prompt in dict.fromkeys(tuple(prompt) for prompt in prompts):
        for place in range(length):
            found = list(itertools.product(range(size), repeat=place))
            prefixes += [(prompt, tokens) for tokens in found]
            children = len(prefixes) + np.arange(len(found) * size).reshape(-1, size)
            longer.append(children if place + 1 < length else np.full_like(children, -1))
    logits = _logits(target, prefixes, size)
    q = None if draft is None else params.distribution(_logits(draft, prefixes, size)).numpy()
    return Texts(
        length=length,
        prefixes=prefixes,
        longer=np.concatenate(longer),
        p=params.distribution(logits).numpy(),
        q=q,
        unclear=is_unclear(logits, params),
    )


def is_unclear(logits: Tensor, params: SamplingParams) -> Array:
    """Return for which logits (..., V) rounding decides what top_p keeps."""
    if params.top_p is None or params.top_p >= 1:
        return np.zeros(logits.shape[:-1], bool)
    kept = []
    for edge in (params.top_p - EDGE, params.top_p + EDGE):
        near = SamplingParams(params.temperature, params.top_k, min(max(edge, EDGE), 1.0))
        kept.append(near.distribution(logits) > 0)
    found: Array = (kept[0] != kept[1]).any(-1).numpy()
    return found


@torch.inference_mode()
def _logits(model: PreTrainedModel, prefixes: Sequence[Prefix], size: int) -> Tensor:
    """Return the logits (C, V) float32 behind all prefixes, on the CPU."""
    parts = []
    for _, alike in itertools.groupby(prefixes, key=lambda prefix: (prefix[0], len(prefix[1]))):
        rows = [[*prompt, *tokens] for prompt, tokens in alike]
        for start in range(0, len(rows), CHUNK):
            ids = torch.tensor(rows[start : start + CHUNK], device=model.device)
            parts.append(model(ids).logits[:, -1, :size].float().cpu())
    return torch.cat(parts)


def collect(
    outputs: Sequence[Sequence[Sequence[int]]], prompts: Sequence[Sequence[int]], texts: Texts
) -> pd.DataFrame:
    """Return the draws of runs of rows of tokens, where p is known well enough.

    Columns: run, row, place (from 0), context (number of the prefix) and token, in this order.
    """
    starts = texts.starts(prompts).tolist()
    longer = texts.longer.tolist()
    entries = []
    for run, rows in enumerate(outputs):
        for row, tokens in enumerate(rows):
            context = starts[row]
            for place, token in enumerate(tokens):
                if not texts.unclear[context]:
                    entries.append((run, row, place, context, token))
                context = longer[context][token]
    columns = ["run", "row", "place", "context", "token"]
    return pd.DataFrame(entries, columns=columns, dtype=np.int64)
