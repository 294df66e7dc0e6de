"""What the target says of a text that is already written, and how much its numbers depend on the shape of the forwards.

Plain forwards of transformers over left-padded rows, with the cache that the model makes for itself: nothing of the loop, its layouts
and its slabs takes part, so that a mistake there cannot pass as noise. M tokens of a text are new, the prompt's are not counted.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from specviz.engine.models.pair import Pair

SAMPLE = 8  # texts in which noise is measured, or one full batch if that is more

Text = tuple[Sequence[int], Sequence[int]]  # a prompt's tokens and the new ones


class Said(NamedTuple):
    """The target's log-probabilities of one text at batch 1, in natural units: ids (M, k) int64 of the leading tokens, best first,
    their logprobs (M, k) float32, and chosen (M,) float32, those of the tokens that the text has.
    """

    ids: np.ndarray
    logprobs: np.ndarray
    chosen: np.ndarray


def read(pair: Pair, text: Text, leading: int = 5) -> Said:
    """One text at batch 1: the prompt in one forward, all new tokens in a second one."""
    new = text[1]
    _, logprobs = next(_replay(pair, [text], len(new)))
    top = logprobs[0].topk(min(leading, logprobs.shape[-1]), -1)
    chosen = logprobs[0].gather(1, torch.tensor(new, device=pair.device)[:, None])[:, 0]
    return Said(top.indices.cpu().numpy(), top.values.cpu().numpy(), chosen.cpu().numpy())


def measure_noise(
    pair: Pair, texts: Sequence[Text], shapes: Sequence[tuple[int, int]], leading: int = 2
) -> float:
    """The largest change of a leading token's log-probability between batch 1 (`read`) and other shapes of the same forwards.

    Args:
        texts: those whose noise is wanted most come first; max(SAMPLE, rows) of them are read in each shape.
        shapes: (rows, new tokens a forward) of the runs whose noise it is: (8, K + 1) for drafts verified at B = 8.
        leading: how many tokens a position are compared.
    """
    said: dict[int, Said] = {}
    largest = 0.0
    for rows, step in shapes:
        sample = texts[: max(SAMPLE, rows)]
        for first in range(0, len(sample), rows):
            group = range(first, min(first + rows, len(sample)))
            said |= {i: read(pair, texts[i], leading) for i in group if i not in said}
            largest = max(
                largest,
                _largest_change(pair, [texts[i] for i in group], [said[i] for i in group], step),
            )
    return largest


def _largest_change(pair: Pair, texts: Sequence[Text], said: Sequence[Said], step: int) -> float:
    largest = 0.0
    for first, logprobs in _replay(pair, texts, step):
        for row, alone in enumerate(said):
            ids, before = (
                torch.from_numpy(values[first : first + step]).to(pair.device)
                for values in (alone.ids, alone.logprobs)
            )
            if len(ids):
                largest = max(
                    largest, float((logprobs[row, : len(ids)].gather(1, ids) - before).abs().max())
                )
    return largest


@torch.inference_mode()
def _replay(pair: Pair, texts: Sequence[Text], step: int) -> Iterator[tuple[int, Tensor]]:
    """Feed texts together: the prompts in one forward, then `step` new tokens at a time.

    Yields (m, log-probabilities (b, q, V) float32) of the new tokens m to m + q - 1; behind the end of a shorter text they mean nothing.
    """
    width, length = max(len(prompt) for prompt, _ in texts), max(len(new) for _, new in texts)
    tokens = torch.zeros(len(texts), width + length, dtype=torch.long)
    visible = torch.zeros_like(tokens)
    for row, (prompt, new) in enumerate(texts):
        start = width - len(prompt)
        tokens[row, start : width + len(new)] = torch.tensor([*prompt, *new])
        visible[row, start:] = 1
    tokens, visible = tokens.to(pair.device), visible.to(pair.device)
    positions = (visible.cumsum(1) - 1).clamp(min=0)

    def arguments(first: int, stop: int) -> dict[str, Tensor]:
        return {
            "input_ids": tokens[:, first:stop],
            "position_ids": positions[:, first:stop],
            "attention_mask": visible[:, :stop],
        }

    cache = None
    if width > 1:
        cache = pair.target.base_model(**arguments(0, width - 1), use_cache=True).past_key_values
    for m in range(0, length, step):
        out = pair.target(
            **arguments(width - 1 + m, min(width - 1 + m + step, width - 1 + length)),
            past_key_values=cache,
            use_cache=True,
        )
        cache = out.past_key_values
        yield m, out.logits[..., : pair.vocabulary_size].to(pair.device).float().log_softmax(-1)
