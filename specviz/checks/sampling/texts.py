"""What the target writes with which chance: every text up to a length, by enumeration.

Contract: models and prompts go in, distributions behind every prefix come out, and draws as arrays.
Not known here: decoders, and how draws are judged.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.engine.sampling import SamplingParams
from specviz.record.schema import Array

MOST_PREFIXES = 100_000
CHUNK = 4096  # rows of a forward
EDGE = 1e-5  # of a cumulative chance: nearer to top_p, rounding may decide


@dataclass(frozen=True, eq=False)
class Texts:
    """The distributions behind all prefixes. V tokens, C prefixes, T new tokens.

    Attributes:
        prompts: different prompts.
        length: T.
        p, q: (C, V), of the target and of the draft; q is None without a draft.
        unclear: (C,), where rounding decides what top_p keeps of p.
    """

    prompts: Sequence[tuple[int, ...]]
    length: int
    p: Array
    q: Array | None
    unclear: Array

    @property
    def size(self) -> int:
        """V: tokens of the vocabulary."""
        return int(self.p.shape[1])

    @property
    def per_prompt(self) -> int:
        """Prefixes of a prompt."""
        return len(self.p) // len(self.prompts)

    def place(self, context: Array) -> Array:
        """Return how many new tokens each prefix has."""
        starts = prefix_starts(self.size, self.length)
        found: Array = np.searchsorted(starts, context % self.per_prompt, side="right") - 1
        return found

    def name(self, context: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the prompt and the new tokens of a prefix."""
        prompt, number = divmod(context, self.per_prompt)
        place = int(self.place(np.array([number]))[0])
        number -= int(prefix_starts(self.size, self.length)[place])
        tokens = []
        for _ in range(place):
            number, token = divmod(number, self.size)
            tokens.append(token)
        return self.prompts[prompt], tuple(reversed(tokens))

    def chances(self, of_p: Array) -> Array:
        """Return the chance (C,) that a text of its prompt begins with each prefix."""
        found = np.ones(len(self.p))
        for prompt in range(len(self.prompts)):
            first = prompt * self.per_prompt
            starts = first + prefix_starts(self.size, self.length)
            for place in range(1, self.length):
                before = np.arange(starts[place - 1], starts[place])
                behind = found[before][:, None] * of_p[before]
                stop = starts[place] + behind.size
                found[starts[place] : stop] = behind.ravel()
        return found


@dataclass(frozen=True, eq=False)
class DrawnTokens:
    """Tokens that a decoder drew, in the order of runs, rows and places.

    Attributes:
        run, row, place: (N,), where; place 0 is the first new token.
        context: (N,), the prefix behind which it was drawn.
        token: (N,).
        kept: (N,), whether p is known well enough there.
    """

    run: Array
    row: Array
    place: Array
    context: Array
    token: Array
    kept: Array


def prefix_starts(size: int, length: int) -> Array:
    """Return the number of the first prefix of each length, 0 to T - 1."""
    counts = [size**place for place in range(length)]
    return np.cumsum([0, *counts[:-1]])


def count_prefixes(prompts: int, size: int, length: int) -> int:
    return prompts * sum(size**place for place in range(length))


def enumerate_texts(
    target: PreTrainedModel,
    draft: PreTrainedModel | None,
    prompts: Sequence[Sequence[int]],
    length: int,
    size: int,
    params: SamplingParams,
) -> Texts:
    """Compute the distributions behind all prefixes of all prompts."""
    different = list(dict.fromkeys(tuple(prompt) for prompt in prompts))
    said = _logits(target, different, length, size)
    q = None
    if draft is not None:
        q = params.distribution(_logits(draft, different, length, size)).numpy()
    return Texts(
        prompts=different,
        length=length,
        p=params.distribution(said).numpy(),
        q=q,
        unclear=is_unclear(said, params),
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
def _logits(
    model: PreTrainedModel, prompts: Sequence[tuple[int, ...]], length: int, size: int
) -> Tensor:
    """Return the logits (C, V) float32 behind all prefixes, on the CPU."""
    parts = []
    for prompt in prompts:
        for place in range(length):
            prefixes = [
                [*prompt, *prefix] for prefix in itertools.product(range(size), repeat=place)
            ]
            for start in range(0, len(prefixes), CHUNK):
                ids = torch.tensor(prefixes[start : start + CHUNK], device=model.device)
                parts.append(model(ids).logits[:, -1, :size].float().cpu())
    return torch.cat(parts)


def collect(
    outputs: Sequence[Sequence[Sequence[int]]], prompts: Sequence[Sequence[int]], texts: Texts
) -> DrawnTokens:
    """Return the draws of runs (R) of rows (B) of tokens."""
    numbers = {prompt: number for number, prompt in enumerate(texts.prompts)}
    starts = prefix_starts(texts.size, texts.length)
    entries = []
    for run, rows in enumerate(outputs):
        for row, tokens in enumerate(rows):
            first = numbers[tuple(prompts[row])] * texts.per_prompt
            prefix = 0
            for place, token in enumerate(tokens):
                entries.append((run, row, place, first + starts[place] + prefix, token))
                prefix = prefix * texts.size + token
    table = np.array(entries, dtype=np.int64).reshape(-1, 5)
    return DrawnTokens(
        run=table[:, 0],
        row=table[:, 1],
        place=table[:, 2],
        context=table[:, 3],
        token=table[:, 4],
        kept=~texts.unclear[table[:, 3]],
    )
