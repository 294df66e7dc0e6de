"""Trees whose shape is fixed: paths of ranks, such as those that Medusa fits to a data set.

Source: Medusa (Cai et al., arXiv 2401.10774), section 2.3.3 and `medusa_choices` in its code.
Drawing children without replacement: Yang et al. (arXiv 2404.11532). Drawing them independently:
SpecInfer (Miao et al., arXiv 2305.09781).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from specviz.engine.draft import JUDGES, Draft
from specviz.engine.drafters.base import Task
from specviz.engine.drafters.based import BasedDrafter
from specviz.engine.drafters.readers import Reader, make_reader
from specviz.engine.drafters.tree import check_children
from specviz.engine.kv.transfer import to_device
from specviz.engine.models.pair import Pair
from specviz.engine.sampling import Rejection
from specviz.engine.state import State
from specviz.engine.trees import Tree, find_tree, without_repeats
from specviz.util.validate import is_count, require_bool, require_choice, short

SIBLINGS = ("likeliest", "drawn", "independent")
# How each kind of siblings is judged without bias, by q where they are drawn.
JUDGED_BY = {"likeliest": "target", "drawn": "rest", "independent": "each"}
# Eight drafts: three branches, of which the likeliest goes on for longest.
DEFAULT_PATHS = ((0,), (0, 0), (1,), (0, 0, 0), (0, 1), (1, 0), (0, 0, 0, 0), (2,))


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
        object.__setattr__(self, "paths", _valid_paths(self.paths))
        require_choice("siblings", self.siblings, SIBLINGS)
        if self.judged_by is not None:
            require_choice("judged_by", self.judged_by, JUDGES)
        require_bool("valid", self.valid)
        if self.judged_by == "each" and self.siblings != "independent":
            raise ValueError(
                "judged_by='each' needs siblings that are drawn independently, got "
                f"siblings={self.siblings!r}; pass siblings='independent', or judged_by=None"
            )
        if self.siblings != "likeliest":
            _check_order(self.paths)

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
        self.check_depth(max(map(len, self.paths[: task.max_draft_tokens])), task)
        check_children(1 + max(path[-1] for path in self.paths), task)

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
            read = self._read(state, reader, level, depth, tokens, tree)  # (b, m, V)
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
            columns=shape.columns.expand(b, -1) * state.batch.keeps_drafts,
            judged_by=self.judge,
            drawn=drawn,
        )

    @staticmethod
    def _read(
        state: State, reader: Reader, level: "Level", depth: int, tokens: Tensor, tree: Tree
    ) -> Tensor:
        """Return the logits (b, m, V) after what the level's drafts follow."""
        if depth == 0:
            return reader.begin(state)
        columns = level.nodes + 1
        places = columns.expand(len(tokens), -1)
        seen = tree.ancestors[:, columns]
        read = tokens[:, level.nodes]
        depths = tree.depths[:, columns]
        feed = partial(state.feed_nodes, read, places, depths, seen, nodes=places)
        return reader.read(read, level.parents.expand(len(tokens), -1), feed)

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


def _valid_paths(paths: object) -> tuple[tuple[int, ...], ...]:
    """Return the paths as tuples. Raise ValueError unless they can be paths of a tree."""
    example = "for instance paths=[[0], [1], [0, 0]]"
    is_list = isinstance(paths, Sequence) and not isinstance(paths, str)
    listed = list(paths) if isinstance(paths, Sequence) and is_list else []
    if not listed or not all(_is_path(path) for path in listed):
        raise ValueError(
            f"paths must be lists of ranks, ints >= 0, got {short(paths)}; pass {example}"
        )
    found = tuple(tuple(int(rank) for rank in path) for path in listed)
    for i, path in enumerate(found):
        if path in found[:i] or (len(path) > 1 and path[:-1] not in found[:i]):
            raise ValueError(
                f"paths must differ, each behind the one that it continues, got {short(path)} at "
                f"place {i}; pass {example}"
            )
    return found


def _is_path(path: object) -> bool:
    if not isinstance(path, Sequence) or isinstance(path, str | bytes) or not path:
        return False
    return all(is_count(rank) for rank in path)


def _check_order(paths: Sequence[Sequence[int]]) -> None:
    """Raise ValueError unless a rank follows the one before it, as drawn siblings must."""
    for i, path in enumerate(paths):
        before = (*path[:-1], path[-1] - 1)
        if path[-1] and before not in paths[:i]:
            raise ValueError(
                f"paths must have {short(before)} before {short(tuple(path))}, because children "
                "that are drawn are judged in the order in which they were drawn; "
                "add it, or pass siblings='likeliest'"
            )
