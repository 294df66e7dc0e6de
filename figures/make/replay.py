"""Drafts at every position of finished texts, and batches that are replayed on them, vectorised.

In greedy decoding and under coupling="gumbel", drafts and their acceptance depend on the text
before them alone, never on the batch. So one table replays every number of verified drafts, of
each row or of a batch, without a model.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from measure import INTERVAL
from scipy.stats import bootstrap

import specviz as sv
from specviz.engine.drafters import Draft, Drafter
from specviz.engine.selectors import Selector, score_round
from specviz.engine.state import State
from specviz.record.schema import Array
from specviz.scheduling.selection import largest

MOST_NODES = 64  # drafts of a tree that are kept


@dataclass(frozen=True)
class Drafts:
    """The best M drafts at each of N positions of R texts: chains, or trees.

    Attributes:
        offsets: (R+1,), the positions of text r are offsets[r] to offsets[r + 1].
        scores: (N, M), log chances, never rising along a draft's branch, parents before children.
        reached: (N, M+1), how many drafts are accepted if the first 0..M are verified.
    """

    offsets: Array = field(repr=False)
    scores: Array = field(repr=False)
    reached: Array = field(repr=False)

    @property
    def count(self) -> int:
        """R: texts."""
        return len(self.offsets) - 1

    @property
    def nodes(self) -> int:
        """M: drafts at each position."""
        return int(self.scores.shape[1])

    def texts(self, numbers: Array) -> "Drafts":
        """Return the table of some of the texts, in this order."""
        spans = [np.arange(self.offsets[r], self.offsets[r + 1]) for r in numbers]
        kept = np.concatenate(spans)
        return Drafts(np.cumsum([0, *map(len, spans)]), self.scores[kept], self.reached[kept])


@dataclass(frozen=True)
class Noting(Selector):
    """Verifies nothing, so that a run visits every position, and keeps what was proposed."""

    notes: dict[int, list[tuple[Array, ...]]] = field(default_factory=dict, compare=False)

    name: ClassVar[str] = "noting"
    needs_logits: ClassVar[bool] = True

    def choose(self, state: State, draft: Draft, capacity: int) -> Draft:
        parents = draft.parents
        if parents is None:  # a chain
            parents = torch.arange(-1, draft.tokens.shape[1] - 1).expand_as(draft.tokens)
        scores = score_round(state, draft, "chosen")
        kept = [each.cpu().numpy() for each in (draft.tokens, parents, scores)]
        for i, row in enumerate(state.batch.rows):
            if not row.finished:
                of_row = tuple(each[i] for each in kept)
                self.notes.setdefault(row.request.index, []).append(of_row)
        none = torch.zeros(len(state.batch), dtype=torch.long, device=draft.tokens.device)
        return replace(draft, lengths=none)


def draft_everywhere(
    pair: sv.Pair, prompts: Sequence[Any], drafter: str | Drafter, nodes: int, **run: Any
) -> tuple[Drafts, sv.Result]:
    """Decode `prompts` and let `drafter` propose at every position of the texts.

    Args:
        nodes: M, drafts at each position.
        run: further options of `generate`. What is sampled needs coupling="gumbel".
    """
    noting = Noting()
    result = sv.generate(
        pair, prompts, drafter=drafter, num_draft_tokens=nodes, selector=noting, progress=False,
        **run,
    )  # fmt: skip
    # Of each round in turn, text by text: the tokens, the parents and the scores of its drafts.
    notes = [note for number in range(len(result.tokens)) for note in noting.notes[number]]
    tokens, parents, scores = (np.stack(part) for part in zip(*notes, strict=True))
    following = []
    for text in result.tokens:
        ended = np.concatenate([np.array(text), np.full(nodes, -1)])  # no draft is -1
        following.append(np.lib.stride_tricks.sliding_window_view(ended, nodes)[: len(text)])
    reached = _reached(tokens, parents, np.concatenate(following))
    return Drafts(np.cumsum([0, *map(len, result.tokens)]), scores, reached), result


def _reached(tokens: Array, parents: Array, following: Array) -> Array:
    """Return how many drafts are accepted of the first 0..M of trees (N, M), (N, M+1)."""
    at = np.arange(len(tokens))
    depth = np.zeros(tokens.shape, np.int64)  # 0 next to the root
    is_right = np.zeros(tokens.shape, bool)
    for j, parent in enumerate(parents.T):
        depth[:, j] = np.where(parent < 0, 0, depth[at, parent] + 1)
        on_text = (parent < 0) | is_right[at, parent]
        is_right[:, j] = on_text & (tokens[:, j] == following[at, depth[:, j]])
    # What is right lies on one branch, and a parent stands before its children.
    return np.pad(is_right.cumsum(1), ((0, 0), (1, 0)))


def replay(
    table: Drafts, queues: Array, nodes: int, batch_size: int, *, over_batch: bool
) -> Iterator[tuple[Array, Array]]:
    """Yield each round: its rows as texts, and their gains, each (L, b).

    A row for which no text is left is -1, and gains nothing. All lanes advance together.

    Args:
        queues: (L, Q), the texts that each lane writes, which enter as rows become free.
        nodes: K, drafts verified of each row.
        over_batch: whether these are the K * b best of the batch instead, as TETRIS verifies.
    """
    lanes, length = queues.shape
    # Behind the end of a queue there is always one more place, which is empty.
    queues = np.concatenate([queues, np.full((lanes, 1), -1)], 1)
    taken = np.full(lanes, min(batch_size, length))
    texts = queues[:, : taken[0]]
    places = table.offsets[texts]
    while (texts >= 0).any():
        working = texts >= 0
        safe = np.where(working, places, 0)
        verified = nodes * working
        if over_batch:
            scores = table.scores[safe]
            # A draft without a chance comes before rows that are gone.
            scores = np.maximum(scores, np.finfo(scores.dtype).min)
            scores[~working] = -np.inf
            most = nodes * working.sum(1, keepdims=True)
            verified = largest(scores, working[:, :, None], most)
        left = table.offsets[texts + 1] - places
        gained = np.minimum(table.reached[safe, verified] + 1, left) * working
        yield texts, gained
        places = places + gained
        is_free = working & (gained == left)
        wanted = taken[:, None] + is_free.cumsum(1) - 1
        entering = np.take_along_axis(queues, wanted.clip(max=length), 1)
        taken = np.minimum(taken + is_free.sum(1), length)
        texts = np.where(is_free, entering, texts)
        places = np.where(is_free, table.offsets[texts], places)


def resampled(
    table: Drafts, queue: int, samples: int, seed: int, rate: Callable[[Array], Array]
) -> tuple[float, Array]:
    """Return `rate` of the texts, and of bootstrap samples of them (samples,).

    With the same seed, all policies get the same samples and queues.

    Args:
        queue: how many texts a queue has for each text of the table, in random order.
        rate: of queues (L, Q), (L,).
    """
    order = np.random.default_rng(seed).permutation(queue * table.count) % table.count
    every = np.arange(table.count)
    drawn = bootstrap(
        (every,), lambda texts, axis: rate(texts[:, order]), vectorized=True,
        n_resamples=samples, method="percentile", rng=np.random.default_rng(seed),
    )  # fmt: skip
    return float(rate(every[None, order])[0]), drawn.bootstrap_distribution


def interval(values: Array) -> tuple[float, float]:
    """Return the ends of the interval that most samples lie in."""
    low, high = np.percentile(values, INTERVAL)
    return float(low), float(high)
