"""The published code's habits: each is an option, changes no text, and costs what records say."""

import itertools
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import generate_one_by_one, make_pair, make_prompts
from published import strategy as with_habits

import specviz as sv
from specviz import metrics
from specviz.engine.drafters import Drafter
from specviz.engine.strategies import Strategy
from specviz.record.replay import Replay
from specviz.record.schema import MODELS, PHASES

NEW_TOKENS = 24
NO_CACHE = {"levers": sv.Levers(keep_draft=False)}
FALLBACK_RUNS = [
    {"window": 6, "fallback": fallback, "max_wait": 2}
    for fallback in ("realign", "partial", "wait")
]
BUDGETS = (1, 2, 3, 5, 24, 7, 24, 4, 6, 1)
KEY = ("round", "request", "index")
LOSSY: list[tuple[str, dict[str, Any]]] = [
    *((name, {"bonus": False}) for name in ("eqspec", "exspec")),
    *((name, {"shrink_to_budget": True}) for name in ("eqspec", "exspec")),
    ("eqspec", {"refill": False, "bonus": False}),
    ("eqspec", {"refill": False, "shrink_to_budget": True}),
    *((name, {"as_published": True}) for name in ("eqspec", "exspec")),
    *(("exspec", options | {"drop_cache": True}) for options in FALLBACK_RUNS),
    *(("exspec", options | {"group_by": "padded"}) for options in FALLBACK_RUNS),
    ("exspec", {"window": 6, "as_published": True}),
    ("exspec", {"window": 6, "as_published": True, "sort_prompts": True}),
]
# The batch size, K and budgets of a run.
SIZES: list[tuple[int, int, tuple[int, ...]]] = [
    (1, 1, BUDGETS),
    (3, 5, BUDGETS),
    (6, 2, (NEW_TOKENS,) * 10),
]


def lossy_runs() -> list[Any]:
    """Each loss with each of SIZES; the fast tests have one of the three, in turn."""
    found = []
    for (place, loss), (i, size) in itertools.product(enumerate(LOSSY), enumerate(SIZES)):
        # Each size, and so each B and K, with and without K/V of the draft.
        levers = sv.Levers(keep_draft=(place + i) % 2 == 0)
        name = "-".join([loss[0], *map(str, loss[1].values()), f"B={size[0]}"])
        marks = [] if (place + i) % 3 == 0 else [pytest.mark.slow]
        found.append(pytest.param(loss, size, levers, id=name, marks=marks))
    return found


@cache
def run(
    strategy: str | Strategy, drafter: str | Drafter = "model", name: str = "llama", **options: Any
) -> sv.Result:
    """Record a run; the same one is made once."""
    given = {"batch_size": 4, "max_new_tokens": NEW_TOKENS, "record": True} | options
    return sv.generate(
        make_pair(name),
        make_prompts(),
        strategy=strategy,
        drafter=drafter,
        progress=False,
        **given,
    )


def wasted(result: sv.Result) -> pd.Series:
    assert result.trace is not None
    return metrics.waste(result.trace).iloc[0]


# ---- the text and the record ----


@pytest.mark.sweep(40)
@pytest.mark.parametrize(("loss", "size", "levers"), lossy_runs())
def test_no_loss_changes_the_text_or_breaks_an_invariant(
    loss: tuple[str, dict[str, Any]], size: tuple[int, int, tuple[int, ...]], levers: sv.Levers
) -> None:
    """Each loss runs with each B and K, and each of these with and without K/V of the draft."""
    name, options = loss
    batch_size, k, budgets = size
    strategy = with_habits(name, **options)
    whole = generate_one_by_one("llama", torch.float32, NEW_TOKENS)
    assert strategy.promises
    lengths = {"num_draft_tokens": k, "max_new_tokens": budgets}
    result = run(strategy, batch_size=batch_size, levers=levers, **lengths)
    assert result.tokens == [row[:n] for row, n in zip(whole, budgets, strict=True)]
    assert result.trace is not None
    assert sv.check_invariants(result.trace, deep=True, pair=make_pair("llama")) == []
    assert len(list(Replay(result.trace).frames())) == result.trace.num_rounds * len(PHASES)
    if batch_size == 3:
        sv.step_through(result.trace)


