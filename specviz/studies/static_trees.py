"""The tree of fixed shape that fits given texts: the paths of ranks that most often are right."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from specviz.studies.tree_tables import TreeTable, halves, join_halves

Ranks = tuple[int, ...]


def fit_static(ranked: TreeTable, nodes: int) -> TreeTable:
    """Return the table of trees of fixed shape, each text's fitted to the other half of the texts.

    Args:
        ranked: of trees of one level, the likeliest tokens in order.
        nodes: drafts of a tree. Fewer, if fewer paths are ever right.
    """
    both = halves(len(ranked.offsets) - 1)
    orders = [fit_paths(rank_paths(ranked.texts(half), nodes), nodes) for half in both[::-1]]
    nodes = min(len(order) for order in orders)
    parts = []
    for half, order in zip(both, orders, strict=True):
        parts.append(static_table(ranked.texts(half), order[:nodes]))
    return join_halves(parts)


def rank_paths(ranked: TreeTable, depth: int) -> list[Ranks]:
    """Return the ranks of the next tokens of the text at each position, up to `depth` of them.

    A path ends before a token that is none of the likeliest.
    """
    first = ranked.reached[:, 1:].argmax(1)
    ranks = np.where(ranked.reached[:, -1] > 0, first, -1)
    paths = []
    for begin, end in zip(ranked.offsets[:-1], ranked.offsets[1:], strict=True):
        of_text = ranks[begin:end].tolist()
        for place in range(len(of_text)):
            path = of_text[place : place + depth]
            paths.append(tuple(path[: path.index(-1)] if -1 in path else path))
    return paths


def fit_paths(observed: Sequence[Ranks], nodes: int) -> list[Ranks]:
    """Return the `nodes` paths that most of the observed ones begin with, the most frequent first.

    They are those of a tree: a path is never more frequent than the one that it continues.
    """
    counts: Counter[Ranks] = Counter()
    for path in observed:
        counts.update(path[:length] for length in range(1, len(path) + 1))
    ordered = sorted(counts, key=lambda path: (-counts[path], len(path), path))
    return ordered[:nodes]


def static_table(ranked: TreeTable, order: Sequence[Ranks]) -> TreeTable:
    """Return the table of trees with these paths, in this order."""
    numbers = {path: j for j, path in enumerate(order)}
    paths = rank_paths(ranked, max((len(path) for path in order), default=0))
    is_right = np.zeros((len(paths), len(order)), np.int64)
    for position, path in enumerate(paths):
        for length in range(1, len(path) + 1):
            j = numbers.get(path[:length])
            if j is not None:
                is_right[position, j] = 1
    reached = np.concatenate([np.zeros((len(paths), 1), np.int64), is_right.cumsum(1)], 1)
    return TreeTable(ranked.offsets, np.zeros(is_right.shape), reached)
