"""Drafts of trees that are selected over the whole batch: the text, the choice, and its bias."""

import functools
import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import generate, generate_one_by_one, in_turn, make_pair, make_prompts
from exact_trees import PARENTS, Conditional, V, conditional, drawn_trees, judged
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from test_selectors import stand_in

import specviz as sv
from specviz.engine.drafters import Draft
from specviz.engine.kv import cache
from specviz.engine.sampling import Places, SamplingParams
from specviz.engine.selectors import (
    SCORES,
    Tetris,
    Threshold,
    largest,
    score_drafts,
    score_round,
)
from specviz.engine.trees import find_tree
from specviz.record.schema import MODELS, PHASES

VALID = ("rollback", "masking", "eqspec", "exspec", "inplace")
GUMBEL = SamplingParams(0.9, top_p=0.95, coupling="gumbel")
LEVELS = ((0,), (1,), (0, 0), (1, 0), (0, 0, 0))  # shorter paths first


# ---- the text of batch-wide trees is that of decoding without drafts ----


@functools.cache
def sampled_alone() -> list[list[int]]:
    run: dict[str, Any] = {"sampling": GUMBEL, "max_new_tokens": 16}
    return generate(make_pair("llama"), make_prompts(), strategy="autoregressive", **run).tokens


@pytest.mark.sweep(12)
@pytest.mark.parametrize(("strategy", "packed"), in_turn(VALID, [False, True], every=2))
def test_trees_over_the_batch_leave_the_text_alone(
    strategy: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Greedy and Gumbel, as a rectangle and packed, with trees that grow and a fixed one."""
    monkeypatch.setattr("specviz.engine.run.can_pack", lambda model: packed)
    monkeypatch.setattr(cache, "is_worth_packing", lambda feed: True)
    pair = make_pair("llama")
    drafters = (
        sv.drafter("tree", depth=3, width=3, children=3),
        sv.drafter("static_tree"),
    )
    for drafter in drafters:
        run: dict[str, Any] = {
            "strategy": strategy, "drafter": drafter, "num_draft_tokens": 4, "batch_size": 4,
            "max_new_tokens": 16, "selector": sv.selector("tetris", extra=3), "record": True,
        }  # fmt: skip
        greedy = generate(pair, make_prompts(), **run)
        assert greedy.tokens == generate_one_by_one(max_new_tokens=16)
        assert generate(pair, make_prompts(), sampling=GUMBEL, **run).tokens == sampled_alone()
        assert greedy.trace is not None
        rows = greedy.trace.rows
        assert len(set(rows["verified"].tolist())) > 3, "rows should verify different numbers"
        used = np.bincount(rows["round"], weights=rows["verified"])
        assert (used <= greedy.trace.rounds["capacity"]).all()


@pytest.mark.sweep(8)
@pytest.mark.parametrize("drafter", ["tree", "static_tree"])
@pytest.mark.parametrize("score", ["chosen", "largest"])
def test_a_threshold_on_trees_leaves_the_text_alone(drafter: str, score: str) -> None:
    selector = sv.selector("threshold", at_least=0.3, score=score)
    result = generate(
        make_pair("llama"), make_prompts(), drafter=drafter, selector=selector, batch_size=4,
        max_new_tokens=24, record=True,
    )  # fmt: skip
    assert result.tokens == generate_one_by_one()
    assert result.trace is not None
    assert len(set(result.trace.rows["verified"].tolist())) > 1


# ---- the choice ----


def brute_force_scores(
    log_q: torch.Tensor, tokens: torch.Tensor, parents: torch.Tensor, kind: str
) -> list[list[float]]:
    """The scores of trees, one draft after the other, along its branch."""
    found = []
    for row in range(len(tokens)):
        scores = []
        for j in range(tokens.shape[1]):
            branch = [j]
            while parents[row, branch[0]] >= 0:
                branch.insert(0, int(parents[row, branch[0]]))
            total = 0.0
            for node in branch:
                here = log_q[row, node]
                if kind == "entropy":
                    total += float((here.exp() * here).sum())
                elif kind == "largest" and node == j:
                    total += float(here.max())
                else:
                    total += float(here[tokens[row, node]])
            scores.append(total)
        found.append(scores)
    return found


def random_trees(seed: int, rows: int, count: int, size: int = 7) -> tuple[torch.Tensor, ...]:
    """Log q, tokens and parents of random trees; siblings have the same q and differ."""
    generator = np.random.default_rng(seed)
    parents = np.array([[generator.integers(-1, j) for j in range(count)] for _ in range(rows)])
    log_q = torch.randn(rows, count, size, generator=torch.Generator().manual_seed(seed))
    log_q = log_q.log_softmax(-1)
    tokens = np.zeros((rows, count), int)
    for row in range(rows):
        taken: dict[int, int] = {}
        for j, parent in enumerate(parents[row]):
            tokens[row, j] = taken.get(parent, 0)
            taken[parent] = tokens[row, j] + 1
            first = int(np.flatnonzero(parents[row] == parent)[0])
            log_q[row, j] = log_q[row, first]
    return log_q, torch.from_numpy(tokens), torch.from_numpy(parents)


@pytest.mark.parametrize("kind", SCORES)
def test_a_draft_of_a_tree_is_scored_along_its_branch(kind: str) -> None:
    for seed in range(5):
        log_q, tokens, parents = random_trees(seed, 3, 6)
        found = score_drafts(log_q, tokens, kind, find_tree(parents))
        expected = torch.tensor(brute_force_scores(log_q, tokens, parents, kind))
        assert torch.allclose(found, expected, atol=1e-5)


def test_a_chain_is_scored_as_the_tree_that_it_is() -> None:
    log_q = torch.randn(4, 5, 9, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    tokens = torch.randint(0, 9, (4, 5), generator=torch.Generator().manual_seed(1))
    chain = find_tree((torch.arange(5) - 1).expand(4, -1))
    for kind in SCORES:
        as_tree = score_drafts(log_q, tokens, kind, chain)
        assert torch.allclose(as_tree, score_drafts(log_q, tokens, kind), atol=1e-5)


def test_a_token_that_is_ruled_out_makes_no_other_branch_nan() -> None:
    log_q = torch.tensor([[[0.0, -math.inf], [0.0, -math.inf]]])
    tokens, parents = torch.tensor([[0, 1]]), torch.tensor([[-1, -1]])
    scores = score_drafts(log_q, tokens, "chosen", find_tree(parents))
    assert scores.tolist() == [[0.0, -math.inf]]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 4), st.integers(0, 12))
def test_the_verified_drafts_are_the_best_trees_of_brute_force(
    seed: int, rows: int, count: int, capacity: int
) -> None:
    """Of drafts in the order of their scores, the best sets that hold each draft's parent."""
    log_q, tokens, parents = random_trees(seed, rows, count)
    scores = score_drafts(log_q, tokens, "chosen", find_tree(parents))
    order = scores.argsort(dim=1, descending=True, stable=True)
    ranks = order.argsort(1)
    ordered = parents.gather(1, order)
    parents = torch.where(ordered < 0, -1, ranks.gather(1, ordered.clamp(min=0)))
    draft = Draft(
        tokens.gather(1, order),
        log_q.gather(1, order[:, :, None].expand_as(log_q)),
        scores=scores.gather(1, order),
        parents=parents,
    )
    state = stand_in([9] * rows, [3] * rows)
    chosen = Tetris(0).choose(state, draft, capacity)
    assert chosen.lengths is not None
    assert draft.scores is not None
    chances = draft.scores.exp()
    found = sum(float(chances[i, :n].sum()) for i, n in enumerate(chosen.lengths.tolist()))

    nodes = list(itertools.product(range(rows), range(count)))
    best = 0.0
    for size in range(min(capacity, len(nodes)) + 1):
        for some in itertools.combinations(nodes, size):
            has_parents = all(parents[i, j] < 0 or (i, int(parents[i, j])) in some for i, j in some)
            if has_parents:
                best = max(best, sum(float(chances[i, j]) for i, j in some))
    assert found == pytest.approx(best, abs=1e-5)
    assert int(chosen.lengths.sum()) == min(capacity, len(nodes))


def test_a_fixed_tree_gives_scores_that_never_rise_along_a_row() -> None:
    """Its order is not that of its chances, so a draft is worth no more than those before it."""
    log_q, tokens, parents = random_trees(3, 4, 6)
    by_branch = score_drafts(log_q, tokens, "chosen", find_tree(parents))
    assert (by_branch.diff(dim=1) > 0).any()
    draft = Draft(tokens, log_q, parents=parents)
    scores = score_round(stand_in([9] * 4, [3] * 4), draft, "chosen")
    assert (scores.diff(dim=1) <= 0).all()
    assert (scores <= by_branch).all()
    lengths = largest(scores, torch.ones(4, 6, dtype=torch.bool), 9)
    for row, length in enumerate(lengths.tolist()):
        assert (parents[row, :length] < length).all(), "each verified draft has its parent"


def test_a_threshold_on_trees_goes_by_the_whole_branch() -> None:
    q = torch.tensor([[[0.9, 0.1], [0.6, 0.4], [0.9, 0.1], [0.6, 0.4]]])
    tokens, parents = torch.tensor([[0, 0, 1, 1]]), torch.tensor([[-1, 0, -1, 1]])
    draft = Draft(tokens, q.log(), parents=parents)  # branches of 0.9, 0.54, 0.1 and 0.216

    def lengths(at_least: float, **options: Any) -> list[int]:
        chosen = Threshold(at_least, **options).choose(stand_in([9], [3]), draft, 4)
        assert chosen.lengths is not None
        return list(chosen.lengths.tolist())

    assert [lengths(at_least) for at_least in (0.95, 0.6, 0.5, 0.05)] == [[0], [1], [2], [4]]
    assert lengths(0.5, score="largest") == [3], "0.9, 0.54, then 0.9, and 0.324"


# ---- is the text of a selected tree distributed as the target's? ----


@pytest.mark.sweep(2)
@pytest.mark.parametrize("score", ["chosen", "largest"])
def test_drawn_children_under_a_score_that_reads_them_are_biased(score: str) -> None:
    """All trees that a row can draw, cut where a threshold is not sure of a branch."""

    def lengths(drafts: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
        rows = len(drafts)
        chooser = SimpleNamespace(log_q=lambda logits: logits)
        draft = Draft(drafts, log_q, parents=torch.tensor(PARENTS).expand(rows, -1))
        state = stand_in([9] * rows, [3] * rows, chooser)
        chosen = Threshold(0.1, score=score).choose(state, draft, rows * len(PARENTS)).lengths
        assert chosen is not None
        assert len(chosen.unique()) > 2
        return chosen

    distances = [judged(drawn_trees, seed, True, lengths) for seed in range(3)]
    if Threshold(score=score).foresees:
        assert np.median(distances) > 0.01
    else:
        assert max(distances) < 1e-12


def first_tokens(paths: Any, judged_by: str, threshold: float, rows: int) -> np.ndarray:
    """How often each pair of first tokens is written and should be, by the engine's arithmetic.

    A row's tree is cut where its scores fall below a threshold, under score="largest".
    """
    p, q = conditional(2, 2), conditional(3, 2)
    chooser = SamplingParams(1.0).chooser(0)
    requests = torch.arange(rows)
    numbers = {path: j for j, path in enumerate(paths)}
    parents = torch.tensor([numbers.get(path[:-1], -1) for path in paths]).expand(rows, -1)
    tokens = torch.zeros(rows, len(paths), dtype=torch.long)
    logits = torch.zeros(rows, len(paths), V)
    for j, path in sorted(enumerate(paths), key=lambda entry: len(entry[1])):
        parent = numbers.get(path[:-1], -1)
        before = [()] * rows if parent < 0 else texts_of(tokens, paths, parent)
        logits[:, j] = torch.from_numpy(np.log(np.stack([known(q, text) for text in before])))
        places = Places(requests, torch.full((rows,), 5 + len(path) - 1))
        drawn = chooser.draw_children(logits[:, j : j + 1], places, path[-1] + 1)
        tokens[:, j] = drawn[:, 0, -1]
    draft = Draft(tokens, logits, parents=parents, judged_by=judged_by)
    state: Any = stand_in([9] * rows, [3] * rows, chooser)
    chosen = Threshold(threshold, score="largest").choose(state, draft, rows * len(paths))
    target = torch.zeros(rows, len(paths) + 1, V)
    target[:] = torch.from_numpy(np.log(p[()]))
    for j in range(len(paths)):
        before = texts_of(tokens, paths, j)
        target[:, j + 1] = torch.from_numpy(np.log(np.stack([known(p, text) for text in before])))
    walk = chooser.judge(chosen, target, Places(requests, torch.full((rows,), 5)))
    # A row that writes one token goes on as the target does.
    counts = np.zeros((V, V))
    for row in range(rows):
        first = int(walk.emitted[row, 0])
        if walk.accepted[row] == 0:
            counts[first] += p[first,]
        else:
            counts[first, int(walk.emitted[row, 1])] += 1
    expected = p[()][:, None] * np.stack([p[first,] for first in range(V)])
    return np.stack([counts, rows * expected])


def texts_of(tokens: torch.Tensor, paths: Any, draft: int) -> list[tuple[int, ...]]:
    """The tokens on the branch of a draft, of each row."""
    numbers = {path: j for j, path in enumerate(paths)}
    branch = [numbers[paths[draft][: n + 1]] for n in range(len(paths[draft]))]
    return [tuple(row) for row in tokens[:, branch].tolist()]


def known(given_texts: Conditional, text: tuple[int, ...]) -> np.ndarray:
    """A distribution after the last two tokens of a text."""
    return given_texts[text[-2:]]


def chance_of(counts: np.ndarray) -> float:
    observed, expected = counts
    return float(chisquare(observed.ravel(), expected.ravel() * observed.sum() / expected.sum())[1])


@pytest.mark.slow
def test_drawn_trees_have_to_stand_level_by_level() -> None:
    """Drafts of one depth share their noise, so a deeper one tells of those behind it.

    False failure: the second assertion fails by chance once in 1000 seeds; the seed is fixed.
    """
    deep_first = ((0,), (1,), (1, 0), (1, 0, 0), (0, 0))
    assert chance_of(first_tokens(deep_first, "rest", 0.1, 20_000)) < 1e-6
    assert chance_of(first_tokens(LEVELS, "rest", 0.1, 20_000)) > 1e-3


# ---- what is refused ----

REJECTION = SamplingParams(1.0)


DRAWN = sv.drafter("static_tree", siblings="drawn", paths=LEVELS)
UNBIASED: list[tuple[Any, Any]] = [
    ("tree", "tetris"),
    ("tree", "threshold"),
    ("static_tree", "tetris"),
    ("static_tree", "threshold"),
    (DRAWN, sv.selector("tetris", score="largest")),
    (DRAWN, sv.selector("tetris", score="entropy")),
]


@pytest.mark.sweep(4)
@pytest.mark.parametrize(("drafter", "selector"), UNBIASED, ids=str)
def test_trees_take_a_selector_that_does_not_bias_them(drafter: Any, selector: Any) -> None:
    """Any selector if the target judges; drawn in levels, one that reads no draft."""
    result = generate(
        make_pair("llama"), make_prompts(), drafter=drafter, selector=selector, num_draft_tokens=3,
        sampling=REJECTION, max_new_tokens=8, record=True,
    )  # fmt: skip
    assert result.trace is not None
    assert result.trace.meta["valid"] is True
    assert result.trace.meta["foresees"] is False


@pytest.mark.parametrize(
    ("paths", "score", "message"),
    [
        (LEVELS, "chosen", "decides by a draft whether that draft is judged"),
        (((0,), (0, 0), (1,)), "largest", "unless drawn trees stand level by level; put shorter"),
    ],
)
def test_drawn_trees_refuse_a_selection_that_would_bias_them(
    paths: Any, score: str, message: str
) -> None:
    drafter = sv.drafter("static_tree", siblings="drawn", paths=paths)
    options = {"drafter": drafter, "num_draft_tokens": 2, "max_new_tokens": 8}
    selector = sv.selector("tetris", extra=1, score=score)
    with pytest.raises(ValueError, match=message):
        generate(make_pair("llama"), make_prompts(), selector=selector, sampling=REJECTION,
                 **options)  # fmt: skip
    for sampling in (None, GUMBEL):
        generate(make_pair("llama"), make_prompts(), selector=selector, sampling=sampling,
                 **options)  # fmt: skip
    biased = sv.selector("tetris", extra=1, score=score, valid=False)
    found = generate(make_pair("llama"), make_prompts(), selector=biased, sampling=REJECTION,
                     **options)  # fmt: skip
    assert found.meta["valid"] is False
    assert found.meta["foresees"] is True


@pytest.mark.parametrize("count", [1, 2])
def test_a_tree_is_no_deeper_than_it_has_drafts(count: int) -> None:
    """The best drafts hold their parents, so what is deeper was never worth a forward."""
    result = generate(
        make_pair("llama"), make_prompts(), drafter=sv.drafter("tree", depth=6),
        num_draft_tokens=count, max_new_tokens=12, record=True,
    )  # fmt: skip
    assert result.tokens == generate_one_by_one(max_new_tokens=12)
    assert result.trace is not None
    feeds = result.trace.feeds
    of_draft = feeds["model"] == MODELS.index("draft")
    drafting = of_draft & (feeds["phase"] == PHASES.index("draft"))
    steps = feeds["step"][drafting]
    assert len(np.unique(steps[feeds["round"][drafting] == 3])) == count
