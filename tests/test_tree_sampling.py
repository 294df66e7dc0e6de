"""Sampling with trees is lossless: by exact enumeration, and by what runs emit.

The enumeration has no random part: acceptance chances are found by bisection, and all trees that
can be drawn are summed.
"""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from conftest import generate, make_pair, make_prompts
from test_sampling import COPIES, NEW_TOKENS, PROMPT, WARM, chi_square, make_tiny
from torch import Tensor

import specviz as sv
from specviz.engine.rng import CHILDREN, Noise
from specviz.engine.trees.rejection import judge_children, without_repeats
from specviz.engine.trees.shape import find_tree
from specviz.engine.trees.walk import follow

# Two drafts behind the pending token, and two behind each of them.
V, PARENTS = 4, (-1, -1, 0, 0, 1, 1)
TEXTS = list(itertools.product(range(V), repeat=3))
Conditional = dict[tuple[int, ...], np.ndarray]


def conditional(seed: int, depth: int) -> Conditional:
    """A distribution over V tokens after each text of up to `depth` tokens."""
    rng = np.random.default_rng(seed)
    texts = itertools.chain(*(itertools.product(range(V), repeat=n) for n in range(depth + 1)))
    return {text: rng.dirichlet(np.ones(V)) for text in texts}


def chance_of(drawn: tuple[int, int], q: np.ndarray) -> float:
    """The chance that two draws without replacement give these tokens, in this order."""
    first, second = drawn
    return float(q[first] * q[second] / (1 - q[first]))


def drawn_trees(q: Conditional) -> tuple[Tensor, Tensor]:
    """All trees whose siblings are drawn without replacement: drafts (b, 6) and chances (b,)."""
    pairs = list(itertools.permutations(range(V), 2))
    drafts, chances = [], []
    for root, left, right in itertools.product(pairs, repeat=3):
        drafts.append([*root, *left, *right])
        parts = [(root, ()), (left, root[:1]), (right, root[1:])]
        chances.append(math.prod(chance_of(drawn, q[text]) for drawn, text in parts))
    return torch.tensor(drafts), torch.tensor(chances, dtype=torch.float64)


def independent_trees(q: Conditional) -> tuple[Tensor, Tensor]:
    """All trees whose siblings are drawn independently, so that two may be the same token."""
    pairs = list(itertools.product(range(V), repeat=2))
    drafts, chances = [], []
    for root, left, right in itertools.product(pairs, repeat=3):
        drafts.append([*root, *left, *right])
        parts = [(root, ()), (left, root[:1]), (right, root[1:])]
        chances.append(math.prod(q[text][token] for drawn, text in parts for token in drawn))
    return torch.tensor(drafts), torch.tensor(chances, dtype=torch.float64)


def filled_trees(q: Conditional) -> tuple[Tensor, Tensor, Tensor]:
    """The trees of siblings drawn independently as a run makes them, and what was drawn.

    Another token has the place of one that is drawn twice.
    """
    pairs = torch.tensor(list(itertools.product(range(V), repeat=2)))
    found: dict[str, list[Any]] = {"drafts": [], "drawn": [], "chances": []}
    of_root = torch.tensor(q[()]).log()
    for root, left, right in itertools.product(pairs, repeat=3):
        first, second = without_repeats(root, of_root).tolist()
        below = [(left, q[first,]), (right, q[second,])]
        placed = [without_repeats(each, torch.tensor(given).log()) for each, given in below]
        found["drafts"].append([first, second, *torch.cat(placed).tolist()])
        found["drawn"].append(torch.cat([root, left, right]).tolist())
        parts = [(root, q[()]), *below]
        found["chances"].append(math.prod(float(given[each].prod()) for each, given in parts))
    chances = torch.tensor(found["chances"], dtype=torch.float64)
    return torch.tensor(found["drafts"]), chances, torch.tensor(found["drawn"])


def likeliest_trees(q: Conditional) -> tuple[Tensor, Tensor]:
    """The one tree of the likeliest siblings."""

    def best(text: tuple[int, ...]) -> list[int]:
        return np.argsort(-q[text])[:2].tolist()

    root = best(())
    drafts = [*root, *best((root[0],)), *best((root[1],))]
    return torch.tensor([drafts]), torch.ones(1, dtype=torch.float64)


