"""Plans: never above their budget, by the memory model and by what a run's tensors hold."""

from typing import Any

import pytest
import torch
from conftest import check_refusal, generate, generate_one_by_one, make_prompts
from conftest import make_pair as make_tiny_pair
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from test_memory import make_pair
from test_memory import make_prompts as make_long_prompts

import specviz as sv
from specviz.costs.memory import memory, peak_bytes
from specviz.generation.memory import shape_of

PAIR = make_pair()
WEIGHTS = sum(p.nbytes for model in (PAIR.target, PAIR.draft) for p in model.parameters())


def measured_bytes(pair: sv.Pair, prompts: list[list[int]], **run: Any) -> int:
    """The most bytes that a run's tensors held at once, without the weights."""
    models = [pair.target, pair.draft, *pair.heads.values()]
    generate(pair, [[1, 2]], max_new_tokens=1)  # the trial of the models comes before
    with sv.PeakMeter(models) as meter:
        generate(pair, prompts, num_threads=1, **run)
    return meter.peak_bytes


RUNS = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 9),
        "num_draft_tokens": st.integers(1, 6),
        "max_new_tokens": st.integers(1, 20),
        "strategy": st.sampled_from(["inplace", "eqspec", "masking", "rollback", "autoregressive"]),
        "drafter": st.sampled_from(["model", "lookup"]),
        "levers": st.sampled_from([None, sv.Levers(keep_draft=False)]),
    }
)
LATE: dict[str, Any] = {  # prompts that enter later see all columns of the other rows
    "batch_size": 2,
    "num_draft_tokens": 6,
    "max_new_tokens": 5,
    "strategy": "masking",
    "drafter": "lookup",
    "levers": None,
}


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(run=RUNS, longest=st.integers(8, 120), count=st.integers(1, 8), spare=st.floats(0, 3))
def test_a_plan_never_exceeds_its_budget(
    run: dict[str, Any], longest: int, count: int, spare: float
) -> None:
    """And what it says it takes is what the memory model says."""
    prompts = make_long_prompts(longest, count)
    least = sv.plan("1GB", PAIR, prompts, **run).least_bytes
    plan = sv.plan(int(least * (1 + spare / 10)), PAIR, prompts, **run)
    assert plan.least_bytes == least <= plan.peak_bytes <= plan.budget_bytes
    assert plan.options["batch_size"] <= run["batch_size"]
    assert plan.options["num_draft_tokens"] <= run["num_draft_tokens"]
    assert peak_bytes(plan.parts) == plan.peak_bytes
    with pytest.raises(ValueError, match=f"budget must be at least .*{least} bytes"):
        sv.plan(least - 1, PAIR, prompts, **run)
    drafts = run["drafter"] == "model" and run["strategy"] != "autoregressive"
    modelled = memory(
        shape_of(PAIR.target),
        shape_of(PAIR.draft) if drafts else None,
        sv.strategy(run["strategy"]),
        dtype="float32",
        prompt_tokens=longest,
        max_new_tokens=run["max_new_tokens"],
        requests=count,
        **plan.options,
    )
    beside = peak_bytes(modelled) - plan.weight_bytes
    assert plan.peak_bytes == pytest.approx(plan.weight_bytes + 1.02 * beside, abs=2)


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(run=RUNS, longest=st.integers(20, 120), spare=st.floats(0, 2))
@example(run=LATE, longest=35, spare=0.4375)
def test_no_run_takes_more_than_its_budget(run: dict[str, Any], longest: int, spare: float) -> None:
    """All tensors of a run, while it runs, on a pair whose weights count little."""
    prompts = make_long_prompts(longest, 6)
    least = sv.plan("1GB", PAIR, prompts, **run).least_bytes
    budget = int(least * (1 + spare / 10))
    plan = sv.plan(budget, PAIR, prompts, **run)
    found = measured_bytes(PAIR, prompts, memory_budget=budget, **run)
    assert plan.weight_bytes + found <= budget


EQUAL = [[(7 * i + j) % 900 for j in range(60)] for i in range(6)]


@pytest.mark.sweep(12)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"drafter": "lookup"},
        {"levers": sv.Levers(keep_draft=False)},
        {"strategy": "eqspec"},
        {"strategy": "masking"},
        {"strategy": "autoregressive"},
    ],
    ids=str,
)
@pytest.mark.parametrize("budget", ["least", "1GB"])
def test_the_measured_peak_is_within_2_per_cent_of_the_plan(
    options: dict[str, Any], budget: str
) -> None:
    """On prompts of one length, that write their whole budgets. The plan includes its margin."""
    pair = make_pair(scale=2, vocabulary=4999)
    run = {"max_new_tokens": 12, "num_draft_tokens": 4, "batch_size": 6} | options
    least = sv.plan("1GB", pair, EQUAL, **run).least_bytes
    wanted = least if budget == "least" else budget
    plan = sv.plan(wanted, pair, EQUAL, **run)
    found = measured_bytes(pair, EQUAL, memory_budget=wanted, **run)
    modelled = (plan.peak_bytes - plan.weight_bytes) / 1.02
    assert found == pytest.approx(modelled, rel=0.02)


@pytest.mark.sweep(8)
@pytest.mark.parametrize("strategy", ["inplace", "eqspec", "autoregressive"])
def test_the_text_is_the_same_under_any_budget(strategy: str) -> None:
    pair = make_tiny_pair("llama")
    run = {"strategy": strategy, "batch_size": 4, "num_draft_tokens": 4, "max_new_tokens": 24}
    least = sv.plan("1GB", pair, make_prompts(), **run).least_bytes
    for budget in (least, int(1.1 * least), 2 * least):
        result = generate(pair, make_prompts(), memory_budget=budget, **run)
        assert result.tokens == generate_one_by_one()
        assert isinstance(result.plan, sv.Plan)
        assert result.meta["batch_size"] == result.plan.options["batch_size"]
    assert generate(pair, make_prompts(), **run).plan is None


