"""Typical acceptance: its rule in plain Python, and how far it takes the text from the target's.

The distribution of what is written is enumerated over all texts of three tokens out of six. Seeds
are fixed; stated odds of false failure are those over seeds.
"""

import math
from collections import defaultdict
from collections.abc import Callable

import couplings
import numpy as np
import pytest
import torch
from conftest import generate
from hypothesis import given
from hypothesis import strategies as st
from specviz.engine.trees.shape import find_tree
from test_sampling import NEW_TOKENS, PROMPT, V, make_tiny, probabilities

import specviz as sv

K, COPIES = 2, 2000
SAMPLING = sv.SamplingParams(1.3, coupling="typical", epsilon=0.3, delta=0.6)
RUN = {"num_draft_tokens": K, "batch_size": 1000, "max_new_tokens": NEW_TOKENS}
Row = tuple[int, ...]


def is_typical(p: list[float], token: int, epsilon: float, delta: float) -> bool:
    """The rule of Medusa's paper, in plain Python."""
    entropy = -sum(x * math.log(x) for x in p if x > 0)
    return p[token] > min(epsilon, delta * math.exp(-entropy))


def after(model: torch.nn.Module, prefix: Row) -> list[float]:
    """The model's distribution after the prompt and `prefix`."""
    with torch.no_grad():
        logits = model(torch.tensor([[*PROMPT, *prefix]])).logits[0, -1]
    return SAMPLING.distribution(logits).tolist()


def proposed(prefix: Row) -> Row:
    """What the draft model finds likeliest behind `prefix`, K tokens."""
    drafts: Row = ()
    for _ in range(K):
        q = after(make_tiny().draft, prefix + drafts)
        drafts = (*drafts, q.index(max(q)))
    return drafts


def written(prefix: Row = (), *, propose: Callable[[Row], Row] = proposed) -> dict[Row, float]:
    """The probability of every text that rounds of K drafts can write behind `prefix`."""
    if len(prefix) >= NEW_TOKENS or 5 in prefix:
        return {cut(prefix): 1.0}
    target = make_tiny().target
    accepted = prefix
    for token in propose(prefix):
        if not is_typical(after(target, accepted), token, 0.3, 0.6):
            break
        accepted = (*accepted, token)
    found: dict[Row, float] = defaultdict(float)
    for token, chance in enumerate(after(target, accepted)):
        for row, rest in written((*accepted, token), propose=propose).items():
            found[row] += chance * rest
    return found


def cut(row: Row) -> Row:
    row = row[:NEW_TOKENS]
    return row[: row.index(5) + 1] if 5 in row else row


def total_variation(one: dict[Row, float], other: dict[Row, float]) -> float:
    return sum(abs(one.get(row, 0) - other.get(row, 0)) for row in {*one, *other}) / 2


def sample(**options: object) -> list[list[int]]:
    return generate(make_tiny(), [PROMPT] * COPIES, **RUN | {"sampling": SAMPLING} | options).tokens


def test_it_writes_what_the_rule_says_and_not_what_the_target_would():
    """By Hoeffding, a share of 2000 texts is off by 0.06 with odds of 2e-6; there are 156 texts."""
    rule = written()
    target = dict(probabilities(SAMPLING))
    assert sum(rule.values()) == pytest.approx(1)
    assert total_variation(rule, target) > 0.1
    rows = [tuple(row) for row in sample()]
    for row in rule:
        assert rows.count(row) / COPIES == pytest.approx(rule[row], abs=0.06), row
    # Texts that the rule never writes, though the target would.
    assert set(rows) <= set(rule)
    assert len(rule) < len(target)


@pytest.mark.slow
def test_without_drafts_it_is_the_gumbel_coupling():
    gumbel = sv.SamplingParams(1.3, coupling="gumbel")
    plain = sample(strategy="autoregressive")
    assert plain == sample(strategy="autoregressive", sampling=gumbel)


@st.composite
def judgements(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, float, float]:
    """Logits (1, K+1, V), drafts (1, K), and thresholds."""
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    logits = random.normal(0, draw(st.sampled_from([0.1, 1, 4])), (1, K + 1, V))
    logits[0, 0, draw(st.integers(0, V - 1))] = draw(st.sampled_from([0.0, -math.inf]))
    drafts = random.integers(0, V, (1, K))
    share = st.floats(0, 1)
    return torch.from_numpy(logits), torch.from_numpy(drafts), draw(share), draw(share)