@pytest.mark.sweep(8)
@pytest.mark.parametrize(
    ("name", "strategy", "batch_size"),
    [
        ("llama", "eqspec", 8),
        pytest.param("llama", "exspec", 1, marks=pytest.mark.slow),
        pytest.param("qwen3", "eqspec", 1, marks=pytest.mark.slow),
        ("qwen3", "exspec", 8),
        ("glm4", "eqspec", 4),
        pytest.param("glm4", "exspec", 8, marks=pytest.mark.slow),
        pytest.param("gpt2", "eqspec", 8, marks=pytest.mark.slow),
        ("gpt2", "exspec", 4),
    ],
)
def test_as_published_writes_the_same_text_with_every_class(
    name: str, strategy: str, batch_size: int
) -> None:
    published = with_habits(strategy, as_published=True)
    result = run(published, name=name, batch_size=batch_size, record=False)
    assert result.tokens == generate_one_by_one(name, torch.float32, NEW_TOKENS)


@pytest.mark.sweep(6)
@pytest.mark.parametrize(
    ("name", "loss"), [("eqspec", "bonus"), ("eqspec", "as_published"), ("exspec", "as_published")]
)
def test_sampled_texts_are_the_same_under_gumbel(name: str, loss: str) -> None:
    gumbel = sv.SamplingParams(0.9, coupling="gumbel")
    options: dict[str, Any] = {"sampling": gumbel, "seed": 5, "record": False}
    lossy = run(with_habits(name, **{loss: loss == "as_published"}), **options)
    assert lossy.tokens == run("autoregressive", **options).tokens


# ---- what each one costs ----


@pytest.mark.slow
def test_without_a_bonus_a_full_acceptance_gains_k() -> None:
    result = run(with_habits("eqspec", bonus=False), num_draft_tokens=2)
    rows = result.rows
    whole = (rows["accepted"] == 2) & (rows["finished"] == 0) & (rows["gained"] > 0)
    assert whole.any()
    assert set(rows["gained"][whole]) == {2}
    assert set(rows["discarded"][whole]) == {1}
    rejected = (rows["accepted"] < 2) & (rows["finished"] == 0) & (rows["gained"] > 0)
    assert (rows["gained"][rejected] == rows["accepted"][rejected] + 1).all()
    assert len(result.rounds["batch"]) > len(run("eqspec", num_draft_tokens=2).rounds["batch"])


@pytest.mark.slow
def test_without_a_bonus_one_draft_a_round_gains_nothing() -> None:
    plain = run("autoregressive", batch_size=1)
    lossy = run(with_habits("eqspec", bonus=False), batch_size=1, num_draft_tokens=1)
    assert len(lossy.rounds["batch"]) == len(plain.rounds["batch"])
    assert lossy.tokens == plain.tokens


def test_k_shrinks_to_the_smallest_budget_of_the_batch() -> None:
    result = run(with_habits("eqspec", shrink_to_budget=True), max_new_tokens=BUDGETS)
    at_work = metrics.rows(result).query("gained > 0")
    ends = np.array(BUDGETS) + [len(prompt) for prompt in make_prompts()]
    left = ends[at_work["request"]] - at_work["length"]
    smallest = left.groupby(at_work["round"]).min().clip(upper=5)
    assert (at_work["drafted"] == smallest[at_work["round"]].to_numpy()).all()
    assert set(at_work["drafted"]) >= {1, 5}
    assert wasted(result)["mean_draft_tokens"] < 5


