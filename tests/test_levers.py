"""Levers: what a run does to take less memory. None of them changes the text."""

from typing import Any

import pytest
import torch
from conftest import check_refusal, decoded, generate, generate_one_by_one, make_pair, make_prompts
from test_numbers import VALID

import specviz as sv
from specviz.engine.kv.windowed import WindowedModel
from specviz.engine.options import Options
from specviz.engine.run import make_run

K = 4
RUN: dict[str, Any] = {"batch_size": 4, "num_draft_tokens": K, "max_new_tokens": 24}
LEVERS = {
    "chunks of 5": sv.Levers(prefill_tokens=5),
    "chunks of 50": sv.Levers(prefill_tokens=50),
    "no logits": sv.Levers(draft_logits=False),
    "two rows": sv.Levers(accept_rows=2),
    "three rows": sv.Levers(accept_rows=3),
    "blocks of 7": sv.Levers(slab_block=7),
    "blocks of 64": sv.Levers(slab_block=64),
    "smallest window": sv.Levers(draft_window=2 * K + 4),
    "window": sv.Levers(draft_window=30),
    "window for all": sv.Levers(draft_window=10**6),
    "all": sv.Levers(
        prefill_tokens=9, draft_window=16, draft_logits=False, accept_rows=1, slab_block=5
    ),
}


@pytest.mark.sweep(15)
@pytest.mark.parametrize("name", VALID)
@pytest.mark.parametrize("levers", [LEVERS["all"], LEVERS["window"]], ids=["all", "window"])
def test_every_strategy(name: str, levers: sv.Levers) -> None:
    result = generate(make_pair("llama"), make_prompts(), strategy=name, levers=levers, **RUN)
    assert result.tokens == generate_one_by_one()


@pytest.mark.sweep(48)
@pytest.mark.parametrize("name", ["eqspec", "exspec"])
@pytest.mark.parametrize("levers", LEVERS.values(), ids=LEVERS)
def test_the_text_is_that_without_levers(name: str, levers: sv.Levers) -> None:
    result = generate(make_pair("llama"), make_prompts(), strategy=name, levers=levers, **RUN)
    assert result.tokens == generate_one_by_one()