@given(judgements())
def test_drafts_are_accepted_as_plain_python_does(drawn):
    logits, drafts, epsilon, delta = drawn
    params = sv.SamplingParams(0.7, coupling="typical", epsilon=epsilon, delta=delta)
    accepted, emitted = params.chooser(0).accept(drafts, None, logits, [0], [3])
    expected = 0
    for j, token in enumerate(drafts[0].tolist()):
        if not is_typical(params.distribution(logits[0, j]).tolist(), token, epsilon, delta):
            break
        expected += 1
    assert accepted.tolist() == [expected]
    gumbel = sv.SamplingParams(0.7, coupling="gumbel").chooser(0)
    _, choice = gumbel.accept(drafts, None, logits, [0], [3])
    behind = int(choice[0, expected])
    assert emitted[0, : expected + 1].tolist() == [*drafts[0, :expected].tolist(), behind]


def test_of_the_longest_branches_the_likeliest_is_taken():
    """Drafts 1 and 2 follow the pending token, 3 follows the first, 4 and 5 the second."""
    drafts = torch.tensor([[1, 2, 3, 4, 5]])
    tree = find_tree(torch.tensor([[-1, -1, 0, 1, 1]]))
    p = torch.full((1, 6, V), 0.02)
    p[0, 0, 1], p[0, 0, 2] = 0.6, 0.3
    p[0, 1, 3] = 0.01
    p[0, 2, 4], p[0, 2, 5] = 0.2, 0.7
    params = sv.SamplingParams(1.0, coupling="typical", epsilon=0.1, delta=1)
    judge = params.chooser(0).accept_tree
    walk = judge(drafts, tree, None, p.log(), [0], [0])
    assert walk.path.tolist() == [[1, 4, -1, -1, -1]]
    assert walk.emitted[0, :2].tolist() == [2, 5]
    # Of two branches that are equally long, the one with the larger product of p.
    p[0, 1, 3] = 0.5
    assert judge(drafts, tree, None, p.log(), [0], [0]).path.tolist() == [[0, 2, -1, -1, -1]]
    # Only the first three drafts are judged.
    p[0, 1, 3] = 0.01
    lengths = torch.tensor([3])
    walk = judge(drafts, tree, None, p.log(), [0], [0], lengths)
    assert walk.path.tolist() == [[0, -1, -1, -1, -1]]


@pytest.mark.sweep(6)
@pytest.mark.parametrize("drafter", ["model", sv.drafter("tree"), sv.drafter("static_tree")])
def test_a_run_promises_nothing(drafter, pair, prompts):
    sampling = sv.SamplingParams(0.9, coupling="typical")
    run = {"sampling": sampling, "num_draft_tokens": 3, "max_new_tokens": 16}
    result = generate(pair, prompts, drafter=drafter, record=True, **run)
    assert result.meta["valid"] is False
    assert result.meta["sampling"]["epsilon"] == 0.09
    assert result.meta["sampling"]["delta"] == 0.3
    for deep in (None, pair):
        found = sv.check_invariants(result.trace, pair=deep, deep=deep is not None)
        assert {(finding.round, finding.rule) for finding in found} == {(0, "acceptance")}
        assert "typical acceptance writes what is drafted more often" in str(found[0])
    plain = generate(pair, prompts, strategy="autoregressive", record=True, **run)
    assert plain.meta["valid"] is True
    assert not sv.check_invariants(plain.trace)


def test_the_bias_is_that_of_the_recorded_drafts(pair, prompts):
    """At temperature 1 a record has p of each draft."""
    sampling = sv.SamplingParams(1.0, coupling="typical")
    run = {"num_draft_tokens": 3, "batch_size": 4, "max_new_tokens": 9}
    result = generate(pair, prompts, sampling=sampling, seed=3, record=True, **run)
    table = result.trace.rows
    certain = np.minimum(table["accepted"], table["gained"])[:, None] > np.arange(3)
    distance = (1 - np.exp(table["target_logprob"]))[certain].sum() / table["gained"].sum()
    found = couplings.distance(pair, prompts, sampling, seed=3, **run)
    assert found == pytest.approx(distance, rel=1e-4)
    assert found > 0.01
    assert couplings.distance(pair, prompts, sv.SamplingParams(1.0), seed=3, **run) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 2}, "epsilon must be a number from 0 to 1, got 2; pass for instance 0.09"),
        ({"delta": "x"}, "delta must be a number from 0 to 1, got 'x'; pass for instance 0.3"),
        (
            {"delta": 0.1, "coupling": "gumbel"},
            "delta must be None with coupling='gumbel', got 0.1",
        ),
    ],
)
def test_thresholds_that_cannot_be_used(options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        sv.SamplingParams(0.8, **{"coupling": "typical"} | options)