def reranked_trees(q: Conditional) -> tuple[Tensor, Tensor]:
    """Siblings that were drawn, then put in the order of their q."""
    drafts, chances = drawn_trees(q)
    for row in drafts:
        text = row.tolist()
        for first, before in ((0, ()), (2, (text[0],)), (4, (text[1],))):
            siblings = text[first : first + 2]
            # The order of the first pair stays, since the others hang on it.
            if first and q[before][siblings[0]] < q[before][siblings[1]]:
                row[first : first + 2] = torch.tensor(siblings[::-1])
    return drafts, chances


def table(given: Conditional, depth: int) -> Tensor:
    """The distributions after texts of `depth` tokens, (V, ..., V, V)."""
    texts = itertools.product(range(V), repeat=depth)
    return torch.tensor(np.array([given[text] for text in texts])).reshape([V] * (depth + 1))


def after(drafts: Tensor, given: Conditional) -> Tensor:
    """The distribution after the pending token and each draft, (b, 7, V)."""
    first, second = drafts[:, :2], drafts[:, 2:]
    parts = [
        table(given, 0).expand(len(drafts), 1, V),
        table(given, 1)[first],
        table(given, 2)[first.repeat_interleave(2, 1), second],
    ]
    return torch.cat(parts, 1)


def behind(drafts: Tensor, q: Conditional) -> Tensor:
    """The distribution that each draft was drawn from, (b, 6, V)."""
    root = table(q, 0).expand(len(drafts), 2, V)
    return torch.cat([root, table(q, 1)[drafts[:, :2].repeat_interleave(2, 1)]], 1)


def text_chances(
    drafts: Tensor, p: Conditional, last: Tensor, weights: Tensor, chances: Tensor
) -> dict[tuple[int, ...], float]:
    """What is emitted, by text of three tokens; what a round does not write the target writes."""
    found = dict.fromkeys(TEXTS, 0.0)
    for row, column, weight, chance in zip(
        drafts.tolist(), last.tolist(), weights.tolist(), chances.tolist(), strict=True
    ):
        if chance <= 0:
            continue
        path: tuple[int, ...] = ()
        while column:
            path = (row[column - 1], *path)
            column = PARENTS[column - 1] + 1
        for token, share in enumerate(weight):
            start = (*path, token)
            for rest in itertools.product(range(V), repeat=3 - len(start)):
                text = (*start, *rest)
                follows = [p[text[:j]][text[j]] for j in range(len(start), 3)]
                found[text] += chance * share / sum(weight) * math.prod(follows)
    return found


def distance(found: dict[tuple[int, ...], float], p: Conditional) -> float:
    """Total variation between what is emitted and what the target would write."""
    right = {text: math.prod(p[text[:j]][text[j]] for j in range(3)) for text in TEXTS}
    assert math.fsum(right.values()) == pytest.approx(1)
    return sum(abs(found[text] - right[text]) for text in TEXTS) / 2


ACCEPTED, REJECTED = 0.0, math.inf  # uniforms that decide
# By draft, what has to happen for it to be judged; then all ways in which a round may end.
REACHED: list[dict[int, float]] = [
    {}, {0: REJECTED}, {0: ACCEPTED}, {0: ACCEPTED, 2: REJECTED},
    {0: REJECTED, 1: ACCEPTED}, {0: REJECTED, 1: ACCEPTED, 4: REJECTED},
]  # fmt: skip
ENDS: list[dict[int, float]] = [
    {0: ACCEPTED, 2: ACCEPTED},
    {0: ACCEPTED, 2: REJECTED, 3: ACCEPTED},
    {0: ACCEPTED, 2: REJECTED, 3: REJECTED},
    {0: REJECTED, 1: ACCEPTED, 4: ACCEPTED},
    {0: REJECTED, 1: ACCEPTED, 4: REJECTED, 5: ACCEPTED},
    {0: REJECTED, 1: ACCEPTED, 4: REJECTED, 5: REJECTED},
    {0: REJECTED, 1: REJECTED},
]