@pytest.mark.sweep(24)
@pytest.mark.parametrize("levers", LEVERS.values(), ids=LEVERS)
def test_learned_positions(levers: sv.Levers) -> None:
    result = generate(make_pair("gpt2"), make_prompts(), strategy="eqspec", levers=levers, **RUN)
    assert result.tokens == generate_one_by_one("gpt2")


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    "drafter",
    [
        "lookup",
        sv.drafter("model", keep_cache=False),
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


@pytest.mark.sweep(15)
@pytest.mark.parametrize("levers", LEVERS.values(), ids=LEVERS)
def test_sampling_with_gumbel_draws_the_same_text(levers: sv.Levers) -> None:
    sampling = sv.SamplingParams(0.8, coupling="gumbel")
    run = RUN | {"sampling": sampling, "seed": 3}
    expected = generate(make_pair("llama"), make_prompts(), strategy="autoregressive", **run)
    found = generate(make_pair("llama"), make_prompts(), levers=levers, **run)
    assert found.tokens == expected.tokens


@pytest.mark.sweep(6)
@pytest.mark.parametrize("name", ["chunks of 5", "two rows", "blocks of 7"])
def test_sampling_with_rejection_draws_the_same_sample(name: str) -> None:
    """These levers change nothing of what is drafted, so the same draws decide."""
    run = RUN | {"sampling": sv.SamplingParams(0.8), "seed": 3}
    expected = generate(make_pair("llama"), make_prompts(), **run)
    found = generate(make_pair("llama"), make_prompts(), levers=LEVERS[name], **run)
    assert found.tokens == expected.tokens


@pytest.mark.sweep(8)
@pytest.mark.parametrize("name", ["chunks of 5", "no logits", "two rows", "blocks of 7"])
def test_rounds_are_the_same_and_records_are_in_step(name: str) -> None:
    levers = LEVERS[name]
    for strategy in ("eqspec", "inplace", "masking"):
        result = decoded(strategy, levers=levers)
        assert not sv.check_invariants(result.trace)
        assert (result.rows["accepted"] == decoded(strategy).rows["accepted"]).all()


def test_deterministic_runs_take_no_notice_of_chunks() -> None:
    run = RUN | {"deterministic": True}
    expected = generate(make_pair("llama"), make_prompts(), **run)
    found = generate(make_pair("llama"), make_prompts(), levers=LEVERS["all"], **run)
    assert found.tokens == expected.tokens


def test_a_window_holds_what_it_says() -> None:
    """The draft's slabs have the window's slots, and each draft reads at least half of them."""
    window = 2 * K + 6
    options = Options(levers=sv.Levers(draft_window=window), **RUN)
    run = make_run(make_pair("llama"), make_prompts(), options)
    draft = run.state.caches["draft"]
    assert isinstance(draft, WindowedModel)
    moved = 0
    for event in run.events():
        if event.phase != "draft":
            continue
        assert all(layer.keys.shape[1] == window for layer in draft.cache.layers)
        for i, row in enumerate(event.state.batch.rows):
            held = row.length - row.draft_first
            assert min(row.length, window // 2) <= held <= window - K
            assert draft.firsts[i] == row.draft_first
            moved += row.draft_first > 0
    assert moved > 50


@pytest.mark.slow
def test_a_window_accepts_fewer_drafts_and_no_window_as_many() -> None:
    def accepted(window: int | None) -> int:
        levers = sv.Levers(draft_window=window)
        result = generate(make_pair("llama"), make_prompts(), levers=levers, **RUN)
        return int(result.rows["accepted"].sum())

    assert accepted(2 * K + 4) < accepted(None) == accepted(10**6)


def test_slabs_grow_by_blocks_and_no_further_than_they_may() -> None:
    options = Options(levers=sv.Levers(slab_block=16), strategy="eqspec", **RUN)
    run = make_run(make_pair("llama"), make_prompts(), options)
    target = run.state.caches["target"]
    seen = []
    for event in run.events():
        if event.phase == "verify":
            slots = {layer.keys.shape[1] for layer in target.cache.layers}
            assert len(slots) == 1
            seen += slots
            assert event.state.window <= seen[-1] <= target.slots
    assert seen == sorted(seen)
    assert len(set(seen)) > 2
    assert all(slots % 16 == 0 or slots == target.slots for slots in seen)


def test_without_kept_draft_kv_no_slab_outlives_the_draft_phase() -> None:
    options = Options(drafter=sv.drafter("model", keep_cache=False), **RUN)
    run = make_run(make_pair("llama"), make_prompts(), options)
    for event in run.events():
        held = any(layer.is_initialized for layer in run.state.caches["draft"].cache.layers)
        assert held == (event.phase == "draft")


def test_no_logits_are_kept_and_broken_drafts_are_seen() -> None:
    """A row whose draft computes NaN is still cleared, so that the next one in it drafts well."""
    pair = make_pair("llama")
    run = make_run(pair, make_prompts(), Options(levers=sv.Levers(draft_logits=False), **RUN))
    flagged = 0
    for event in run.events():
        if event.phase == "schedule" and event.round == 2:
            for layer in run.state.caches["draft"].cache.layers:
                with torch.inference_mode():
                    layer.keys[1] = torch.nan
        if event.phase == "draft":
            assert event.draft.logits is None
            assert event.draft.chosen.shape == event.draft.tokens.shape
        if event.phase == "accept":
            flagged += int(event.outcome.any_nonfinite.sum())
            for layer in run.state.caches["draft"].cache.layers:
                assert bool(layer.keys.isfinite().all())
    assert flagged == 1


def test_a_forward_of_a_prefill_reads_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    from specviz.engine.kv.cache import CachedModel

    sizes = []
    prefill = CachedModel.prefill

    def noted(self: CachedModel, feed: Any, **arguments: Any) -> None:
        sizes.append(feed.tokens.numel())
        prefill(self, feed, **arguments)

    monkeypatch.setattr(CachedModel, "prefill", noted)
    generate(make_pair("llama"), make_prompts(), levers=sv.Levers(prefill_tokens=25), **RUN)
    assert max(sizes) == 25


@pytest.mark.parametrize(
    ("levers", "options", "message"),
    [
        (sv.Levers(draft_window=8), {}, "draft_window must be at least 12"),
        (sv.Levers(draft_window=30), {"record": True}, "draft_window keeps"),
        (sv.Levers(draft_logits=False), {"sampling": sv.SamplingParams(1.0)}, "draft_logits=False"),
        (sv.Levers(draft_logits=False), {"selector": "tetris"}, "draft_logits=False"),
        (
            sv.Levers(draft_window=30),
            {"sampling": sv.SamplingParams(1.0), "deterministic": True},
            "deterministic=True",
        ),
        (5, {}, "levers must be a Levers"),
    ],
)
def test_what_does_not_go_together_is_refused(
    levers: Any, options: dict[str, Any], message: str
) -> None:
    run = RUN | options
    check_refusal(
        lambda: generate(make_pair("llama"), make_prompts(), levers=levers, **run), message
    )


@pytest.mark.parametrize(
    "name", ["prefill_tokens", "draft_window", "accept_rows", "slab_block", "draft_logits"]
)
def test_a_lever_of_the_wrong_kind_is_refused(name: str) -> None:
    check_refusal(lambda: sv.Levers(**{name: 0}), name)
