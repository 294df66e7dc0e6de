"""A target's scores of a text that is already written, and their noise, by plain forwards of
transformers. Nothing of the decode loop takes part, so that a mistake there cannot pass as noise.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Union

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessorList

from specviz.checks.scores import TextScores

if TYPE_CHECKING:
    from specviz.checks.audit.target import Target
    from specviz.engine.models.pair import Pair

SAMPLE, MOST = 8, 32  # texts in which noise is measured: the diverging ones, within these bounds
STEP = 512  # new tokens a forward, so that the logits of a long text fit in memory

Scoring = Union["Pair", "Target"]  # what has a target
Text = tuple[Sequence[int], Sequence[int]]  # a prompt's tokens and the new ones


def score_text(
    pair: Scoring, text: Text, leading: int = 5, processors: LogitsProcessorList | None = None
) -> TextScores:
    """Score one text at batch 1: the prompt in one forward, up to STEP new tokens in a second one,
    and so on.

    processors: of its logits; each place is processed with the text before it.
    """
    parts = []
    for m, (logits,) in _forwards(pair, [text], STEP):
        if processors:
            texts = ([[*text[0], *text[1][: m + j]]] for j in range(len(logits)))
            ids = (torch.tensor(each, device=logits.device) for each in texts)
            rows = [processors(each, row[None]) for each, row in zip(ids, logits, strict=True)]
            logits = torch.cat(rows)
        logprobs = logits.log_softmax(-1)
        new = torch.tensor(text[1][m : m + len(logprobs)], device=logprobs.device)
        top = logprobs.topk(min(leading, logprobs.shape[-1]), -1)
        chosen = logprobs.gather(1, new[:, None])[:, 0]
        parts.append([each.cpu().numpy() for each in (top.indices, top.values, chosen)])
    return TextScores(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def measure_noise(
    pair: Scoring,
    texts: Sequence[Text],
    shapes: Sequence[tuple[int, int]],
    leading: int = 2,
    diverging: int = 0,
) -> float:
    """Measure the largest change of a log-probability that other shapes of the forwards make.

    The reference are the forwards at batch 1 of `score_text`.

    Args:
        pair: its target is measured.
        texts: those whose noise matters most come first.
        shapes: (rows, new tokens a forward) of the runs whose noise it is: (8, K + 1) for drafts
            verified at B = 8.
        leading: how many leading tokens a position are compared.
        diverging: how many of the texts, the first ones, diverge. As many are read in each shape,
            at least SAMPLE or one full batch, and at most MOST.
    """
    sample = min(max(diverging, SAMPLE), MOST)
    alone: dict[int, TextScores] = {}  # the shapes of two runs read the same texts
    largest = 0.0
    for rows, step in shapes:
        count = min(max(sample, rows), len(texts))
        for first in range(0, count, rows):
            group = range(first, min(first + rows, count))
            for i in group:
                if i not in alone:
                    alone[i] = score_text(pair, texts[i], leading)
            for m, logits in _forwards(pair, [texts[i] for i in group], step):
                logprobs = logits.log_softmax(-1)
                for row, i in enumerate(group):
                    ids = torch.from_numpy(alone[i].ids[m : m + step]).to(pair.device)
                    before = torch.from_numpy(alone[i].logprobs[m : m + step]).to(pair.device)
                    changes = logprobs[row, : len(ids)].gather(1, ids) - before
                    if len(ids):
                        largest = max(largest, float(changes.abs().max()))
    return largest


@torch.inference_mode()
def _forwards(pair: Scoring, texts: Sequence[Text], step: int) -> Iterator[tuple[int, Tensor]]:
    """Feed texts together: the prompts in one forward, then `step` new tokens at a time.

    Yields (m, logits (b, q, V) float32) of the new tokens m to m + q - 1. Behind the end of a
    shorter text they mean nothing.
    """
    prompt_length = max(len(prompt) for prompt, _ in texts)
    new_length = max(len(new) for _, new in texts)
    tokens = torch.zeros(len(texts), prompt_length + new_length, dtype=torch.long)
    mask = torch.zeros_like(tokens)
    for row, (prompt, new) in enumerate(texts):
        start = prompt_length - len(prompt)
        tokens[row, start : prompt_length + len(new)] = torch.tensor([*prompt, *new])
        mask[row, start:] = 1
    tokens, mask = tokens.to(pair.device), mask.to(pair.device)
    # Padding would get -1, which an embedding of positions cannot look up.
    positions = (mask.cumsum(1) - 1).clamp(min=0)

    def arguments(first: int, stop: int) -> dict[str, Tensor]:
        return {
            "input_ids": tokens[:, first:stop],
            "position_ids": positions[:, first:stop],
            "attention_mask": mask[:, :stop],
        }

    # The prompt's last token is fed with the new ones: its logits are those of the first new token.
    first_fed = prompt_length - 1
    cache = None
    if first_fed > 0:
        out = pair.target.base_model(**arguments(0, first_fed), use_cache=True)
        cache = out.past_key_values
    for m in range(0, new_length, step):
        stop = first_fed + min(m + step, new_length)
        out = pair.target(**arguments(first_fed + m, stop), past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        # A padded LM head has more columns than tokens; they would change the softmax.
        logits = out.logits[..., : pair.vocabulary_size].to(pair.device)
        yield m, logits.float()
