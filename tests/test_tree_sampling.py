"""Sampling with trees is lossless: by exact enumeration, and by what runs emit.

The enumeration has no random part: acceptance chances are found by bisection, and all trees that
can be drawn are summed.
"""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from conftest import generate, generate_one_by_one, make_pair, make_prompts
from exact_trees import (
    V,
    chance_of,
    conditional,
    drawn_trees,
    filled_trees,
    followed,
    independent_trees,
    judged,
    likeliest_trees,
    reranked_trees,
)
from test_sampling import COPIES, NEW_TOKENS, PROMPT, WARM, chi_square, make_tiny

import specviz as sv
from specviz.engine.rng import CHILDREN, Noise
from specviz.engine.sampling import Places
from specviz.engine.trees import without_repeats


@pytest.mark.sweep(4)
@pytest.mark.parametrize("count", [6, 5, 3, 1])
def test_children_drawn_without_replacement_are_judged_without_bias(count: int) -> None:
    """With q renormalised, and however many drafts are judged."""
    assert max(judged(drawn_trees, seed, True, count) for seed in range(2)) < 1e-12


@pytest.mark.slow
def test_children_drawn_independently_are_judged_by_the_whole_q() -> None:
    """SpecInfer's rule. A second child that is the same token is rejected for certain."""
    assert judged(independent_trees, 1, False) < 1e-12
    assert judged(independent_trees, 0, True) > 0.01  # q has lost nothing


@pytest.mark.slow
@pytest.mark.parametrize("count", [pytest.param(6, marks=pytest.mark.slow), 3])
def test_a_token_that_is_drawn_twice_counts_twice_and_stands_once(count: int) -> None:
    """Exact with another token in its place, which is not accepted; biased if that is forgotten."""
    q = conditional(1000, 1)
    drafts, _, drawn = filled_trees(q)
    places = drafts.reshape(-1, 3, 2)
    assert (places[..., 0] != places[..., 1]).all()
    assert (drafts[drawn != drafts] >= 0).sum() == 3 * V * V**4  # one in V of each pair
    assert judged(filled_trees, 0, False, count) < 1e-12
    if count == 6:
        assert judged(lambda given: filled_trees(given)[:2], 0, False) > 0.01
        assert judged(filled_trees, 0, True) > 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trees", "renormalise"),
    [(drawn_trees, False), (likeliest_trees, True), (reranked_trees, True)],
    ids=["judged by the first q", "chosen, not drawn", "drawn, then reordered"],
)
def test_what_looks_right_and_is_not_changes_the_text(trees: Any, renormalise: bool) -> None:
    distances = [judged(trees, seed, renormalise) for seed in range(3)]
    assert np.median(distances) > 0.01, distances


@pytest.mark.sweep(2)
@pytest.mark.parametrize("trees", [likeliest_trees, reranked_trees])
def test_following_draws_of_the_target_is_lossless_whatever_the_tree(trees: Any) -> None:
    assert followed(trees, 3) < 1e-12


# ---- runs ----

TREES = {
    "drawn": ("static_tree", {"paths": [[0], [1], [0, 0], [0, 1], [2]], "siblings": "drawn"}),
    "independent": (
        "static_tree",
        {"paths": [[0], [1], [0, 0], [0, 1], [1, 0]], "siblings": "independent"},
    ),
    "likeliest": ("static_tree", {"paths": [[0], [1], [0, 0], [0, 1], [2]]}),
    "grown": ("tree", {"depth": 2, "width": 2, "children": 2}),
}
WRONG = ("static_tree", {**TREES["likeliest"][1], "judged_by": "rest", "valid": False})


def sampled(drafter: tuple[str, dict[str, Any]]) -> sv.Result:
    name, options = drafter
    return generate(
        make_tiny(), [PROMPT] * COPIES, drafter=sv.drafter(name, **options), num_draft_tokens=5,
        batch_size=1000, max_new_tokens=NEW_TOKENS, sampling=sv.SamplingParams(**WARM), seed=7,
    )  # fmt: skip


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", TREES)
def test_what_is_emitted_with_trees_is_what_the_target_would_say(name: str) -> None:
    """Odds of false failure: 1e-6 for each of the four."""
    result = sampled(TREES[name])
    statistic, limit = chi_square(result.tokens, sv.SamplingParams(**WARM))
    assert statistic < limit
    assert result.summary["mean_acceptance_length"].item() > 1.3


