"""Token trees: shape and acceptance, against plain loops."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from tree_drafters import SHAPES, random_parents

import specviz as sv
from specviz.engine.draft import Draft
from specviz.engine.names import COUPLINGS
from specviz.engine.sampling import Greedy, Places, best_tokens
from specviz.engine.trees import (
    Tree,
    columns_of,
    find_tree,
    follow_choices,
    judge_children,
    sibling_ranks,
)

V = 5
seeds = st.integers(0, 2**30)
sizes = st.integers(0, 16)
shapes = st.sampled_from(SHAPES)


def branch(parents: list[int], j: int) -> list[int]:
    """The drafts from the root to draft j."""
    found: list[int] = []
    while j >= 0:
        found.insert(0, j)
        j = parents[j]
    return found


# ---- shape ----


@given(seeds, sizes, shapes)
def test_depths_and_ancestors_are_those_of_a_plain_loop(seed: int, n: int, shape: str) -> None:
    generator = np.random.default_rng(seed)
    rows = [random_parents(generator, n, shape) for _ in range(3)]
    tree = find_tree(torch.tensor(rows, dtype=torch.long).reshape(3, n))
    assert tree.height == n
    assert tree.ancestors.dtype == torch.bool
    for i, parents in enumerate(rows):
        branches = [[], *(branch(parents, j) for j in range(n))]
        assert tree.depths[i].tolist() == [len(drafts) for drafts in branches]
        for column, drafts in enumerate(branches):
            seen = {0, column, *(1 + j for j in drafts)}
            assert tree.ancestors[i, column].nonzero()[:, 0].tolist() == sorted(seen)
        earlier = [sum(parents[i] == parents[j] for i in range(j)) for j in range(n)]
        assert sibling_ranks(tree.parents)[i].tolist() == earlier


def test_a_path_names_the_columns_that_it_visits() -> None:
    assert columns_of(torch.tensor([[1, 3, -1]])).tolist() == [[0, 2, 4, 0]]


@given(seeds, st.integers(1, V))
def test_the_best_tokens_begin_with_the_argmax_also_among_equals(seed: int, count: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 3, (4, 2, V), generator=generator).float()
    tokens, values = best_tokens(scores, count)
    assert (tokens[..., 0] == scores.argmax(-1)).all()
    assert (values[..., :-1] >= values[..., 1:]).all()
    assert torch.equal(scores.gather(-1, tokens), values)
    assert all(len(set(row)) == count for row in tokens.reshape(-1, count).tolist())


# ---- acceptance ----


def drawn_trees(seed: int, n: int, shape: str) -> tuple[Tensor, Tree, Tensor, np.random.Generator]:
    """Drafts (4, N) below V, their trees, lengths (4,), and the generator."""
    generator = np.random.default_rng(seed)
    parents, drafts = [], []
    for _ in range(4):
        row = random_parents(generator, n, shape)
        tokens: list[int] = []
        for j in range(n):
            # No more different children than there are tokens.
            row[j] = j - 1 if row[:j].count(row[j]) >= V else row[j]
            taken = {tokens[i] for i in range(j) if row[i] == row[j]}
            tokens.append(int(generator.choice(sorted(set(range(V)) - taken))))
        parents.append(row)
        drafts.append(tokens)
    lengths = torch.tensor(generator.integers(0, n + 1, 4))
    return torch.tensor(drafts), find_tree(torch.tensor(parents)), lengths, generator


def small(n: int, shape: str) -> int:
    """N, or for a fan no more than there are tokens."""
    return min(n, V) if shape == "fan" else n


@given(seeds, st.integers(1, 16), shapes, st.booleans())
def test_following_the_target_agrees_with_a_plain_loop(
    seed: int, n: int, shape: str, partial: bool
) -> None:
    drafts, tree, lengths, generator = drawn_trees(seed, small(n, shape), shape)
    n = drafts.shape[1]
    choice = torch.tensor(generator.integers(0, V, (4, n + 1)))
    walk = follow_choices(drafts, tree, choice, lengths if partial else None)
    for i in range(4):
        judged = int(lengths[i]) if partial else n
        parents, tokens = tree.parents[i].tolist(), drafts[i].tolist()
        at, path = -1, []
        while True:
            own = int(choice[i, at + 1])
            next_ = [j for j in range(judged) if parents[j] == at and tokens[j] == own]
            if not next_:
                break
            (at,) = next_
            path.append(at)
        a = len(path)
        assert int(walk.accepted[i]) == a
        assert walk.path[i].tolist() == path + [-1] * (n - a)
        assert walk.emitted[i, : a + 1].tolist() == [*(tokens[j] for j in path), own]


def plain_judging(
    parents: list[int], tokens: list[int], p: Any, q: Any, u: Any, judged: int, renormalise: bool
) -> tuple[int, Any]:
    """The last accepted column, and the normalised weights of the token behind it."""
    at, weights, left = -1, p[0], None
    for j in range(judged):
        if parents[j] != at:
            continue
        mine = q[j] if left is None or not renormalise else left
        c = tokens[j]
        if mine[c] > 0 and u[j] < weights[c] / mine[c]:
            at, weights, left = j, p[j + 1], None
            continue
        rest = np.maximum(weights - mine, 0)
        weights = rest / rest.sum() if rest.sum() > 0 else weights
        left = mine.copy()
        left[c] = 0
        left = left / left.sum() if left.sum() > 0 else left
    return at + 1, weights


@given(seeds, st.integers(1, 16), shapes, st.booleans(), st.booleans())
def test_judging_children_agrees_with_a_plain_loop(
    seed: int, n: int, shape: str, partial: bool, renormalise: bool
) -> None:
    drafts, tree, lengths, generator = drawn_trees(seed, small(n, shape), shape)
    n = drafts.shape[1]
    p = generator.dirichlet([0.5] * V, (4, n + 1))
    q = generator.dirichlet([0.5] * V, (4, n + 1))
    # Siblings have one q, that of the node that they follow.
    q = np.take_along_axis(q, 1 + tree.parents.numpy()[:, :, None], 1)
    u = generator.random((4, n))
    last, weights = judge_children(
        drafts, tree, *map(torch.tensor, (p, q, u)), lengths if partial else None,
        renormalise=renormalise,
    )  # fmt: skip
    for i in range(4):
        column, expected = plain_judging(
            tree.parents[i].tolist(), drafts[i].tolist(), p[i], q[i], u[i],
            int(lengths[i]) if partial else n, renormalise,
        )  # fmt: skip
        assert int(last[i]) == column
        total = weights[i].sum()
        np.testing.assert_allclose(weights[i] / total, expected / expected.sum(), atol=1e-9)


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("chooser", ["greedy", *COUPLINGS])
def test_a_chain_is_judged_as_a_tree_as_it_is_as_a_chain(chooser: str, partial: bool) -> None:
    """To the bit, for drafts with a distribution and without one."""
    generator = torch.Generator().manual_seed(0)
    b, n = 60, 4
    said = torch.randn(b, n, V, generator=generator)
    logits = said[:, [0, 1, 2, 3, 3]] + 0.5 * torch.randn(b, n + 1, V, generator=generator)
    drafts = torch.randint(0, V, (b, n), generator=generator)
    drafts[::2] = said[::2].argmax(-1)
    lengths = torch.randint(0, n + 1, (b,), generator=generator) if partial else None
    made = Greedy() if chooser == "greedy" else sv.SamplingParams(1.0, coupling=chooser).chooser(3)
    parents = (torch.arange(n) - 1).expand(b, n)
    places = Places(torch.arange(b), torch.full((b,), 5))
    seen = set()
    for draft_logits in (said, None):
        chain = Draft(drafts, draft_logits, lengths)
        accepted, emitted, _ = made.judge(chain, logits, places)
        walk = made.judge(replace(chain, parents=parents, judged_by="rest"), logits, places)
        assert walk.path is not None
        assert torch.equal(walk.accepted, accepted)
        for i, a in enumerate(accepted.tolist()):
            assert walk.emitted[i, : a + 1].tolist() == emitted[i, : a + 1].tolist()
            assert walk.path[i].tolist() == [*range(a), *[-1] * (n - a)]
            seen.add(a)
    assert seen >= {0, 1, 2, 3}
