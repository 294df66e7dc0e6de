"""Trees of drafts from the draft model: several continuations of a row, verified in one forward.

A tree grows level by level. At each level the best drafts are expanded: one forward of the draft
model reads them, and each gets its likeliest continuations. Of all drafts, the K best are verified.

Source: EAGLE-2 (Li et al., arXiv 2406.16858), which grows trees this way for one sequence.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from specviz.engine.draft import Draft
from specviz.engine.drafters.base import Task
from specviz.engine.drafters.based import BasedDrafter
from specviz.engine.drafters.readers import make_reader
from specviz.engine.models.pair import Pair
from specviz.engine.state import State
from specviz.util.validate import require_int

MOST = 64  # drafts of a level, and levels


@dataclass(frozen=True)
class TreeDrafter(BasedDrafter):
    """The best K drafts of a tree that a draft model or a head grows.

    A draft's score is the product of q along its branch.

    Attributes:
        depth: D, the most drafts on a branch; the draft model runs as many forwards.
        width: W, how many drafts of a level are expanded.
        children: C, how many continuations each of them gets.

    Raises:
        ValueError: an option cannot be used.
    """

    depth: int = 4
    width: int = 2
    children: int = 2

    name: ClassVar[str] = "tree"
    description: ClassVar[str] = (
        "a tree of the likeliest continuations, of which the best K are verified"
    )
    capturable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("depth", "width", "children"):
            value = require_int(option, getattr(self, option), maximum=MOST)
            object.__setattr__(self, option, value)

    @property
    def judged_by_q(self) -> bool:
        return False

    def grown(self) -> int:
        """Return how many drafts a tree has before the best are chosen."""
        total = self.children
        level = self.children  # drafts of the last level
        for _ in range(self.depth - 1):
            level = min(level, self.width) * self.children
            total += level
        return total

    def levels(self, num_draft_tokens: int) -> int:
        """Return how many levels a tree grows of which K drafts are verified."""
        # The K best drafts are a tree, so none of them is deeper than K.
        return min(self.depth, num_draft_tokens)

    def columns(self, num_draft_tokens: int) -> int:
        # Only what is expanded is fed to the draft model.
        return max(num_draft_tokens, self.width * (self.levels(num_draft_tokens) - 1))

    def limit(self, pair: Pair) -> int:
        return self.grown()

    def check(self, task: Task) -> None:
        if task.max_draft_tokens > self.grown():
            raise ValueError(
                f"num_draft_tokens must be at most {self.grown()}, the drafts of a tree with "
                f"depth={self.depth}, width={self.width} and children={self.children}, got "
                f"{task.max_draft_tokens}; lower it, or let the tree grow larger"
            )
        self.check_depth(self.levels(task.max_draft_tokens), task)
        check_children(self.children, task)

    def log_chances(self, log_q: Tensor) -> Tensor:
        """Return how likely the C likeliest drafts of a node are accepted, for log q (..., C)."""
        return log_q

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        tree = Growth(state, self.columns(num_draft_tokens), self.log_chances)
        tree.branch(tree.begin(), self.children)
        levels = self.levels(num_draft_tokens)
        for _ in range(levels - 1):
            tree.branch(tree.expand(self.width), self.children)
        return tree.best(num_draft_tokens, levels)


def check_children(children: int, task: Task) -> None:
    """Raise ValueError if a token cannot have so many different continuations."""
    size = task.pair.vocabulary_size
    if children > size:
        raise ValueError(
            f"a draft must have at most {size} children, the size of the vocabulary, got "
            f"{children}; let the tree branch less"
        )


class Growth:
    """A tree that grows for each row of the batch.

    Attributes:
        tokens, parents, depths, scores, columns, sources: lists of tensors (b, m), one for each
            level. Drafts are numbered level by level. `columns` says how far behind the pending
            token's slot the draft model's K/V of a draft lies, 0 for none. `sources` says which of
            the logits read so far the draft was chosen from.
    """

    def __init__(
        self, state: State, num_columns: int, log_chances: Callable[[Tensor], Tensor]
    ) -> None:
        self.state = state
        self.log_chances = log_chances
        self.reader = make_reader(state)
        self.tokens: list[Tensor] = []
        self.parents: list[Tensor] = []
        self.scores: list[Tensor] = []
        self.columns: list[Tensor] = []
        self.sources: list[Tensor] = []
        self._logits: list[Tensor] = []
        self._nodes: list[tuple[Tensor, Tensor]] = []  # of each feed: its buffer, its drafts
        b = len(state.batch)
        device = state.batch.tokens.device
        self._rows = torch.arange(b, device=device)[:, None]
        # By column, the columns on its branch; column 0 is the pending token.
        self._seen = torch.zeros(b, num_columns + 1, num_columns + 1, device=device).bool()
        self._seen[:, :, 0] = True
        self._first_column = 1
        self._parent_columns = torch.zeros(b, 1, dtype=torch.long, device=device)
        self._parent_places = self._parent_columns
        # Of what was read last: number, column, score of each, all (b, m).
        root = torch.zeros(b, 1, dtype=torch.long, device=device)
        self._read = (root - 1, root, root.float())

    def begin(self) -> Tensor:
        """Return the logits (b, 1, V) after the pending token."""
        logits = self.reader.begin(self.state)
        self._logits.append(logits)
        return logits

    def branch(self, logits: Tensor, children: int) -> None:
        """Add the likeliest continuations of what was read last, given its logits (b, m, V)."""
        numbers, columns, scores = self._read
        level = len(self.tokens)
        places = self.state.batch.places(level)
        tokens, log_q = self.state.chooser.branch(logits, places, children)  # (b, m, C)
        b, m, _ = tokens.shape
        first = sum(part.shape[1] for part in self._logits) - m
        source = torch.arange(first, first + m, device=tokens.device)
        self.tokens.append(tokens.flatten(1))
        self.parents.append(numbers.repeat_interleave(children, 1))
        self.scores.append((scores[:, :, None] + self.log_chances(log_q)).flatten(1))
        self.columns.append(torch.zeros_like(self.tokens[-1]))
        self.sources.append(source.repeat_interleave(children).expand(b, -1))
        self._parent_columns = columns.repeat_interleave(children, 1)
        # Of each draft of this level, which of what was read last it follows.
        read = torch.arange(m, device=tokens.device).expand(b, -1)
        self._parent_places = read.repeat_interleave(children, 1)

    def expand(self, width: int) -> Tensor:
        """Read the best drafts of the last level; return the logits (b, m, V) after them."""
        m = min(width, self.tokens[-1].shape[1])
        # By score; a stable sort, so that of equal ones the first is taken on every device.
        best = self.scores[-1].argsort(dim=1, descending=True, stable=True)[:, :m]  # (b, m)
        first = sum(part.shape[1] for part in self.tokens[:-1])
        columns = self._first_column + torch.arange(m, device=best.device).expand_as(best)
        self._first_column += m
        self.columns[-1].scatter_(1, best, columns)
        tokens = self.tokens[-1].gather(1, best)
        parents = self._parent_columns.gather(1, best)
        self._seen[self._rows, columns] = self._seen[self._rows, parents]
        # Not `= True`: a number goes to the GPU by a copy, which a capture refuses.
        self._seen[self._rows, columns, columns] = torch.ones_like(columns, dtype=torch.bool)
        depths = torch.full_like(columns, len(self.tokens))
        nodes = torch.zeros_like(columns)  # known once the best drafts are chosen
        self._nodes.append((nodes, first + best))
        seen = self._seen[self._rows, columns]
        feed = partial(self.state.feed_nodes, tokens, columns, depths, seen, nodes)
        logits = self.reader.read(tokens, self._parent_places.gather(1, best), feed)
        self._logits.append(logits)
        self._read = (first + best, columns, self.scores[-1].gather(1, best))
        return logits

    def best(self, count: int, height: int) -> Draft:
        """Return the `count` drafts with the best scores, parents before their children."""
        # After NaN nothing is likely. The comparisons below would put it first.
        scores = torch.cat(self.scores, 1).nan_to_num(-torch.inf, None, -torch.inf)  # (b, M)
        # A child scores no better than its parent and stands behind it, so that a stable sort puts
        # it there again.
        order = scores.argsort(dim=1, descending=True, stable=True)
        ranks = order.argsort(1)
        for nodes, drafts in self._nodes:
            nodes.copy_(1 + ranks.gather(1, drafts))
        chosen = order[:, :count]
        parents = torch.cat(self.parents, 1).gather(1, chosen)
        ranked = ranks.gather(1, parents.clamp(min=0))
        parents = ranked.masked_fill(parents < 0, -1)
        sources = torch.cat(self.sources, 1).gather(1, chosen)
        columns = torch.cat(self.columns, 1).gather(1, chosen)
        if not self.state.batch.keeps_drafts:
            # What was written for drafts is read again once they are accepted.
            columns = torch.zeros_like(columns)
        logits = torch.cat(self._logits, 1)
        return Draft(
            torch.cat(self.tokens, 1).gather(1, chosen),
            logits[self._rows, sources],
            scores=scores.gather(1, chosen),
            parents=parents,
            height=height,
            columns=columns,
        )
