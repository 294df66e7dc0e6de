"""Levers: what a run does to take less memory. None of them changes the text."""

from typing import Any

import pytest
from conftest import check_refusal, decoded, generate, generate_one_by_one, make_pair, make_prompts
from test_numbers import VALID

import specviz as sv
from specviz.engine.kv.cache import CachedModel
from specviz.engine.options import Options
from specviz.engine.run import make_run

RUN: dict[str, Any] = {"batch_size": 4, "num_draft_tokens": 4, "max_new_tokens": 24}
LEVERS = {
    "chunks of 5": sv.Levers(prefill_tokens=5),
    "chunks of 50": sv.Levers(prefill_tokens=50),
    "no draft K/V": sv.Levers(keep_draft=False),
    "all": sv.Levers(prefill_tokens=9, keep_draft=False),
}


@pytest.mark.sweep(8)
@pytest.mark.parametrize("name", VALID)
def test_every_strategy(name: str) -> None:
    levers = LEVERS["all"]
    result = generate(make_pair("llama"), make_prompts(), strategy=name, levers=levers, **RUN)
    assert result.tokens == generate_one_by_one()


@pytest.mark.sweep(8)
@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("levers", LEVERS.values(), ids=LEVERS)
def test_the_text_is_that_without_levers(family: str, levers: sv.Levers) -> None:
    result = generate(make_pair(family), make_prompts(), strategy="exspec", levers=levers, **RUN)
    assert result.tokens == generate_one_by_one(family)


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    "drafter",
    [
        "lookup",
        sv.drafter("tree", depth=3, width=2),
        sv.drafter("static_tree", paths=[[0], [1], [0, 0], [0, 1]]),
        sv.drafter("synthetic", rates=[0.9, 0.5, 0.4, 0.3]),
    ],
    ids=lambda drafter: getattr(drafter, "name", drafter),
)
def test_every_drafter(drafter: Any) -> None:
    result = generate(
        make_pair("llama"), make_prompts(), drafter=drafter, levers=LEVERS["all"], **RUN
    )
    assert result.tokens == generate_one_by_one()


@pytest.mark.sweep(4)
@pytest.mark.parametrize("coupling", ["rejection", "gumbel"])
def test_sampling_draws_the_same_sample(coupling: str) -> None:
    """Levers change nothing of what is drafted, so the same draws decide."""
    run = RUN | {"sampling": sv.SamplingParams(0.8, coupling=coupling), "seed": 3}
    expected = generate(make_pair("llama"), make_prompts(), **run)
    found = generate(make_pair("llama"), make_prompts(), levers=LEVERS["all"], **run)
    assert found.tokens == expected.tokens


@pytest.mark.sweep(3)
@pytest.mark.parametrize("strategy", ["eqspec", "inplace", "masking"])
def test_rounds_are_the_same_and_records_are_in_step(strategy: str) -> None:
    result = decoded(strategy, levers=LEVERS["all"])
    assert not sv.check_invariants(result.trace)
    assert (result.rows["accepted"] == decoded(strategy).rows["accepted"]).all()


def test_deterministic_runs_take_no_notice_of_chunks() -> None:
    run = RUN | {"deterministic": True}
    expected = generate(make_pair("llama"), make_prompts(), **run)
    found = generate(make_pair("llama"), make_prompts(), levers=LEVERS["chunks of 5"], **run)
    assert found.tokens == expected.tokens


def test_without_kept_draft_kv_no_slab_outlives_the_draft_phase() -> None:
    options = Options(levers=sv.Levers(keep_draft=False), **RUN)
    run = make_run(make_pair("llama"), make_prompts(), options)
    for event in run.events():
        held = any(layer.is_initialized for layer in run.state.caches["draft"].cache.layers)
        assert held == (event.phase == "draft")


def test_a_forward_of_a_prefill_reads_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    prefill = CachedModel.prefill

    def noted(self: CachedModel, feed: Any, **arguments: Any) -> None:
        sizes.append(feed.tokens.numel())
        prefill(self, feed, **arguments)

    monkeypatch.setattr(CachedModel, "prefill", noted)
    generate(make_pair("llama"), make_prompts(), levers=sv.Levers(prefill_tokens=25), **RUN)
    assert max(sizes) == 25


def test_what_is_no_lever_is_refused() -> None:
    check_refusal(
        lambda: generate(make_pair("llama"), make_prompts(), levers=5), "levers must be a Levers"
    )
    for name in ("prefill_tokens", "keep_draft", "state"):
        check_refusal(lambda name=name: sv.Levers(**{name: 0}), name)
