"""Trees of drafts: several continuations of a row, verified in one forward.

`TreeDrafter` grows a tree level by level, as EAGLE-2 does for one sequence. At each level the best
drafts are expanded: one forward reads them, and each gets its likeliest continuations. Of all
drafts, the K best are verified. The shape of a `StaticTree` is fixed: paths of ranks, such as those
that Medusa fits to a data set.

Sources: EAGLE-2 (Li et al., arXiv 2406.16858); Medusa (Cai et al., arXiv 2401.10774), section 2.3.3
and `medusa_choices` in its code. Drawing children without replacement: Yang et al. (arXiv
2404.11532). Drawing them independently: SpecInfer (Miao et al., arXiv 2305.09781).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.engine.draft import JUDGES, Draft
from specviz.engine.drafters.base import Drafter, Task
from specviz.engine.drafters.chains import ModelDrafter
from specviz.engine.drafters.heads import (
    CloverDrafter,
    Eagle3Drafter,
    HeadDrafter,
    MedusaDrafter,
    make_reader,
)
from specviz.engine.features import Features
from specviz.engine.kv.transfer import to_device
from specviz.engine.models.pair import Pair
from specviz.engine.sampling import Rejection
from specviz.engine.state import State
from specviz.engine.trees import find_tree, without_repeats
from specviz.util.validate import is_count, require_bool, require_choice, require_int, short

MOST = 64  # drafts of a level, and levels
SIBLINGS = ("likeliest", "drawn", "independent")
# How each kind of siblings is judged without bias, by q where they are drawn.
JUDGED_BY = {"likeliest": "target", "drawn": "rest", "independent": "each"}
# Eight drafts: three branches, of which the likeliest goes on for longest.
DEFAULT_PATHS = ((0,), (0, 0), (1,), (0, 0, 0), (0, 1), (1, 0), (0, 0, 0, 0), (2,))
_CHAINS: dict[str, type[ModelDrafter] | type[HeadDrafter]] = {
    kind.name: kind for kind in (ModelDrafter, Eagle3Drafter, MedusaDrafter, CloverDrafter)
}


@dataclass(frozen=True)
class BasedDrafter(ModelDrafter):
    """Grow drafts from what `base` names.

    Attributes:
        base: "model" for the pair's draft model, or the name of a head.

    Raises:
        ValueError: an option cannot be used.
    """

    base: str = field(default="model", kw_only=True)

    branches: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_choice("base", self.base, _CHAINS)

    @property
    def _chain(self) -> Drafter:
        """The drafter of chains from the same base."""
        return _CHAINS[self.base]()

    @property
    def draft_kv(self) -> str:
        return self._chain.draft_kv

    def features(self, pair: Pair) -> Features | None:
        return self._chain.features(pair)

    def models(self, pair: Pair) -> dict[str, PreTrainedModel]:
        return self._chain.models(pair)

    def check_shape(self, depth: int, children: int, task: Task) -> None:
        """Raise ValueError if the base cannot draft `depth` tokens in a row, each of so many."""
        chain = self._chain
        if isinstance(chain, HeadDrafter):
            chain.check_depth(depth, task.pair)
        size = task.pair.vocabulary_size
        if children > size:
            raise ValueError(
                f"a draft must have at most {size} children, the size of the vocabulary, got "
                f"{children}; let the tree branch less"
            )


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
        self.check_shape(self.levels(task.max_draft_tokens), self.children, task)

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


class Growth:
    """A tree that grows for each row of the batch.

    Attributes:
        tokens, parents, scores, columns, sources: lists of tensors (b, m), one for each level.
            Drafts are numbered level by level. `columns` says how far behind the pending
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
        if self.state.batch.rereads != "none":
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