def judged(trees: Any, seed: int, renormalise: bool, judged_drafts: int = 6) -> float:
    """How far from the target's text a round is that judges children one after the other."""
    p, q = conditional(seed, 2), conditional(seed + 1000, 1)
    drafts, chances, *drawn = trees(q)
    b = len(drafts)
    tree = find_tree(torch.tensor(PARENTS).expand(b, -1), 2)
    drawn_from = behind(drafts, q)
    said = after(drafts, p)
    lengths = torch.full((b,), judged_drafts)

    def judge(decided: dict[int, Any]) -> tuple[Tensor, Tensor]:
        uniforms = torch.full((b, 6), REJECTED, dtype=torch.float64)
        for j, value in decided.items():
            uniforms[:, j] = value
        return judge_children(
            drafts, tree, said, drawn_from, uniforms, lengths, renormalise=renormalise,
            drawn=drawn[0] if drawn else None,
        )  # fmt: skip

    takes = []
    for j, before in enumerate(REACHED[:judged_drafts]):
        low, high = torch.zeros(b, dtype=torch.float64), torch.ones(b, dtype=torch.float64)
        is_sure = judge({**before, j: high})[0] == j + 1
        for _ in range(50):
            middle = (low + high) / 2
            is_accepted = judge({**before, j: middle})[0] == j + 1
            low, high = low.where(~is_accepted, middle), high.where(is_accepted, middle)
        takes.append(torch.where(is_sure, 1.0, low))
    takes += [torch.zeros(b)] * (6 - judged_drafts)

    found = dict.fromkeys(TEXTS, 0.0)
    for end in ENDS:
        chance = chances.clone()
        for j, value in end.items():
            chance *= takes[j] if value == ACCEPTED else 1 - takes[j]
        for text, share in text_chances(drafts, p, *judge(end), chance).items():
            found[text] += share
    assert math.fsum(found.values()) == pytest.approx(1)
    return distance(found, p)


@pytest.mark.parametrize("count", [6, 5, 3, 1])
def test_children_drawn_without_replacement_are_judged_without_bias(count: int) -> None:
    """With q renormalised, and however many drafts are judged."""
    assert max(judged(drawn_trees, seed, True, count) for seed in range(2)) < 1e-12


def test_children_drawn_independently_are_judged_by_the_whole_q() -> None:
    """SpecInfer's rule. A second child that is the same token is rejected for certain."""
    assert judged(independent_trees, 1, False) < 1e-12
    assert judged(independent_trees, 0, True) > 0.01  # q has lost nothing


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


@pytest.mark.parametrize(
    ("trees", "renormalise"),
    [(drawn_trees, False), (likeliest_trees, True), (reranked_trees, True)],
    ids=["judged by the first q", "chosen, not drawn", "drawn, then reordered"],
)
def test_what_looks_right_and_is_not_changes_the_text(trees: Any, renormalise: bool) -> None:
    distances = [judged(trees, seed, renormalise) for seed in range(3)]
    assert np.median(distances) > 0.01, distances


@pytest.mark.parametrize("trees", [likeliest_trees, reranked_trees])
def test_following_draws_of_the_target_is_lossless_whatever_the_tree(trees: Any) -> None:
    """All choices that the target may draw after the seven columns are summed."""
    p, q = conditional(3, 2), conditional(1003, 1)
    drafts = trees(q)[0][:1]
    said = after(drafts, p)[0]
    choices = torch.tensor(list(itertools.product(range(V), repeat=7)))
    chances = said[torch.arange(7), choices].prod(1)
    many = drafts.expand(len(choices), -1)
    walk = follow(many, find_tree(torch.tensor(PARENTS).expand_as(many), 2), choices)
    last = torch.nn.functional.pad(walk.path + 1, (1, 0)).gather(1, walk.accepted[:, None])[:, 0]
    own = walk.emitted.gather(1, walk.accepted[:, None])[:, 0]
    weights = torch.nn.functional.one_hot(own, V).double()
    found = text_chances(many, p, last, weights, chances)
    assert distance(found, p) < 1e-12


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


