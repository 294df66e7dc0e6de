"""Trees whose shape is fixed: paths of ranks, such as those that Medusa fits to a data set.

Source: Medusa (Cai et al., arXiv 2401.10774), section 2.3.3 and `medusa_choices` in its code.
Drawing children without replacement: Yang et al. (arXiv 2404.11532).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from specviz.engine.drafters.base import JUDGES, Draft, Task
from specviz.engine.drafters.model import ModelDrafter
from specviz.engine.drafters.tree import check_children
from specviz.engine.sampling import Rejection
from specviz.engine.state import State
from specviz.engine.trees.shape import Tree, find_tree
from specviz.util.validate import is_count, require_bool, require_choice, short

SIBLINGS = ("likeliest", "drawn")
# Seven drafts: three branches, of which the likeliest goes on for longest.
DEFAULT_PATHS = ((0,), (0, 0), (1,), (0, 0, 0), (0, 1), (1, 0), (0, 0, 0, 0))


@dataclass(frozen=True)
class StaticTree(ModelDrafter):
    """The same tree in every round and row: its first K paths.

    Attributes:
        paths: of each draft, the ranks on its branch: (0, 1) is the second likeliest token after
            the likeliest one. A path stands behind the one that it continues.
        siblings: under coupling="rejection", whether the children of a node are the likeliest
            tokens or are drawn from q without replacement.
        judged_by: under coupling="rejection", see `Draft.judged_by`. None: "rest" for drawn
            siblings and "target" for the likeliest.
        valid: False allows a `judged_by` that biases the text: "first", and "rest" for siblings
            that are not drawn.

    Raises:
        ValueError: an option cannot be used.
    """

    paths: Sequence[Sequence[int]] = DEFAULT_PATHS
    siblings: str = "likeliest"
    judged_by: str | None = None
    valid: bool = field(default=True, kw_only=True)

    name: ClassVar[str] = "static_tree"
    branches: ClassVar[bool] = True
    description: ClassVar[str] = "a tree of fixed shape, given by the ranks of its drafts"
    capturable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "paths", _valid_paths(self.paths))
        require_choice("siblings", self.siblings, SIBLINGS)
        if self.judged_by is not None:
            require_choice("judged_by", self.judged_by, JUDGES)
        require_bool("valid", self.valid)
        if self.siblings == "drawn":
            _check_order(self.paths)

    @property
    def judge(self) -> str:
        """How the tree is judged, one of JUDGES."""
        if self.judged_by is not None:
            return self.judged_by
        return "rest" if self.siblings == "drawn" else "target"

    @property
    def biased(self) -> bool:
        return self.judge == "first" or (self.judge == "rest" and self.siblings != "drawn")

    @property
    def judged_by_q(self) -> bool:
        return self.judge != "target"

    @property
    def by_level(self) -> bool:
        depths = [len(path) for path in self.paths]
        return depths == sorted(depths)

    def check(self, task: Task) -> None:
        if task.max_draft_tokens > len(self.paths):
            raise ValueError(
                f"num_draft_tokens must be at most {len(self.paths)}, the number of paths, got "
                f"{task.max_draft_tokens}; lower it, or pass more paths"
            )
        check_children(1 + max(path[-1] for path in self.paths), task)

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        device = state.batch.tokens.device
        b = len(state.batch)
        paths = [tuple(path) for path in self.paths[:num_draft_tokens]]
        numbers = {path: j for j, path in enumerate(paths)}
        parents = torch.tensor([numbers.get(path[:-1], -1) for path in paths], device=device)
        height = max(len(path) for path in paths)
        tree = find_tree(parents.expand(b, -1), height)
        tokens = torch.zeros(b, len(paths), dtype=torch.long, device=device)
        logits = []
        columns = [0] * len(paths)
        for depth in range(height):
            # What has children at this depth: nothing else needs to be read.
            nodes = sorted({numbers.get(p[:-1], -1) for p in paths if len(p) == depth + 1})
            read = self._read(state, nodes, tokens, tree)  # (b, m, V)
            for node in nodes:
                if node >= 0:
                    columns[node] = node + 1
            fan = 1 + max(p[-1] for p in paths if len(p) == depth + 1)
            children = self._children(state, read, depth, fan)  # (b, m, fan)
            for j, path in enumerate(paths):
                if len(path) == depth + 1:
                    place = nodes.index(numbers.get(path[:-1], -1))
                    tokens[:, j] = children[:, place, path[-1]]
                    logits.append((j, read[:, place]))
        ordered = [of_draft for _, of_draft in sorted(logits, key=lambda entry: entry[0])]
        return Draft(
            tokens,
            torch.stack(ordered, 1),
            parents=tree.parents,
            height=height,
            columns=torch.tensor(columns, device=device).expand(b, -1),
            judged_by=self.judge,
        )

    @staticmethod
    def _read(state: State, nodes: Sequence[int], tokens: Tensor, tree: Tree) -> Tensor:
        """Return the draft model's logits (b, m, V) after these drafts; -1 is the pending token."""
        cache = state.caches["draft"]
        if list(nodes) == [-1]:
            fed, indices = state.batch.last_tokens(2)
            return cache.forward(state.feed(fed, indices))[:, -1:].float()
        which = torch.tensor(nodes, device=tokens.device)
        columns = (which + 1).expand(len(tokens), -1)
        depths, seen = tree.depths[:, which + 1], tree.ancestors[:, which + 1]
        feed = state.feed_nodes(tokens[:, which], columns, depths, seen, columns)
        return cache.forward(feed).float()

    def _children(self, state: State, logits: Tensor, depth: int, count: int) -> Tensor:
        """Return the children (b, m, count) of nodes at `depth`, given the logits (b, m, V)."""
        requests = [row.request.index for row in state.batch.rows]
        indices = [row.length + depth for row in state.batch.rows]
        chooser = state.chooser
        if self.siblings == "drawn" and isinstance(chooser, Rejection):
            return chooser.draw_children(logits, requests, indices, count)
        return chooser.branch(logits, requests, indices, count)[0]


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