@dataclass(frozen=True)
class StaticTree(BasedDrafter):
    """The same tree in every round and row: its first K paths.

    Attributes:
        paths: of each draft, the ranks on its branch: (0, 1) is the second likeliest token after
            the likeliest one. A path stands behind the one that it continues.
        siblings: under coupling="rejection", whether the children of a node are the likeliest
            tokens, are drawn from q without replacement, or are drawn from q independently of
            each other. A token that is drawn twice stands in the tree once, and the likeliest
            other token takes its second place, which is not accepted.
        judged_by: under coupling="rejection", see `Draft.judged_by`. None: "target" for the
            likeliest siblings, "rest" for "drawn", "each" for "independent" ones.
        valid: False allows a `judged_by` that biases the text: "first", and one that belongs to
            other siblings.

    Raises:
        ValueError: an option cannot be used.
    """

    paths: Sequence[Sequence[int]] = DEFAULT_PATHS
    siblings: str = "likeliest"
    judged_by: str | None = None
    valid: bool = field(default=True, kw_only=True)

    name: ClassVar[str] = "static_tree"
    description: ClassVar[str] = "a tree of fixed shape, given by the ranks of its drafts"
    capturable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("siblings", self.siblings, SIBLINGS)
        paths = _valid_paths(self.paths, is_drawn=self.siblings != "likeliest")
        object.__setattr__(self, "paths", paths)
        if self.judged_by is not None:
            require_choice("judged_by", self.judged_by, JUDGES)
        require_bool("valid", self.valid)
        if self.judged_by == "each" and self.siblings != "independent":
            raise ValueError(
                "judged_by='each' needs siblings that are drawn independently, got "
                f"siblings={self.siblings!r}; pass siblings='independent', or judged_by=None"
            )

    @property
    def judge(self) -> str:
        """How the tree is judged, one of JUDGES."""
        if self.judged_by is not None:
            return self.judged_by
        return JUDGED_BY[self.siblings]

    @property
    def biased(self) -> bool:
        return self.judge not in ("target", JUDGED_BY[self.siblings])

    @property
    def judged_by_q(self) -> bool:
        return self.judge != "target"

    @property
    def by_level(self) -> bool:
        depths = [len(path) for path in self.paths]
        return depths == sorted(depths)

    def limit(self, pair: Pair) -> int:
        return len(self.paths)

    def check(self, task: Task) -> None:
        if task.max_draft_tokens > len(self.paths):
            raise ValueError(
                f"num_draft_tokens must be at most {len(self.paths)}, the number of paths, got "
                f"{task.max_draft_tokens}; lower it, or pass more paths"
            )
        depth = max(map(len, self.paths[: task.max_draft_tokens]))
        self.check_shape(depth, 1 + max(path[-1] for path in self.paths), task)

    def prepare(self, task: Task, state: State) -> dict[int, "Shape"]:
        """Return the shape of the tree by K. It stays in place, so that graphs may read it."""
        shapes: dict[int, Shape] = state.prepared or {}
        K = state.num_draft_tokens
        if K not in shapes:
            shapes[K] = make_shape(self.paths[:K], state.batch.tokens.device)
        return shapes

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        shape: Shape = state.prepared[num_draft_tokens]
        b = len(state.batch)
        tree = find_tree(shape.parents.expand(b, -1), len(shape.levels))
        tokens = torch.zeros_like(tree.parents)  # (b, K)
        drawn = torch.zeros_like(tokens) if self.judge == "each" else None
        logits = []
        reader = make_reader(state)
        for depth, level in enumerate(shape.levels):
            if depth == 0:
                read = reader.begin(state)  # (b, m, V), after what the level's drafts follow
            else:
                columns = level.nodes + 1
                places = columns.expand(b, -1)
                fed = tokens[:, level.nodes]
                depths, seen = tree.depths[:, columns], tree.ancestors[:, columns]
                feed = partial(state.feed_nodes, fed, places, depths, seen, nodes=places)
                read = reader.read(fed, level.parents.expand(b, -1), feed)
            children = self._children(state, read, depth, level.fan)  # (b, m, fan)
            if drawn is not None:
                drawn[:, level.drafts] = children[:, level.places, level.ranks]
            if self.siblings == "independent":
                children = without_repeats(children, state.chooser.log_q(read))
            tokens[:, level.drafts] = children[:, level.places, level.ranks]
            logits.append(read[:, level.places])
        return Draft(
            tokens,
            torch.cat(logits, 1)[:, shape.order],
            parents=tree.parents,
            height=len(shape.levels),
            # What a head wrote for drafts is read again once they are accepted.
            columns=shape.columns.expand(b, -1) * (state.batch.rereads == "none"),
            judged_by=self.judge,
            drawn=drawn,
        )

    def _children(self, state: State, logits: Tensor, depth: int, count: int) -> Tensor:
        """Return the children (b, m, count) of nodes at `depth`, given the logits (b, m, V)."""
        places = state.batch.places(depth)
        chooser = state.chooser
        if self.siblings == "drawn" and isinstance(chooser, Rejection):
            return chooser.draw_children(logits, places, count)
        if self.siblings == "independent" and isinstance(chooser, Rejection):
            return chooser.draw_independently(logits, places, count)
        return chooser.branch(logits, places, count)[0]