@pytest.mark.parametrize("name", TREES)
def test_what_is_emitted_with_trees_is_what_the_target_would_say(name: str) -> None:
    """Odds of false failure: 1e-6 for each of the four."""
    result = sampled(TREES[name])
    statistic, limit = chi_square(result.tokens, sv.SamplingParams(**WARM))
    assert statistic < limit
    assert result.summary["mean_acceptance_length"].item() > 1.3


def test_likeliest_children_that_are_judged_by_q_fail_by_far() -> None:
    statistic, limit = chi_square(sampled(WRONG).tokens, sv.SamplingParams(**WARM))
    assert statistic > 3 * limit


def test_children_are_drawn_without_replacement() -> None:
    """Ordered pairs of 20,000 draws, each within six standard errors: odds below 4e-8 in all."""
    tries, q = 20_000, np.array([0.5, 0.25, 0.15, 0.1])
    chooser: Any = sv.SamplingParams(1.0).chooser(5)
    logits = torch.tensor(np.log(q)).float().expand(tries, 1, V)
    drawn = chooser.draw_children(logits, range(tries), [4] * tries, 2)[:, 0]
    for pair in itertools.permutations(range(V), 2):
        share = (drawn == torch.tensor(pair)).all(1).double().mean().item()
        wanted = chance_of(pair, q)
        assert abs(share - wanted) < 6 * (wanted * (1 - wanted) / tries) ** 0.5


def test_children_are_drawn_independently() -> None:
    """Ordered pairs of 20,000 draws, each within six standard errors: odds below 4e-8 in all."""
    tries, q = 20_000, np.array([0.5, 0.25, 0.15, 0.1])
    chooser: Any = sv.SamplingParams(1.0).chooser(5)
    logits = torch.tensor(np.log(q)).float().expand(tries, 1, V)
    drawn = chooser.draw_independently(logits, range(tries), [4] * tries, 2)[:, 0]
    for pair in itertools.product(range(V), repeat=2):
        share = (drawn == torch.tensor(pair)).all(1).double().mean().item()
        wanted = q[list(pair)].prod()
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
    drafter = sv.drafter("static_tree", siblings="independent")
    run: dict[str, Any] = {"max_new_tokens": 12, "record": True}
    sampled_run = generate(
        make_pair("llama"), make_prompts()[:4], drafter=drafter,
        sampling=sv.SamplingParams(0.5), **run,
    )  # fmt: skip
    assert sampled_run.meta["valid"]
    assert sampled_run.trace is not None
    assert sv.check_invariants(sampled_run.trace) == []
    wrong = sv.drafter("static_tree", siblings="independent", judged_by="rest", valid=False)
    biased = generate(
        make_pair("llama"), make_prompts()[:4], drafter=wrong, sampling=sv.SamplingParams(0.5),
        max_new_tokens=4, record=True,
    )  # fmt: skip
    assert not biased.meta["valid"]
    found = sv.check_invariants(biased.trace)
    assert {each.rule for each in found} == {"acceptance"}
    assert "independent children are judged_by='rest'" in str(found[0])
    greedy = generate(make_pair("llama"), make_prompts()[:4], drafter=drafter, **run)
    plain = generate(make_pair("llama"), make_prompts()[:4], **run)
    assert greedy.tokens == plain.tokens


@pytest.mark.parametrize("name", ["tree", "static_tree"])
def test_a_run_that_would_be_biased_says_so(name: str) -> None:
    params = sv.SamplingParams(1.0)
    run: dict[str, Any] = {"max_new_tokens": 4, "record": True, "sampling": params}
    result = generate(make_pair("llama"), make_prompts()[:2], drafter=name, **run)
    assert result.meta["valid"]
    wrong = sv.drafter("static_tree", judged_by="first", valid=False)
    result = generate(make_pair("llama"), make_prompts()[:2], drafter=wrong, **run)
    assert not result.meta["valid"]
    greedy = generate(make_pair("llama"), make_prompts()[:2], drafter=wrong, max_new_tokens=4)
    assert greedy.meta["valid"]
