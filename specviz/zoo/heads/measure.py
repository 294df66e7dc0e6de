"""How far a head's drafts agree with the target on texts that it was not trained on.

The texts are the target's own greedy ones, so what a decoder would accept can be counted without
running it: as long as a chain's drafts are right, they are the text itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.engine.heads.modules import DraftHead
from specviz.engine.models.pair import Pair
from specviz.generation.generate import generate
from specviz.record.schema import Array
from specviz.zoo.heads.chains import unroll
from specviz.zoo.heads.features import target_features

NEW_TOKENS = 128
RANKS = 5  # of top-5


@dataclass(frozen=True)
class Text:
    """A greedy text of the target.

    Attributes:
        tokens: (T,), the prompt's and the new ones.
        prompt_length: how many are the prompt's.
        features: (T, F), the target's, of `layers`.
        layers: which layers' outputs they are.
    """

    tokens: Tensor
    prompt_length: int
    features: Tensor
    layers: tuple[int, ...]


def greedy_texts(
    pair: Pair, prompts: Sequence[str | list[int]], layers: Sequence[int]
) -> list[Text]:
    """Return what the pair's target writes greedily after the prompts, and its features."""
    result = generate(
        pair, prompts, strategy="autoregressive", max_new_tokens=NEW_TOKENS, progress=False
    )
    encoded = []
    for prompt in prompts:
        if isinstance(prompt, str):
            assert pair.tokenizer is not None  # generate would have raised
            encoded.append(pair.tokenizer(prompt)["input_ids"])
        else:
            encoded.append(list(prompt))
    return texts_from(pair.target, encoded, result.tokens, layers)


def texts_from(
    target: PreTrainedModel,
    prompts: Sequence[list[int]],
    new_tokens: Sequence[list[int]],
    layers: Sequence[int],
) -> list[Text]:
    """Return texts, given prompts and what the target writes greedily after each."""
    texts = []
    for prompt, new in zip(prompts, new_tokens, strict=True):
        tokens = torch.tensor([*prompt, *new], device=target.device)
        features = target_features(target, tokens[None], layers)[0].clone()
        texts.append(Text(tokens, len(prompt), features, tuple(layers)))
    return texts


def measure_head(
    head: DraftHead, texts: Sequence[Text], num_draft_tokens: int = 4
) -> dict[str, float]:
    """Return the head's figures on the texts, K drafts a round.

    They are `length`, the mean acceptance length: new tokens a round, bonus included, over all
    rounds of all texts. Then `coverage`; see `measure_coverage`. And for each step s from 1
    `top1_s` and `top5_s`, the shares of positions where the next token is the head's first choice,
    or among its first five, given the true tokens before it. A run's `mean_acceptance_length` is a
    little larger, as it counts accepted drafts beyond a text's end.
    """
    found = count_hits(head, texts, num_draft_tokens, num_draft_tokens)
    figures = {"length": float(found.tokens.sum() / found.rounds.sum())}
    figures["coverage"] = measure_coverage(head, texts)
    shares = {"top1": found.top1, "top5": found.top5}
    for step in range(num_draft_tokens):
        for name, counts in shares.items():
            share = counts[:, step].sum() / found.positions[:, step].sum()
            figures[f"{name}_{step + 1}"] = float(share)
    return figures


def measure_coverage(head: DraftHead, texts: Sequence[Text]) -> float:
    """Return the share of the target's tokens that the head can propose.

    It is 1, unless the head has a reduced vocabulary. The texts are greedy, so their tokens are the
    target's first choices, and no more than this share of a head's first drafts can be accepted.
    """
    ids = head.draft_ids
    if ids is None:
        return 1.0
    written = torch.cat([text.tokens[text.prompt_length :] for text in texts])
    return float(torch.isin(written, ids.to(written.device)).double().mean())


@dataclass(frozen=True)
class Hits:
    """How often a head is right on R texts, in chains of S steps from every position.

    Attributes:
        tokens, rounds: (R,), new tokens, and the rounds in which they are written.
        positions: (R, S), positions with a token at this step.
        top1, top5: (R, S), of them, those where it is the head's first choice, or among its first
            five, given the true tokens before it.
        reached, accepted: (R, S), positions where all choices before this step are right, and where
            this one is right too.
    """

    tokens: Array
    rounds: Array
    positions: Array
    top1: Array
    top5: Array
    reached: Array
    accepted: Array


@torch.no_grad()
def count_hits(head: DraftHead, texts: Sequence[Text], steps: int, num_draft_tokens: int) -> Hits:
    """Count how often the head is right, text by text.

    Args:
        steps: of the chains.
        num_draft_tokens: K of the rounds, at most `steps`.
    """
    names = ("positions", "top1", "top5", "reached", "accepted")
    counts: dict[str, list[list[int]]] = {name: [] for name in names}
    rounds = []
    for text in texts:
        ranks = _ranks(head, text, steps)  # (positions of the text, S)
        exists = ranks >= 0
        right = ranks == 0
        in_a_row = np.logical_and.accumulate(right, axis=1)
        before = np.pad(in_a_row[:, :-1], ((0, 0), (1, 0)), constant_values=True)
        found = (exists, right, exists & (ranks < RANKS), exists & before, in_a_row)
        for name, values in zip(names, found, strict=True):
            counts[name].append(values.sum(0).tolist())
        rounds.append(count_rounds(in_a_row[:, :num_draft_tokens].sum(1).tolist()))
    tokens = [each[0] for each in counts["positions"]]
    arrays = {name: np.array(values) for name, values in counts.items()}
    return Hits(np.array(tokens), np.array(rounds), **arrays)


def count_rounds(accepted: Sequence[int]) -> int:
    """Return the rounds of a text, given how many drafts are accepted at each of its positions.

    A round that accepts a drafts goes on a + 1 positions later.
    """
    rounds = 0
    place = 0
    while place < len(accepted):
        place += accepted[place] + 1
        rounds += 1
    return rounds


def _ranks(head: DraftHead, text: Text, steps: int) -> Array:
    """Return the ranks (positions, steps), from 0, of the true tokens at all positions of the text.

    A rank is -1 where the text has no token so many steps on.
    """
    size = text.features.shape[-1] // len(text.layers)
    parts = text.features.split(size, -1)
    features = torch.cat([parts[text.layers.index(i)] for i in head.settings.layers], -1)
    # The last chains end behind the text. What they read there is not counted.
    tokens = torch.nn.functional.pad(text.tokens, (0, steps))
    features = torch.nn.functional.pad(features, (0, 0, 0, steps))
    last = len(text.tokens) - 1
    starts = torch.arange(text.prompt_length - 1, last, device=tokens.device)
    ranks = torch.full((len(starts), steps), -1)
    outputs = unroll(head, tokens[None], features[None], starts[None], steps)
    for step, output in enumerate(outputs):
        counted = max(len(starts) - step, 0)
        logits = output.logits[0, :counted]
        true = tokens[starts[:counted] + step + 1]
        # What is not finite counts as above, so that a head that diverged is never right.
        above = (~(logits <= logits.gather(1, true[:, None]))).sum(-1)
        ranks[:counted, step] = above.cpu()
    return ranks.numpy()
