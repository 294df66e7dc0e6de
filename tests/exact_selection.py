"""What a round with selected drafts writes, by exact enumeration: no model, and no random part.

All drafts that two rows can draw are summed. Two rows draft two tokens each over a vocabulary of
three, and rejection judges as many of them as a selection says.
"""

import itertools
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from specviz.engine.selectors import largest, score_drafts
from specviz.record.schema import Array

V, K, ROWS = 3, 2, 2
Given = dict[tuple[int, ...], Array]


def conditional(rng: np.random.Generator, depth: int) -> Given:
    """Return a distribution over V tokens after each text of up to `depth` tokens."""
    texts = itertools.chain(*(itertools.product(range(V), repeat=n) for n in range(depth + 1)))
    return {text: rng.dirichlet(np.ones(V)) for text in texts}


def judged(p: Given, q: Given, drafts: tuple[int, ...], length: int) -> Given:
    """Return what a row emits, by text of K + 1 tokens, if its first `length` drafts are judged.

    What a round does not write, the target writes.
    """
    out: dict[tuple[int, ...], float] = {}

    def write(text: tuple[int, ...], chance: float) -> None:
        if len(text) == K + 1:
            out[text] = out.get(text, 0.0) + chance
            return
        for token in range(V):
            write((*text, token), chance * p[text][token])

    reached = 1.0
    for j in range(length):
        before = drafts[:j]
        here, drawn = p[before], q[before]
        rest = np.clip(here - drawn, 0, None)
        takes = min(1.0, here[drafts[j]] / drawn[drafts[j]])
        for token in range(V):
            if rest.sum() > 0:
                write((*before, token), reached * (1 - takes) * rest[token] / rest.sum())
        reached *= takes
    write(drafts[:length], reached)
    return out  # type: ignore[return-value]


def distance(select: Callable[[Tensor, Tensor], list[int]], seed: int) -> float:
    """Return the total variation between the target's text and what the first row emits.

    Args:
        select: for log_q (ROWS, K, V) and the drafts (ROWS, K), returns how many drafts of each row
            are judged.
        seed: of p and q.
    """
    rng = np.random.default_rng(seed)
    p = conditional(rng, K)
    q = [conditional(rng, K - 1) for _ in range(ROWS)]
    sequences = list(itertools.product(range(V), repeat=K))
    found: dict[tuple[int, ...], float] = {}
    for drafts in itertools.product(sequences, repeat=ROWS):
        chance = 1.0
        log_q = torch.zeros(ROWS, K, V, dtype=torch.float64)
        for row, tokens in enumerate(drafts):
            for j in range(K):
                given_text = q[row][tokens[:j]]
                chance *= given_text[tokens[j]]
                log_q[row, j] = torch.from_numpy(np.log(given_text))
        length = select(log_q, torch.tensor(drafts))[0]
        for text, share in judged(p, q[0], drafts[0], length).items():
            found[text] = found.get(text, 0.0) + chance * float(share)
    right = {text: math.prod(p[text[:j]][text[j]] for j in range(K + 1)) for text in found}
    assert abs(math.fsum(right.values()) - 1) < 1e-9
    return sum(abs(found[text] - right[text]) for text in found) / 2


def selected(score: str, seed: int) -> float:
    """Return the same for TETRIS with a score, which verifies two of the four drafts."""

    def select(log_q: Tensor, tokens: Tensor) -> list[int]:
        usable = torch.ones(ROWS, K, dtype=torch.bool)
        return list(largest(score_drafts(log_q, tokens, score), usable, 2).tolist())

    return distance(select, seed)