@pytest.mark.slow
def test_likeliest_children_that_are_judged_by_q_fail_by_far() -> None:
    statistic, limit = chi_square(sampled(WRONG).tokens, sv.SamplingParams(**WARM))
    assert statistic > 3 * limit


PAIRS: dict[str, tuple[Any, Any]] = {
    "draw_children": (list(itertools.permutations(range(V), 2)), chance_of),
    "draw_independently": (
        list(itertools.product(range(V), repeat=2)), lambda pair, q: q[list(pair)].prod(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("method", PAIRS)
def test_children_are_drawn_from_q(method: str) -> None:
    """Without replacement, or independently: ordered pairs of 20,000 draws.

    Each is within six standard errors: odds below 4e-8 in all.
    """
    tries, q = 20_000, np.array([0.5, 0.25, 0.15, 0.1])
    chooser: Any = sv.SamplingParams(1.0).chooser(5)
    logits = torch.tensor(np.log(q)).float().expand(tries, 1, V)
    places = Places(torch.arange(tries), torch.full((tries,), 4))
    drawn = getattr(chooser, method)(logits, places, 2)[:, 0]
    pairs, chance = PAIRS[method]
    for pair in pairs:
        share = (drawn == torch.tensor(pair)).all(1).double().mean().item()
        wanted = chance(pair, q)
        assert abs(share - wanted) < 6 * (wanted * (1 - wanted) / tries) ** 0.5


def test_noise_of_children_is_that_of_no_other_purpose() -> None:
    noise = Noise(3)
    numbers = [
        noise.gumbel(5, 10, 99),
        noise.gumbel(5, 10, 99, CHILDREN),
        -np.log(-np.log(noise.uniforms(5, 10, 33).ravel())),
        -np.log(-np.log(noise.uniforms(5, 10, 33, child=1).ravel())),
    ]
    together = np.concatenate(numbers)
    assert len(np.unique(together)) == len(together)
    assert np.array_equal(noise.uniforms(5, 10, 2, child=0), noise.uniforms(5, 10, 2))


def test_repeats_leave_siblings_different_with_as_many_tokens_as_children() -> None:
    drawn = torch.tensor(list(itertools.product(range(V), repeat=V)))
    scores = torch.tensor([0.5, 0.5, 0.0, 0.0]).log().expand(len(drawn), V)
    found = without_repeats(drawn, scores)
    assert (found.sort(1).values == torch.arange(V)).all()
    is_first = torch.tensor([[row[j] not in row[:j] for j in range(V)] for row in drawn.tolist()])
    assert torch.equal(found[is_first], drawn[is_first])


def test_what_stands_in_for_a_repeat_is_never_accepted() -> None:
    """In a run whose drafts are accepted often, and in which many tokens are drawn twice."""
    drafter = sv.drafter("static_tree", paths=[[0], [1], [0, 0], [0, 1]], siblings="independent")
    stand_ins, accepted = 0, 0
    for event in sv.decode(
        make_tiny(), [PROMPT] * 300, drafter=drafter, num_draft_tokens=4, batch_size=300,
        max_new_tokens=8, sampling=sv.SamplingParams(**WARM), seed=2,
    ):  # fmt: skip
        if event.phase == "draft":
            stands_in = event.draft.drawn != event.draft.tokens  # (b, K)
            stand_ins += int(stands_in.sum())
        if event.phase == "accept":
            path = event.outcome.path
            accepted += int((path >= 0).sum())
            assert not (stands_in.gather(1, path.clamp(min=0)) & (path >= 0)).any()
    assert stand_ins > 100
    assert accepted > 100


def test_siblings_drawn_independently_leave_a_record_without_violations() -> None:
    run: dict[str, Any] = {"max_new_tokens": 12, "record": True}
    run["drafter"] = sv.drafter("static_tree", siblings="independent")
    sampled_run = generate(
        make_pair("llama"), make_prompts()[:4], sampling=sv.SamplingParams(0.5), **run
    )
    assert sampled_run.meta["valid"]
    assert sv.check_invariants(sampled_run.trace) == []
    greedy = generate(make_pair("llama"), make_prompts()[:4], **run)
    assert greedy.tokens == generate_one_by_one(max_new_tokens=12)[:4]