@pytest.mark.slow
def test_a_draft_without_a_cache_reads_everything_again() -> None:
    kept = run("eqspec")
    lossy = run("eqspec", **NO_CACHE)
    assert wasted(kept)["draft_read"] <= 1
    assert wasted(lossy)["draft_read"] > 2
    assert lossy.trace is not None
    draft = lossy.trace.feeds["model"] == MODELS.index("draft")
    assert not (draft & (lossy.trace.feeds["phase"] == PHASES.index("schedule"))).any()
    assert not (lossy.trace.moves["model"] == MODELS.index("draft")).any()
    feeds = pd.DataFrame({name: lossy.trace.feeds[name][draft] for name in KEY})
    fed = set(feeds.itertuples(index=False, name=None))
    for row in metrics.rows(lossy).itertuples():
        assert {(row.round, row.request, index) for index in range(row.length)} <= fed
    assert lossy.meta["keep_draft"] is False


@pytest.mark.slow
def test_a_deep_check_still_sees_what_the_target_holds() -> None:
    """That a draft keeps nothing must not hide a broken target."""
    broken = run(with_habits("eqspec", break_invariant="kv", from_round=1), **NO_CACHE)
    assert broken.trace is not None
    assert {found.model for found in sv.check_invariants(broken.trace)} == {"target"}


@pytest.mark.slow
def test_finished_rows_stay_in_a_static_batch() -> None:
    assert wasted(run(with_habits("eqspec", refill=False)))["idle_rows"] > 0
    assert wasted(run("eqspec"))["idle_rows"] == 0


@pytest.mark.slow
def test_a_fallback_that_drops_the_cache_reads_whole_batches_again() -> None:
    kept = run(with_habits("exspec", window=6))
    lossy = run(with_habits("exspec", window=6, drop_cache=True))
    assert wasted(kept)["target_read"] == 1
    assert wasted(lossy)["target_read"] > 1.5
    trace = lossy.trace
    assert trace is not None
    feeds = pd.DataFrame({name: trace.feeds[name] for name in (*KEY, "phase", "model")})
    of_target = feeds["model"] == MODELS.index("target")
    read = feeds[of_target & (feeds["phase"] == PHASES.index("schedule"))]
    rows = metrics.rows(lossy)
    prompt_tokens = rows["request"].map(lambda request: len(make_prompts()[request]))
    for number, requests in read.groupby("round")["request"].agg(set).items():
        here = rows["round"] == number
        if trace.meta["decisions"][trace.rounds["decision"][number]] != "realigned":
            here &= rows["length"] == prompt_tokens  # those that have just entered
        assert requests <= set(rows["request"][here])
        # Of a prompt of one token nothing is to be read.
        assert set(rows["request"][here & (prompt_tokens > 1)]) <= requests


@pytest.mark.slow
def test_groups_by_padded_length_end_in_one_column_and_are_ragged() -> None:
    """A grouped round may hold rows of different length, and moves nothing."""
    trace = run(with_habits("exspec", window=10, group_by="padded"), batch_size=2).trace
    assert trace is not None
    grouped = np.flatnonzero(trace.rounds["decision"] == trace.meta["decisions"].index("grouped"))
    rows = pd.DataFrame({name: trace.rows[name] for name in ("round", "length", "pending")})
    different = rows[rows["round"].isin(grouped)].groupby("round").nunique()
    assert (different["length"] > 1).any()
    assert (different["pending"] == 1).all()
    within = trace.moves["from_row"] == trace.moves["to_row"]
    assert not set(trace.moves["round"][within]) & set(grouped.tolist())


# ---- as published ----


def test_as_published_sets_them_all() -> None:
    eqspec = with_habits("eqspec", as_published=True).options
    exspec = with_habits("exspec", as_published=True).options
    both = {"bonus": False, "shrink_to_budget": True}
    assert eqspec == both | {"refill": False, "as_published": True}
    expected = both | {"refill": True, "drop_cache": True, "group_by": "padded"}
    assert exspec | expected == exspec
    assert with_habits("eqspec", as_published=True, bonus=True).options == eqspec


def test_as_published_no_draft_kv_is_kept() -> None:
    strategy = with_habits("eqspec", as_published=True)
    assert run(strategy, max_new_tokens=2).meta["keep_draft"] is False
    assert run("eqspec", max_new_tokens=2).meta["keep_draft"] is True
