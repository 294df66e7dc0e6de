"""Tokens a second under budgets: what is measured, and that no text changes."""

from typing import Any

import pytest
from conftest import check_refusal, make_pair
from test_memory import make_prompts

import specviz as sv
from specviz.studies.memory import compare_budgets

RUN: dict[str, Any] = {"batch_size": 3, "max_new_tokens": 6, "repetitions": 1, "progress": False}
PROMPTS = [[token % 97 for token in prompt] for prompt in make_prompts(40, 6)]


@pytest.mark.slow
def test_both_methods_run_under_every_budget() -> None:
    pair = make_pair("llama")
    table, found = compare_budgets(pair, PROMPTS, [100, 60, 1], **RUN)
    assert found["repetitions"] == 1
    assert table["percent"].isna().sum() == 1
    measured = table[table["tokens_per_s"].notna()]
    assert measured["same_text"].all()
    assert (measured["tokens_per_s"] > 0).all()
    budgets = measured[measured["percent"].notna()]
    assert (budgets["generation_mb"] < budgets["budget_mb"]).all()
    assert {tuple(each) for each in budgets[["method", "percent"]].to_numpy()} >= {
        ("speculative", 100),
        ("autoregressive", 100),
        ("speculative", 60),
        ("autoregressive", 60),
    }
    # No draft needs memory there, so more rows fit.
    rows = budgets[budgets["percent"] == 60].set_index("method")["batch_size"]
    assert rows["autoregressive"] > rows["speculative"]
    # A budget that not even one row fits into has no speed, and says so.
    least = table[(table["percent"] == 1) & (table["method"] == "speculative")]
    assert least["tokens_per_s"].isna().all()
    assert measured["retained_percent"].iloc[0] == pytest.approx(100)
    assert measured["saved_percent"].iloc[0] == pytest.approx(0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"percents": []}, "percents"),
        ({"percents": [0]}, "percents"),
        ({"repetitions": 0}, "repetitions"),
        ({"prompts": []}, "prompts"),
        ({"max_new_tokens": 10**6}, "prompts[0] has"),
    ],
)
def test_bad_arguments_are_refused(changes: dict[str, Any], message: str) -> None:
    arguments = {"prompts": PROMPTS, "percents": [50]} | RUN | changes
    check_refusal(lambda: compare_budgets(make_pair("llama"), **arguments), message)


def test_an_autoregressive_budget_counts_the_target_alone() -> None:
    pair = make_pair("llama")
    both = sv.plan("1GB", pair, PROMPTS).weight_bytes
    target = sv.plan("1GB", pair, PROMPTS, strategy="autoregressive").weight_bytes
    assert target == sum(parameter.nbytes for parameter in pair.target.parameters())
    assert both == target + sum(parameter.nbytes for parameter in pair.draft.parameters())
