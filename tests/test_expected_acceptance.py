"""What a drafter reaches on prompts: the same in any schedule, and less with a wrong draft."""

import copy

import numpy as np
import pytest
import torch
from conftest import make_pair

import specviz as sv
from specviz import metrics
from specviz.servers import Counters

PROMPTS = sv.load_prompts()
BUDGET = 32


@pytest.fixture(scope="module")
def expected(embedded: sv.Pair) -> sv.ExpectedAcceptance:
    return sv.expected_acceptance(embedded, PROMPTS[::2], max_new_tokens=BUDGET, progress=False)


@pytest.mark.parametrize(("strategy", "batch_size"), [("eqspec", 3), ("exspec", 5)])
def test_a_run_of_another_schedule_has_the_same_acceptance(
    embedded, expected, strategy, batch_size
):
    run = sv.generate(
        embedded, PROMPTS[::2], strategy=strategy, batch_size=batch_size, max_new_tokens=BUDGET,
        record=True, progress=False,
    )  # fmt: skip
    total = metrics.summary(run.trace).iloc[0]
    assert expected.mean_acceptance_length == pytest.approx(total["mean_acceptance_length"])
    assert expected.draft_acceptance_rate == pytest.approx(total["draft_acceptance_rate"])
    by_position = metrics.acceptance(run.trace)["acceptance"]
    np.testing.assert_allclose(expected.rates, by_position)
    assert expected.rounds == (run.trace.rows["gained"] > 0).sum()
    assert expected.mean_acceptance_length == pytest.approx(1 + sum(expected.rates))
    assert expected.prompts == 16


def test_other_prompts_of_the_kind_lie_within_and_a_wrong_draft_below(embedded, expected):
    others = sv.expected_acceptance(embedded, PROMPTS[1::2], max_new_tokens=BUDGET, progress=False)
    assert expected.frame(others)["verdict"][0] == "within"
    wrong = copy.deepcopy(embedded.draft)
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in wrong.parameters():
            weights += 0.5 * weights.std() * torch.randn(weights.shape, generator=noise)
    pair = sv.Pair(embedded.target, wrong, embedded.tokenizer)
    reached = sv.expected_acceptance(pair, PROMPTS[::2], max_new_tokens=BUDGET, progress=False)
    assert expected.frame(reached)["verdict"][0] == "below"
    assert reached.frame(expected)["verdict"][0] == "above"


def test_counters_of_a_server_stand_beside_it(expected):
    counts = np.array([80.0, 60.0, 50.0, 40.0, 20.0])
    counters = Counters("vllm", "m", 3.5, 0.5, 5, 100.0, 500.0, 250.0, counts)
    table = expected.frame(counters)
    np.testing.assert_allclose(table["measured"], [3.5, 0.5, 0.8, 0.6, 0.5, 0.4, 0.2])
    np.testing.assert_allclose(
        table["expected"][:2], [expected.mean_acceptance_length, expected.draft_acceptance_rate]
    )
    low, high = expected.interval
    assert low < expected.mean_acceptance_length < high
    ends = [expected.frame(value)["verdict"][0] for value in (low - 0.01, low, high, high + 0.01)]
    assert ends == ["below", "within", "within", "above"]
    gauges = Counters("sglang", "m", high + 0.01, 0.5, None)  # its K and positions are unknown
    assert expected.frame(gauges)["measured"].isna().tolist() == [False, False] + 5 * [True]
    with pytest.raises(ValueError, match=r"measured must have K = 5 .* num_draft_tokens=3"):
        expected.frame(Counters("sglang", "m", 3.0, 0.5, 3))
    assert f"{expected.mean_acceptance_length:.3f}" in str(expected)


def test_equal_prompts_have_an_interval_of_one_point_and_one_prompt_none():
    pair = make_pair("llama")
    twice = sv.expected_acceptance(pair, [[1, 2, 3]] * 2, max_new_tokens=9, progress=False)
    assert twice.interval == (twice.mean_acceptance_length,) * 2
    assert twice.frame(twice)["verdict"][0] == "within"
    with pytest.raises(ValueError, match="prompts must be two or more, got 1"):
        sv.expected_acceptance(pair, [[1, 2, 3]], max_new_tokens=9, progress=False)