def test_a_plan_lowers_no_more_than_it_must() -> None:
    """Rows first, with prompts in chunks; K, and then the draft's K/V, for the only row."""
    prompts = make_long_prompts(60, 8)
    run = {"batch_size": 8, "num_draft_tokens": 4}
    most = sv.plan("1GB", PAIR, prompts, **run)
    assert most.options == run | {"levers": sv.Levers(state="states")}
    assert repr(most).startswith("<Plan for 1 GB: B = 8, K = 4, ")
    assert most.weight_bytes == WEIGHTS
    sizes = range(most.least_bytes, most.peak_bytes, 20_000)
    plans = [sv.plan(size, PAIR, prompts, **run).options for size in sizes]
    order = [(p["levers"].keep_draft, p["num_draft_tokens"], p["batch_size"]) for p in plans]
    assert order == sorted(order)
    assert plans[0]["levers"] == sv.Levers(prefill_tokens=32, keep_draft=False, state="states")
    assert plans[0]["num_draft_tokens"] == plans[0]["batch_size"] == 1
    assert {k for _, k, rows in order if rows > 1} == {4}
    levers = sv.Levers(prefill_tokens=17, keep_draft=False, state="states")  # these stay
    assert sv.plan("1GB", PAIR, prompts, levers=levers).options["levers"] == levers


def test_decoding_without_drafts_fills_the_budget_of_a_draft_with_rows() -> None:
    """Its memory holds no weights that it does not use."""
    prompts = make_long_prompts(60)
    run = {"strategy": "autoregressive", "batch_size": 6, "max_new_tokens": 6}
    most = sv.plan("1GB", PAIR, prompts, **run)
    assert most.weight_bytes == sum(p.nbytes for p in PAIR.target.parameters())
    least = sv.plan("1GB", PAIR, prompts, batch_size=1, max_new_tokens=6).least_bytes
    assert sv.plan(least, PAIR, prompts, **run).options["batch_size"] > 1


def test_sizes() -> None:
    for size, count in (("400MB", 4e8), ("1.5 GiB", 1.5 * 2**30), (" 90000kB ", 9e7), (10**8, 1e8)):
        assert sv.plan(size, PAIR, [[1]]).budget_bytes == count
    for wrong in (0, "", "MB", "4 XB", "1e9", "-4MB", None, True, float("nan"), "9" * 40, [1]):
        check_refusal(lambda wrong=wrong: sv.plan(wrong, PAIR, [[1]]), "budget must be a size")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampling": sv.SamplingParams(1.0)}, "sampling=SamplingParams"),
        ({"deterministic": True}, "deterministic=True needs memory"),
        ({"graphs": None}, "graphs=None needs memory"),
        ({"lanes": 2}, "lanes=2 needs memory"),
        ({"selector": "tetris"}, "selector='tetris' needs memory"),
        ({"drafter": sv.drafter("tree", depth=5)}, "drafter=TreeDrafter"),
        ({"num_draft_tokens": "auto"}, "num_draft_tokens='auto' needs memory"),
        ({"record": True}, "record=True keeps copies"),
        ({"memory_budget": "1kB"}, "memory_budget must be at least"),
    ],
)
def test_what_cannot_be_planned_is_refused(options: dict[str, Any], message: str) -> None:
    run = {"memory_budget": "1GB"} | options
    check_refusal(lambda: generate(make_tiny_pair("llama"), make_prompts(), **run), message)


def test_a_meter_counts_what_lives() -> None:
    with sv.PeakMeter() as meter:
        first = torch.zeros(1000)
        del first
        second = torch.zeros(250, dtype=torch.float64)
        third = second[:10]  # a view holds nothing of its own
        assert third.sum() == 0
    assert 4000 <= meter.peak_bytes <= 4100
    buffers = sum(b.nbytes for model in (PAIR.target, PAIR.draft) for b in model.buffers())
    assert sv.PeakMeter([PAIR.target, PAIR.draft]).weight_bytes == WEIGHTS + buffers
    check_refusal(lambda: sv.PeakMeter(PAIR.target), "models must be a list")


@pytest.mark.gpu
@pytest.mark.parametrize("share", [1.0, 0.6, 0.35])
def test_no_run_exceeds_its_budget_on_a_gpu(share: float) -> None:
    """What the allocator was asked for, beside what is there before the run."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    pair = make_pair(torch.bfloat16, 16, 32_000, "cuda:0")
    prompts = make_long_prompts(200, 16)
    run = {"batch_size": 16, "max_new_tokens": 64}
    most = sv.plan("100GB", pair, prompts, **run)
    beside = most.peak_bytes - most.weight_bytes
    budget = max(int(most.weight_bytes + share * beside), most.least_bytes)
    expected = generate(pair, prompts, **run).tokens
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    torch.cuda.reset_peak_memory_stats()
    result = generate(pair, prompts, memory_budget=budget, **run)
    peak = torch.cuda.memory_stats()["requested_bytes.all.peak"]
    assert result.plan.weight_bytes + peak - before <= budget
    same = sum(found == other for found, other in zip(result.tokens, expected, strict=True))
    assert same >= 8  # bfloat16 rounds otherwise in other batches, at near ties
