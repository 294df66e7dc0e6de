"""The published code's habits: each is an option, changes no text, and costs what records say."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import CLASSES, generate_one_by_one, make_pair, make_prompts

import specviz as sv
from specviz.cli.main import main
from specviz.engine.drafters import Drafter
from specviz.engine.strategies import Strategy
from specviz.generation.generate import generate_interleaved
from specviz.metrics import waste
from specviz.record.replay import Replay
from specviz.record.schema import MODELS, PHASES
from specviz.studies.losses import LOSSES, _Setup, _speeds, measure_losses

NEW_TOKENS = 24
NO_CACHE = sv.drafter("model", keep_cache=False)
FALLBACK_RUNS = [
    {"window": 6, "fallback": fallback, "max_wait": 2}
    for fallback in ("realign", "partial", "wait")
]
LOSSY: list[tuple[str, dict[str, Any]]] = [
    *((name, {"bonus": False}) for name in LOSSES),
    *((name, {"shrink_to_budget": True}) for name in LOSSES),
    *((name, {"bonus": False, "shrink_to_budget": True}) for name in LOSSES),
    ("eqspec", {"refill": False, "bonus": False}),
    ("eqspec", {"refill": False, "shrink_to_budget": True}),
    *((name, {"as_published": True}) for name in LOSSES),
    *(("exspec", options | {"drop_cache": True}) for options in FALLBACK_RUNS),
    *(("exspec", options | {"group_by": "padded"}) for options in FALLBACK_RUNS),
    ("exspec", {"window": 6, "as_published": True}),
    ("exspec", {"window": 6, "as_published": True, "sort_prompts": True}),
]
BUDGETS = [1, 2, 3, 5, 24, 7, 24, 4, 6, 1]


def run(
    strategy: str | Strategy, drafter: str | Drafter = "model", name: str = "llama", **options: Any
) -> sv.Result:
    given = {
        "batch_size": 4,
        "max_new_tokens": NEW_TOKENS,
        "record": True,
        "progress": False,
    } | options
    return sv.generate(make_pair(name), make_prompts(), strategy=strategy, drafter=drafter, **given)


def wasted(result: sv.Result) -> pd.Series:
    assert result.trace is not None
    return waste(result.trace).iloc[0]


def named(value: Any) -> str:
    return (
        "-".join([value[0], *map(str, value[1].values())])
        if isinstance(value, tuple)
        else str(value)
    )


# ---- the text and the record ----


@pytest.mark.parametrize("drafter", ["model", NO_CACHE], ids=["model", "no cache"])
@pytest.mark.parametrize("lossy", LOSSY, ids=named)
def test_no_loss_changes_the_text_or_breaks_an_invariant(
    lossy: tuple[str, dict[str, Any]], drafter: Any
) -> None:
    strategy = sv.strategy(lossy[0], **lossy[1])
    expected = generate_one_by_one("llama", torch.float32, NEW_TOKENS)
    assert strategy.promises
    for batch_size, k in ((1, 1), (3, 5), (6, 2)):
        result = run(strategy, drafter, batch_size=batch_size, num_draft_tokens=k)
        assert result.tokens == expected, f"B={batch_size}, K={k}"
        assert result.trace is not None
        assert sv.check_invariants(result.trace, deep=True, pair=make_pair("llama")) == [], (
            f"B={batch_size}, K={k}"
        )
        assert len(list(Replay(result.trace).frames())) == result.trace.num_rounds * len(PHASES)
    sv.step_through(result.trace)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("strategy", ["eqspec", "exspec"])
def test_as_published_writes_the_same_text_with_every_class(strategy: str, name: str) -> None:
    expected = generate_one_by_one(name, torch.float32, NEW_TOKENS)
    for batch_size in (1, 4, 8):
        assert (
            run(
                sv.strategy(strategy, as_published=True),
                name=name,
                batch_size=batch_size,
                record=False,
            ).tokens
            == expected
        )


@pytest.mark.parametrize("lossy", LOSSY, ids=named)
def test_budgets_are_kept_row_by_row(lossy: tuple[str, dict[str, Any]]) -> None:
    whole = generate_one_by_one("llama", torch.float32, NEW_TOKENS)
    result = run(sv.strategy(lossy[0], **lossy[1]), max_new_tokens=BUDGETS, record=False)
    assert result.tokens == [row[:budget] for row, budget in zip(whole, BUDGETS, strict=True)]


@pytest.mark.parametrize(
    "lossy",
    [LOSSY[0], ("eqspec", {"as_published": True}), ("exspec", {"as_published": True})],
    ids=named,
)
def test_sampled_texts_are_the_same_under_gumbel(lossy: tuple[str, dict[str, Any]]) -> None:
    options: dict[str, Any] = {
        "sampling": sv.SamplingParams(0.9, coupling="gumbel"),
        "seed": 5,
        "record": False,
    }
    assert (
        run(sv.strategy(lossy[0], **lossy[1]), **options).tokens
        == run("autoregressive", **options).tokens
    )


# ---- what each one costs ----


def test_without_a_bonus_a_full_acceptance_gains_k() -> None:
    result = run(sv.strategy("eqspec", bonus=False), num_draft_tokens=2)
    rows = result.rows
    whole = (rows["accepted"] == 2) & (rows["finished"] == 0) & (rows["gained"] > 0)
    assert whole.any()
    assert set(rows["gained"][whole]) == {2}
    assert set(rows["discarded"][whole]) == {1}
    rejected = (rows["accepted"] < 2) & (rows["finished"] == 0) & (rows["gained"] > 0)
    assert (rows["gained"][rejected] == rows["accepted"][rejected] + 1).all()
    assert len(result.rounds["batch"]) > len(run("eqspec", num_draft_tokens=2).rounds["batch"])


def test_without_a_bonus_one_draft_a_round_gains_nothing() -> None:
    plain = run("autoregressive", batch_size=1)
    lossy = run(sv.strategy("eqspec", bonus=False), batch_size=1, num_draft_tokens=1)
    assert len(lossy.rounds["batch"]) == len(plain.rounds["batch"])
    assert lossy.tokens == plain.tokens


def test_k_shrinks_to_the_smallest_budget_of_the_batch() -> None:
    result = run(sv.strategy("eqspec", shrink_to_budget=True), max_new_tokens=BUDGETS)
    rows = pd.DataFrame(
        {name: result.rows[name] for name in ("round", "request", "length", "gained", "drafted")}
    )
    prompts = np.array([len(prompt) for prompt in make_prompts()])
    left = np.array(BUDGETS)[rows["request"]] - (rows["length"] - prompts[rows["request"]])
    smallest = left[rows["gained"] > 0].groupby(rows["round"]).min().clip(upper=5)
    at_work = rows[rows["gained"] > 0]
    assert (at_work["drafted"] == smallest[at_work["round"]].to_numpy()).all()
    assert set(at_work["drafted"]) >= {1, 5}
    assert wasted(result)["mean_draft_tokens"] < 5


def test_a_draft_without_a_cache_reads_everything_again() -> None:
    kept, lossy = run("eqspec"), run("eqspec", NO_CACHE)
    assert wasted(kept)["draft_read"] <= 1
    assert wasted(lossy)["draft_read"] > 2
    assert lossy.trace is not None
    draft = lossy.trace.feeds["model"] == MODELS.index("draft")
    assert not (draft & (lossy.trace.feeds["phase"] == PHASES.index("schedule"))).any()
    assert not (lossy.trace.moves["model"] == MODELS.index("draft")).any()
    fed = Counter(
        zip(
            *(lossy.trace.feeds[name][draft].tolist() for name in ("round", "request", "index")),
            strict=True,
        )
    )
    for number, request, length in zip(
        *(lossy.rows[name].tolist() for name in ("round", "request", "length")), strict=True
    ):
        assert all((number, request, index) in fed for index in range(length))
    assert lossy.meta["keep_draft"] is False


def test_a_deep_check_still_sees_what_the_target_holds() -> None:
    """That a draft keeps nothing must not hide a broken target."""
    broken = run(sv.strategy("eqspec", break_invariant="kv", from_round=1), NO_CACHE)
    assert broken.trace is not None
    assert {found.model for found in sv.check_invariants(broken.trace)} == {"target"}


def test_finished_rows_stay_in_a_static_batch() -> None:
    assert wasted(run(sv.strategy("eqspec", refill=False)))["idle_rows"] > 0
    assert wasted(run("eqspec"))["idle_rows"] == 0


def test_a_fallback_that_drops_the_cache_reads_whole_batches_again() -> None:
    kept, lossy = (
        run(sv.strategy("exspec", window=6)),
        run(sv.strategy("exspec", window=6, drop_cache=True)),
    )
    assert wasted(kept)["target_read"] == 1
    assert wasted(lossy)["target_read"] > 1.5
    trace = lossy.trace
    assert trace is not None
    entering = (trace.feeds["phase"] == PHASES.index("schedule")) & (
        trace.feeds["model"] == MODELS.index("target")
    )
    read = (
        pd.DataFrame({name: trace.feeds[name][entering] for name in ("round", "request")})
        .groupby("round")["request"]
        .agg(set)
    )
    decisions = [trace.meta["decisions"][code] for code in trace.rounds["decision"]]
    for number, requests in read.items():
        here = trace.rows["round"] == number
        new = {
            int(r)
            for r, n in zip(trace.rows["request"][here], trace.rows["length"][here], strict=True)
            if n == len(make_prompts()[r])
        }
        expected = (
            set(trace.rows["request"][here].tolist())
            if decisions[int(number)] == "realigned"
            else new
        )
        assert requests <= expected
        assert {
            request for request in expected if len(make_prompts()[request]) > 1
        } <= requests  # of one token nothing is to be read


def test_groups_by_padded_length_end_in_one_column_and_are_ragged() -> None:
    """A grouped round may hold rows of different length, and moves nothing."""
    trace = run(sv.strategy("exspec", window=10, group_by="padded"), batch_size=2).trace
    assert trace is not None
    grouped = np.flatnonzero(trace.rounds["decision"] == trace.meta["decisions"].index("grouped"))
    lengths = [
        set(trace.rows["length"][trace.rows["round"] == number].tolist()) for number in grouped
    ]
    assert any(len(each) > 1 for each in lengths)
    assert all(
        len(set(trace.rows["pending"][trace.rows["round"] == number].tolist())) == 1
        for number in grouped
    )
    within = trace.moves["from_row"] == trace.moves["to_row"]
    assert not set(trace.moves["round"][within]) & set(grouped.tolist())


# ---- as published ----


def test_as_published_sets_them_all() -> None:
    eqspec, exspec = (sv.strategy(name, as_published=True).options for name in ("eqspec", "exspec"))
    assert eqspec == {
        "refill": False,
        "bonus": False,
        "shrink_to_budget": True,
        "as_published": True,
    }
    expected = {
        "refill": True,
        "bonus": False,
        "shrink_to_budget": True,
        "drop_cache": True,
        "group_by": "padded",
    }
    assert {name: exspec[name] for name in expected} == expected
    assert sv.strategy("eqspec", as_published=True, bonus=True).options == eqspec


def test_a_drafter_by_name_is_as_published_too_and_one_of_ones_own_is_not() -> None:
    strategy = sv.strategy("eqspec", as_published=True)
    kept = {"model": False, "lookup": True}
    for name, keeps in kept.items():
        assert run(strategy, name).meta["keep_draft"] is keeps
    assert run(strategy, sv.drafter("model")).meta["keep_draft"] is True
    assert run("eqspec", "model").meta["drafter_options"] == {"keep_cache": True}


def test_the_pattern_of_the_published_code() -> None:
    """On mixed lengths EXSPEC finds few groups and reads prompts again; both drafts reread."""
    pair, prompts = make_pair("llama"), [[7 + i] * (20 + 7 * i) for i in range(24)]
    given: dict[str, Any] = {
        "batch_size": 8,
        "max_new_tokens": 24,
        "record": True,
        "progress": False,
    }
    results = {
        name: sv.generate(pair, prompts, strategy=sv.strategy(name, as_published=True), **given)
        for name in ("eqspec", "exspec")
    }
    ours = {name: sv.generate(pair, prompts, strategy=name, **given) for name in results}
    for name, result in results.items():
        assert result.tokens == ours[name].tokens
        assert len(result.rounds["batch"]) > len(ours[name].rounds["batch"])
        assert wasted(result)["draft_read"] > 4
    assert wasted(results["exspec"])["target_read"] > 3
    assert wasted(results["eqspec"])["target_read"] == 1
    assert results["exspec"].summary["grouping_rate"].item() < 0.2


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("eqspec", {"bonus": 1}, "bonus must be a bool, got 1"),
        ("eqspec", {"shrink_to_budget": "yes"}, "shrink_to_budget must be a bool, got 'yes'"),
        ("eqspec", {"as_published": "all"}, "as_published must be a bool, got 'all'"),
        ("exspec", {"as_published": 1}, "as_published must be a bool, got 1"),
        ("exspec", {"drop_cache": None}, "drop_cache must be a bool, got None"),
        (
            "exspec",
            {"group_by": "size"},
            'group_by=\'size\' is unknown; choose "length" or "padded"',
        ),
        ("rollback", {"as_published": True}, "strategy 'rollback' takes no option 'as_published'"),
        ("inplace", {"as_published": True}, "strategy 'inplace' takes no option 'as_published'"),
    ],
    ids=str,
)
def test_options_are_checked(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        sv.strategy(name, **options)


def test_the_drafters_option_is_checked() -> None:
    with pytest.raises(ValueError, match=r"^keep_cache must be a bool, got 'no'; "):
        sv.drafter("model", keep_cache="no")


# ---- the table ----


def test_the_table_is_that_of_single_runs(pair: sv.Pair, prompts: list[list[int]]) -> None:
    asked = {"num_draft_tokens": 3, "max_new_tokens": 8, "progress": False}
    table, conditions = measure_losses(pair, prompts, (3,), repetitions=2, window=6, **asked)
    assert len(table) == 1 + sum(1 + len(losses) for losses in LOSSES.values())
    assert (table["exact_match"] == 1).all()
    assert (table["tokens_per_s_low"] <= table["tokens_per_s"]).all()
    assert (table["tokens_per_s"] <= table["tokens_per_s_high"]).all()
    entries = table.set_index(["strategy", "loss"])
    assert (table.loc[table["loss"] == "none", "ratio_to_none"] == 1).all()
    plain = entries.loc[("autoregressive", "none")]
    assert (
        table["ratio_to_autoregressive"] >= table["tokens_per_s_low"] / plain["tokens_per_s_high"]
    ).all()
    assert (
        table["ratio_to_autoregressive"] <= table["tokens_per_s_high"] / plain["tokens_per_s_low"]
    ).all()
    single = sv.generate(
        pair,
        prompts,
        strategy=sv.strategy("eqspec", bonus=False),
        batch_size=3,
        record=True,
        **asked,
    )
    counts = wasted(single)
    for name, value in counts.items():
        assert entries.loc[("eqspec", "bonus=False"), name] == pytest.approx(value)
    assert (
        entries.loc[("eqspec", "keep_cache=False"), "draft_read"]
        > entries.loc[("eqspec", "none"), "draft_read"]
    )
    assert (
        conditions
        | {"prompts": 10, "repetitions": 2, "window": 6, "num_draft_tokens": 3, "max_new_tokens": 8}
        == conditions
    )


def test_what_writes_another_text_has_no_speed(
    pair: sv.Pair, prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def sloppy(*arguments: Any) -> Any:
        for place, result in generate_interleaved(*arguments):
            yield place, replace(result, tokens=[[], *result.tokens[1:]]) if place == 1 else result

    monkeypatch.setattr("specviz.studies.losses.generate_interleaved", sloppy)
    table, _ = measure_losses(
        pair, prompts[:2], (2,), repetitions=2, num_draft_tokens=3, max_new_tokens=4, progress=False
    )
    assert table["tokens_per_s"].isna().tolist() == [place == 1 for place in range(len(table))]
    assert table["ratio_to_none"].isna().tolist() == [
        name == "eqspec" for name in table["strategy"]
    ]  # to that one


@pytest.mark.parametrize(
    ("arguments", "begins"),
    [
        ({"batch_sizes": ()}, "batch_sizes is empty; "),
        ({"batch_sizes": (4, 0)}, r"batch_sizes\[1\] must be an int >= 1, got 0; "),
        ({"repetitions": 0}, "repetitions must be an int >= 1, got 0; "),
        ({"max_new_tokens": 0}, "max_new_tokens must be an int >= 1, got 0; "),
    ],
    ids=str,
)
def test_what_cannot_be_measured(arguments: dict[str, Any], begins: str, pair: sv.Pair) -> None:
    with pytest.raises(ValueError, match=f"^{begins}"):
        measure_losses(pair, [[1]], **arguments)


def test_the_command_prints_and_writes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "losses.csv"
    arguments = [
        "--batch-sizes",
        "2",
        "--limit",
        "2",
        "--max-new-tokens",
        "3",
        "--repetitions",
        "1",
        "--device",
        "cpu",
    ]
    assert main(["study", "losses", *arguments, "--out", str(path)]) == 0
    printed, table = capsys.readouterr().out, pd.read_csv(path)
    assert table["loss"].tolist().count("as_published=True") == 2
    assert (table["exact_match"] == 1).all()
    assert f"written to {path} and {path.with_suffix('.json')}" in printed
    assert json.loads(path.with_suffix(".json").read_text())["repetitions"] == 1
    speeds = table.set_index(["strategy", "loss"])["tokens_per_s"]
    plain = speeds["autoregressive", "none"]
    np.testing.assert_allclose(
        table["ratio_to_autoregressive"], table["tokens_per_s"] / plain, rtol=0.02
    )  # as written, rounded
    lossless = table["strategy"].map(speeds.xs("none", level="loss"))
    np.testing.assert_allclose(table["ratio_to_none"], table["tokens_per_s"] / lossless, rtol=0.02)


def test_a_machine_that_slows_down_leaves_the_ratios_as_they_are() -> None:
    """Speeds of two repetitions; in the second one everything takes longer."""
    setups = [
        _Setup(4, sv.strategy("autoregressive"), speeds=[100, 50]),
        _Setup(4, sv.strategy("eqspec"), speeds=[150, 90]),
    ]
    setups.append(_Setup(4, sv.strategy("eqspec"), loss="bonus=False", speeds=[120, 60]))
    found = pd.DataFrame(_speeds(setups))
    assert found["ratio_to_autoregressive"].tolist() == pytest.approx([1, (1.5 + 1.8) / 2, 1.2])
    assert found["ratio_to_none"].tolist() == pytest.approx([1, 1, (120 / 150 + 60 / 90) / 2])
    assert found[["tokens_per_s_low", "tokens_per_s_high"]].to_numpy().tolist() == [
        [50, 100],
        [90, 150],
        [60, 120],
    ]