class Level(NamedTuple):
    """The drafts of one depth, and what they follow.

    Attributes:
        nodes: (m,) the drafts that they follow, -1 for the pending token.
        parents: (m,) which of the level before's `nodes` each of those follows.
        drafts: (n,) their numbers.
        places: (n,) which of `nodes` each of them follows.
        ranks: (n,) their ranks among the children of that node.
        fan: how many children of each node are needed.
    """

    nodes: Tensor
    parents: Tensor
    drafts: Tensor
    places: Tensor
    ranks: Tensor
    fan: int


class Shape(NamedTuple):
    """A tree of fixed shape.

    Attributes:
        parents, columns: (K,), as in `Draft`.
        levels: by depth.
        order: (K,), where each draft stands among the drafts of all levels.
    """

    parents: Tensor
    columns: Tensor
    levels: tuple[Level, ...]
    order: Tensor


def make_shape(paths: Sequence[Sequence[int]], device: torch.device) -> Shape:
    """Return the shape of the tree that has these paths."""
    numbers = {tuple(path): j for j, path in enumerate(paths)}
    parents = [numbers.get(path[:-1], -1) for path in numbers]
    # What has children is read, and its K/V kept where it is numbered.
    columns = [j + 1 if j in parents else 0 for j in range(len(paths))]
    levels = []
    by_level: list[int] = []
    read: list[int] = []  # the nodes of the level before
    for depth in range(1, 1 + max(map(len, paths))):
        drafts = [j for path, j in numbers.items() if len(path) == depth]
        nodes = sorted({parents[j] for j in drafts})
        of_nodes = [read.index(parents[node]) if node >= 0 else 0 for node in nodes]
        read = nodes
        places = [nodes.index(parents[j]) for j in drafts]
        ranks = [paths[j][-1] for j in drafts]
        level = Level(
            to_device(nodes, device),
            to_device(of_nodes, device),
            to_device(drafts, device),
            to_device(places, device),
            to_device(ranks, device),
            fan=1 + max(ranks),
        )
        levels.append(level)
        by_level += drafts
    order = [by_level.index(j) for j in range(len(paths))]
    return Shape(
        to_device(parents, device),
        to_device(columns, device),
        tuple(levels),
        to_device(order, device),
    )


def _valid_paths(paths: Any, is_drawn: bool) -> tuple[tuple[int, ...], ...]:
    """Return the paths as tuples. Raise ValueError unless they can be paths of a tree."""
    example = "for instance paths=[[0], [1], [0, 0]]"

    def is_list(value: object) -> bool:
        return isinstance(value, Sequence) and not isinstance(value, str | bytes) and len(value) > 0

    if not is_list(paths) or not all(is_list(path) and all(map(is_count, path)) for path in paths):
        raise ValueError(
            f"paths must be lists of ranks, ints >= 0, got {short(paths)}; pass {example}"
        )
    found = tuple(tuple(map(int, path)) for path in paths)
    for i, path in enumerate(found):
        if path in found[:i] or (len(path) > 1 and path[:-1] not in found[:i]):
            raise ValueError(
                f"paths must differ, each behind the one that it continues, got {short(path)} at "
                f"place {i}; pass {example}"
            )
        before = (*path[:-1], path[-1] - 1)
        if is_drawn and path[-1] and before not in found[:i]:
            raise ValueError(
                f"paths must have {short(before)} before {short(path)}, because children "
                "that are drawn are judged in the order in which they were drawn; "
                "add it, or pass siblings='likeliest'"
            )
    return found
