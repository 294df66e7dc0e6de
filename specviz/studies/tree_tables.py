"""Trees that a draft model grows at every position of finished texts, and what they would gain.

In greedy decoding and under coupling="gumbel", a tree and its acceptance depend on the text before
it alone, never on the batch.
So one table replays every number of verified drafts, of each row or of a batch, without a model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch

from specviz.engine.drafters import Draft
from specviz.engine.drafters.tree import TreeDrafter
from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt
from specviz.engine.selectors import Selector
from specviz.engine.state import State
from specviz.generation.generate import generate
from specviz.generation.result import Result
from specviz.record.schema import Array
from specviz.scheduling.selection import largest

MOST_NODES = 64  # drafts of a tree that are kept


@dataclass(frozen=True)
class TreeTable:
    """The best M drafts of a tree at each of N positions of R texts.

    Attributes:
        offsets: (R+1,), the positions of text r are offsets[r] to offsets[r + 1].
        scores: (N, M), log chances, falling along each tree, and parents before children.
        reached: (N, M+1), how many drafts are accepted if the first 0..M are verified.
    """

    offsets: Array = field(repr=False)
    scores: Array = field(repr=False)
    reached: Array = field(repr=False)

    @property
    def nodes(self) -> int:
        """M: drafts of each tree."""
        return self.scores.shape[1]

    def texts(self, numbers: Array) -> "TreeTable":
        """Return the table of some of the texts, in this order."""
        spans = [np.arange(self.offsets[r], self.offsets[r + 1]) for r in numbers]
        lengths = [len(span) for span in spans]
        kept = np.concatenate(spans)
        return TreeTable(np.cumsum([0, *lengths]), self.scores[kept], self.reached[kept])


@dataclass(frozen=True)
class Noting(Selector):
    """Verifies nothing, so that a run visits every position, and keeps what was proposed."""

    notes: dict[int, list[tuple[Array, Array, Array]]] = field(default_factory=dict, compare=False)

    name: ClassVar[str] = "noting"

    def choose(self, state: State, draft: Draft, capacity: int) -> Draft:
        assert draft.parents is not None
        assert draft.scores is not None
        kept = [each.cpu().numpy() for each in (draft.tokens, draft.parents, draft.scores)]
        for i, row in enumerate(state.batch.rows):
            if not row.finished:
                of_row = (kept[0][i], kept[1][i], kept[2][i])
                self.notes.setdefault(row.request.index, []).append(of_row)
        none = torch.zeros(len(state.batch), dtype=torch.long, device=draft.tokens.device)
        return replace(draft, lengths=none)


def grow_everywhere(
    pair: Pair,
    prompts: Sequence[Prompt],
    drafter: TreeDrafter,
    **run: Any,
) -> tuple[TreeTable, Result]:
    """Decode `prompts` and let `drafter` grow a tree at every position of the texts.

    run: further options of `generate`. Texts must not depend on the drafts, so that what is sampled
        needs coupling="gumbel".
    """
    selector = Noting()
    result = generate(
        pair,
        prompts,
        drafter=drafter,
        num_draft_tokens=min(drafter.grown(), MOST_NODES),
        selector=selector,
        progress=False,
        **run,
    )
    # Of each round in turn, text by text: the tokens, the parents and the scores of its tree.
    notes = [note for number in range(len(result.tokens)) for note in selector.notes[number]]
    tokens, parents, scores = (np.stack(part) for part in zip(*notes, strict=True))
    offsets = np.cumsum([0, *(len(text) for text in result.tokens)])
    following = _following(result.tokens, tokens.shape[1])
    return TreeTable(offsets, scores, _reached(tokens, parents, following)), result


def _following(texts: Sequence[Sequence[int]], width: int) -> Array:
    """Return the tokens that follow each position (N, width), -1 behind the end of its text."""
    parts = []
    for text in texts:
        ended = np.concatenate([np.array(text), np.full(width, -1)])
        parts.append(np.lib.stride_tricks.sliding_window_view(ended, width)[: len(text)])
    return np.concatenate(parts)


def _reached(tokens: Array, parents: Array, following: Array) -> Array:
    """Return how many drafts are accepted of the first 0..M of trees (N, M), (N, M+1)."""
    positions, width = tokens.shape
    at = np.arange(positions)
    depth = np.zeros((positions, width), np.int64)  # 0 next to the root
    is_right = np.zeros((positions, width), bool)
    for j in range(width):
        parent = parents[:, j]
        is_first = parent < 0
        depth[:, j] = np.where(is_first, 0, depth[at, parent] + 1)
        on_text = is_first | is_right[at, parent]
        is_right[:, j] = on_text & (tokens[:, j] == following[at, depth[:, j]])
    # What is right lies on one branch, and a parent stands before its children.
    return np.concatenate([np.zeros((positions, 1), np.int64), is_right.cumsum(1)], 1)


def halves(count: int) -> tuple[Array, Array]:
    """Return the numbers of every other text, and of the others."""
    return np.arange(0, count, 2), np.arange(1, count, 2)


def join_halves(parts: Sequence[TreeTable]) -> TreeTable:
    """Return the table of all texts, given those of the two halves."""
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    joined = TreeTable(
        np.cumsum([0, *lengths]),
        np.concatenate([part.scores for part in parts]),
        np.concatenate([part.reached for part in parts]),
    )
    return joined.texts(np.concatenate(halves(len(lengths))).argsort())


def replay_trees(
    table: TreeTable, queues: Array, nodes: int, batch_size: int, *, over_batch: bool
) -> Iterator[tuple[Array, Array]]:
    """Yield the rows of each round, as texts (L, b), and the tokens that each of them gains (L, b).

    A row for which no text is left is -1, and gains nothing. All lanes advance together.

    Args:
        queues: (L, Q), the texts that each lane writes, which enter as rows become free.
        nodes: N, drafts verified of each row.
        over_batch: whether these are the N * b best of the batch instead.
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
        verified = np.full(texts.shape, nodes)
        if over_batch:
            wanted_drafts = nodes * working.sum(1, keepdims=True)
            scores = np.where(working[:, :, None], table.scores[safe], -np.inf)
            verified = largest(scores, working[:, :, None], wanted_drafts)
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
