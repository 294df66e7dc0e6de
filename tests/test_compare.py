"""`compare`: matches by hand, bugs that are named, near ties, and the noise behind the verdict."""

import copy
import functools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import published
import pytest
import torch
from conftest import EOS, VOCABULARY, decoded, make_pair, make_prompts
from tiny_run import changed

import specviz as sv
from specviz import Result
from specviz.checks.audit import reading
from specviz.checks.audit.duo import Duo
from specviz.checks.audit.output import from_record
from specviz.checks.equivalence import (
    CEILINGS,
    NEAR_TIE,
    TARGET,
    UNEXPLAINED,
    UNKNOWN,
    Evidence,
    divergence,
    judge,
    judge_all,
    partial_match,
)
from specviz.checks.evidence import noise_of
from specviz.checks.noise import measure_noise, score_text
from specviz.checks.scores import changes, distance, recorded_scores
from specviz.checks.violations import Violations
from specviz.engine.strategies import STRATEGIES

VALID = [name for name, kind in STRATEGIES.items() if kind().promises]
BROKEN = {
    "positions": ("eqspec", {"break_invariant": "positions", "from_round": 2}),
    "mask": ("eqspec", {"break_invariant": "mask", "from_round": 2}),
    "kv": ("inplace", {"break_invariant": "kv", "from_round": 2}),
    "bonus": ("masking", {"break_invariant": "bonus", "from_round": 2}),
    "column": ("masking", {"positions": "column"}),
    "repadding": ("repadding", {}),
    "ones": ("repadding", {"draft_bonus": False}),
}
# Where they are not called as the fault:
RULES = {"column": {"positions"}, "repadding": {"bonus", "positions"}, "ones": {"positions"}}
NEW_TOKENS = 12


def run(pair: sv.Pair, prompts: list, strategy: object, batch_size: int = 4, **more: Any) -> Result:
    asked = {"record": True, "max_new_tokens": NEW_TOKENS, "progress": False} | more
    return sv.generate(pair, prompts, strategy=strategy, batch_size=batch_size, **asked)


@pytest.fixture(scope="module")
def reference() -> Result:
    return run(make_pair("llama"), make_prompts(), "autoregressive", batch_size=1)


@functools.cache
def run_broken(fault: str) -> Result:
    name, options = BROKEN[fault]
    return run(make_pair("llama"), make_prompts(), sv.strategy(name, **options))


def without_record(result: Result, **changes: Any) -> Result:
    return replace(result, trace=None, **changes)


@pytest.mark.parametrize(
    ("tokens", "reference", "at", "partial"),
    [
        ([1, 2, 3], [1, 2, 3], None, 1.0),
        ([1, 2, 3, 4], [1, 2, 9, 4], 2, 0.5),
        ([9], [1, 2], 0, 0.0),
        ([1], [1, 2, 3, 4], 1, 0.25),
        ([1, 2, 3], [1, 2], 2, 1.0),  # all of the reference, and more
        ([], [], None, 1.0),
        ([1], [], 0, 0.0),
    ],
)
def test_first_divergence_and_partial_match(
    tokens: list[int], reference: list[int], at: int | None, partial: float
) -> None:
    assert divergence(tokens, reference) == at
    assert partial_match(tokens, reference) == partial


@pytest.mark.sweep(6)
@pytest.mark.parametrize("strategy", VALID)
def test_valid_strategies_match(
    strategy: str, pair: sv.Pair, prompts: list[list[int]], reference: Result
) -> None:
    comparison = sv.compare(run(pair, prompts, strategy), reference)
    assert comparison.unexplained == []
    assert comparison.prompts["first_divergence"].isna().all()
    assert set(comparison.prompts["cause"]) == set(comparison.prompts["measured_from"]) == {""}
    assert comparison.summary["first_violated"].item() == ""
    assert repr(comparison) == (
        f"<Comparison of {strategy} with autoregressive: 100.0% of 10 prompts exact, partial match "
        "100.0%; 0 near ties, 0 not explained by noise, 0 unknown>"
    )


@pytest.mark.sweep(4)
@pytest.mark.parametrize("fault", BROKEN)
def test_a_bug_is_a_bug_and_is_named(
    fault: str, pair: sv.Pair, reference: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the records, by the pair, and by both; only a record can name it."""
    broken, rules = run_broken(fault), RULES.get(fault, {fault})
    from_records, both = sv.compare(broken, reference), sv.compare(broken, reference, pair=pair)
    bare = sv.compare(without_record(broken), without_record(reference), pair=pair)
    diverging = ~from_records.prompts["exact"]
    assert diverging.sum() >= 2
    for found in (from_records, both, bare):
        assert set(found.prompts.loc[diverging, "cause"]) == {UNEXPLAINED}
        assert found.unexplained == found.prompts.index[diverging].tolist()
        assert f"{diverging.sum()} not explained by noise" in repr(found)
    for found in (from_records, both):
        assert set(found.prompts.loc[diverging, "violated"]) <= rules
        assert found.summary["first_violated"].item() in rules
    assert bare.prompts["violated"].isna().all()
    assert both.summary["noise"].item() == bare.summary["noise"].item() < 1e-4
    assert set(both.prompts.loc[diverging, "measured_from"]) == {"pair"}
    if fault in ("bonus", "repadding"):
        return
    # A bug that no invariant sees does not explain itself: it is off by far more than rounding.
    monkeypatch.setattr(reading, "check_invariants", lambda trace: Violations())
    blind = sv.compare(broken, reference).summary.iloc[0]
    if fault == "ones":  # the texts part at once, so there is nothing to take noise from
        assert math.isnan(blind["noise"])
    else:
        assert blind["noise"] > CEILINGS["float32"]
    assert blind["near_ties"] == 0
    assert blind["unexplained"] >= 1


def test_a_fault_in_one_row_is_found_there_alone(
    pair: sv.Pair, prompts: list[list[int]], reference: Result
) -> None:
    broken = sv.strategy("eqspec", break_invariant="mask", rows=[1], refill=False)
    comparison = sv.compare(run(pair, prompts, broken), reference)
    hit = set(range(1, len(prompts), 4))
    assert comparison.unexplained
    assert set(comparison.unexplained) <= hit
    assert set(comparison.prompts.index[comparison.prompts["violated"] != ""]) <= hit
    assert comparison.prompts.loc[[i for i in range(len(prompts)) if i not in hit], "exact"].all()


def twins(token: int, twin: int, factor: float) -> sv.Pair:
    """Return the tiny pair with the output row of `twin` set to `factor` times that of `token`.

    Where `token` is best, `twin` is next to it.
    """
    pair = copy.deepcopy(make_pair("llama"))
    with torch.no_grad():
        pair.target.lm_head.weight[twin] = pair.target.lm_head.weight[token] * factor
    return pair


@pytest.fixture(scope="module")
def tied(reference: Result) -> tuple[sv.Pair, Result, Result]:
    """Return a pair whose target has two equally likely tokens, and two runs.

    The first run takes the second token by rounding, the other one takes the first.
    """
    longest = max(reference.tokens, key=len)
    token = longest[6]
    unused = [other for other in range(VOCABULARY) if other not in (*longest, *EOS)]
    twin = next(other for other in unused if other > token)  # of equals, the argmax is the first
    equal, louder = twins(token, twin, 1.0), twins(token, twin, 1.0 + 6e-7)
    prompts = [reference.prompts[reference.tokens.index(longest)], [2, 7], [1, 8, 2, 8]]
    return equal, run(louder, prompts, "eqspec"), run(equal, prompts, "autoregressive", 1)


def test_a_near_tie_is_a_near_tie(tied: tuple[sv.Pair, Result, Result]) -> None:
    pair, ours, theirs = tied
    bare = without_record(ours), without_record(theirs)
    for runs, given in (((ours, theirs), None), (bare, pair), ((ours, theirs), pair)):
        comparison = sv.compare(*runs, pair=given)
        found = comparison.prompts.loc[0]
        measured_from = "records" if given is None else "pair"
        assert (found["cause"], found["measured_from"]) == (NEAR_TIE, measured_from)
        assert found["gap"] <= 2 * max(found["noise"], 1e-6)
        assert 0 < found["noise"] < 1e-4
        assert comparison.summary["near_ties"].item() == comparison.summary["divergences"].item()
        assert comparison.unexplained == []
    # Without anything to measure with, and with the reference's record alone.
    for other, measured_from in ((bare[1], ""), (theirs, "records")):
        found = sv.compare(bare[0], other).prompts.loc[0]
        assert (found["cause"], found["measured_from"]) == (UNKNOWN, measured_from)
        assert math.isnan(found["noise"])


@pytest.mark.parametrize("is_later", [False, True])
def test_neither_the_choice_nor_what_follows_may_lie_far_from_the_best(
    is_later: bool, tied: tuple[sv.Pair, Result, Result]
) -> None:
    """The gap is that of the chosen tokens, not that of the two best ones."""
    pair, ours, theirs = tied
    row, at = ours.tokens[0], sv.compare(ours, theirs).prompts.loc[0, "first_divergence"]
    worst = int(score_text(pair, (theirs.prompts[0], row), VOCABULARY).ids[at, -1])
    spoilt = [*row[:-1], (row[-1] + 1) % VOCABULARY] if is_later else [*row[:at], worst]
    bare = without_record(ours, tokens=[spoilt, *theirs.tokens[1:]])
    found = sv.compare(bare, without_record(theirs), pair=pair).prompts.loc[0]
    assert found["first_divergence"] == at
    assert found["cause"] == UNEXPLAINED
    assert (found["gap"] <= 2e-6) == (found["later_gap"] > 0.1) == is_later


def test_a_violated_invariant_is_the_cause_without_anything_to_measure_with(
    reference: Result,
) -> None:
    broken = run_broken("column")
    found = sv.compare(broken, without_record(reference)).prompts
    found = found[~found["exact"]]
    assert found[["gap", "noise"]].isna().all(axis=None)
    assert set(found["violated"]) == {"positions"}
    assert set(found["cause"]) == {UNEXPLAINED}
    bare = sv.compare(without_record(broken), without_record(reference)).prompts
    assert set(bare.loc[found.index, "cause"]) == {UNKNOWN}


def assert_large_gaps_are_bugs(found: pd.DataFrame) -> None:
    is_large = found["gap"] > 2 * CEILINGS["float32"]
    assert is_large.sum() >= 5
    assert found["cause"].tolist() == np.where(is_large, UNEXPLAINED, UNKNOWN).tolist()


def test_a_large_gap_is_no_near_tie_whatever_the_noise(
    pair: sv.Pair, reference: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With only the reference's record, the most noise that is believed of float32 decides.

    So it does where a model's batches are wrong and plain forwards measure more.
    """
    tokens = [[(row[0] + 1) % VOCABULARY, *row[1:]] for row in reference.tokens]
    assert_large_gaps_are_bugs(
        sv.compare(without_record(reference, tokens=tokens), reference).prompts
    )
    monkeypatch.setattr("specviz.checks.noise.measure_noise", lambda *_, **__: 0.5)
    theirs = without_record(reference)
    texts = zip(theirs.prompts, theirs.tokens, strict=True)
    second = [[int(score_text(pair, text).ids[0, 1])] for text in texts]
    assert_large_gaps_are_bugs(
        sv.compare(replace(theirs, tokens=second), theirs, pair=pair).prompts
    )


@pytest.mark.slow
def test_bfloat16_on_the_embedded_pair() -> None:
    """Batch 8 against batch 1: all divergences are near ties, by either measure.

    The noise is that of eight bits.
    """
    pair = sv.load_pair(device="cpu", dtype="bfloat16")
    prompts = [sv.load_prompts()[i] for i in (0, 3, 16, 29)]
    theirs = run(pair, prompts, "autoregressive", 1)
    ours = run(pair, prompts, "rollback", 8)
    for given in (None, pair):
        summary = sv.compare(ours, theirs, pair=given).summary.iloc[0]
        assert summary["near_ties"] == summary["divergences"]
    noise = measure_noise(pair, list(zip(theirs.prompts, theirs.tokens, strict=True)), [(8, 6)])
    assert 0.01 < noise < CEILINGS["bfloat16"]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_plain_forwards_say_what_the_model_says(name: str, prompts: list[list[int]]) -> None:
    """In all shapes, over prompts of 1 to 40 tokens and texts of different length.

    So they pad correctly: noise is none in float64, and little in float32.
    """
    pair, new = make_pair(name, torch.float64), [5, 0, 7, 7, 90]
    for prompt in prompts[:3]:
        said = score_text(pair, (prompt, new), 3)
        logits = pair.target(torch.tensor([prompt + new])).logits[0, len(prompt) - 1 : -1]
        logits = logits.float().log_softmax(-1).detach()
        assert said.ids.tolist() == logits.topk(3).indices.tolist()
        np.testing.assert_allclose(said.logprobs, logits.topk(3).values, atol=1e-5)
        np.testing.assert_allclose(said.chosen, logits[range(5), new], atol=1e-5)
    texts = [(prompt, prompts[(i + 3) % 10][:17]) for i, prompt in enumerate(prompts)]
    shapes = [(1, 1), (3, 2), (8, 6), (10, 1)]
    assert measure_noise(pair, texts, shapes, VOCABULARY) <= 4e-6
    assert 0 < measure_noise(make_pair(name), texts, shapes, VOCABULARY) < 1e-3


@pytest.mark.parametrize(
    ("evidence", "noise", "cause"),
    [
        (Evidence(gap=0.2), 0.1, NEAR_TIE),
        (Evidence(gap=0.2, deviation=0.2, later_gap=0.2), 0.1, NEAR_TIE),
        (Evidence(gap=0.22), 0.1, UNEXPLAINED),
        (Evidence(gap=0.0, deviation=0.22), 0.1, UNEXPLAINED),
        (Evidence(gap=0.0, later_gap=0.22), 0.1, UNEXPLAINED),
        (Evidence(gap=0.0, violated="mask"), 0.1, UNEXPLAINED),
        (Evidence(gap=0.0, fault="it just ends"), 0.1, UNEXPLAINED),
        (Evidence(), 0.1, UNKNOWN),
        (Evidence(deviation=0.22), 0.1, UNEXPLAINED),
        (Evidence(gap=0.0), math.nan, UNKNOWN),
        (Evidence(gap=0.9), math.nan, UNKNOWN),
        (Evidence(gap=1.1), math.nan, UNEXPLAINED),
        (Evidence(gap=0.0), 0.6, UNKNOWN),  # more than is believed
        (Evidence(gap=1.1), 0.6, UNEXPLAINED),
        (Evidence(gap=0.0), 0.0, NEAR_TIE),
        (Evidence(gap=1e-3), 0.0, UNEXPLAINED),
        (Evidence(gap=0.0, is_bound=True), 0.1, UNKNOWN),
        (Evidence(gap=0.0, is_open=True), 0.1, UNKNOWN),
        (Evidence(gap=0.0, unjudged="it is empty"), 0.1, UNKNOWN),
        (Evidence(gap=0.0, later_gap=0.3, is_retokenised=True), 0.1, UNKNOWN),
        (Evidence(gap=0.3, reference_gap=0.3, measured_from=TARGET), 0.1, UNKNOWN),
        (Evidence(gap=0.3, before=0.3, measured_from=TARGET), 0.1, UNKNOWN),
        (Evidence(gap=0.3, reference_gap=0.3), 0.1, UNEXPLAINED),
    ],
)
def test_cause(evidence: Evidence, noise: float, cause: str) -> None:
    assert judge(evidence, noise, ceiling=0.5)[0] == cause
    # A dtype that is not known has no ceiling.
    no_number = bool(evidence.violated or evidence.fault)
    assert (judge(evidence, noise, math.nan)[0] == UNEXPLAINED) == no_number


def test_no_near_ties_in_a_run_with_a_fault_of_unknown_place() -> None:
    tie, unlocated = Evidence(gap=0.0), Evidence(gap=1.0)
    for fault, cause in ((replace(unlocated, violated="kv"), NEAR_TIE), (unlocated, UNKNOWN)):
        found = judge_all([tie, None, fault], 0.1, 0.5)
        assert [each for each, _ in found] == [cause, "", UNEXPLAINED]


def test_what_was_recorded_of_a_request() -> None:
    """Token by token: request 0 of the tiny run gained 1, 2 and 3 tokens in its rounds."""
    ids = np.arange(6 * 3).reshape(6, 3, 1).astype(np.int32)
    scores = recorded_scores(changed("rows", target_top_ids=ids))
    assert [each.rounds.tolist() for each in scores] == [[0, 1, 1, 2, 2, 2], [0, 0, 0, 1], [2]]
    kept = [each.ids[:, 0].tolist() for each in scores]
    assert kept == [[0, 6, 7, 12, 13, 14], [3, 4, 5, 9], [15]]


def test_changes_distances_and_noise_by_hand() -> None:
    """A token that fell below all that are kept has changed by 1.0 at least."""
    before = {7: -1.0, 8: -2.0, 9: -3.0}
    assert [*changes(before, {8: -1.5, 7: -1.25, 1: -4.0})] == [0.25, 0.5]
    assert [*changes(before, {7: -1.0, 3: -2.0, 4: -3.0})] == [0.0]
    assert [*changes(before, {7: -1.0, 3: -2.0, 4: -3.0}, bounds=True)] == [0.0, 1.0]
    assert [*changes(before, {})] == [*changes({}, before)] == []
    place = {7: math.log(0.5), 8: math.log(0.3)}
    assert distance({}, [7]) is None
    assert distance(place, [7, 8]) == (pytest.approx(math.log(0.5 / 0.3)), False)
    assert distance(place, [7, 9]) == (pytest.approx(math.log(0.5 / 0.2)), True)
    for length, noise in ((15, math.nan), (16, 0.25)):
        records = (
            {"token_ids": [7] * length, "top_logprobs": [[[7, by], [8, -2.0]]] * length}
            for by in (-1.0, -1.25)
        )
        sides = [from_record("it", record) for record in records]
        tokens = sides[0].token_ids
        duo = Duo(*sides, (1,), tokens, tokens, "equal", None)
        assert noise_of([duo]) == pytest.approx(noise, nan_ok=True)


def test_an_output_that_just_ends_is_a_bug_unless_its_run_was_interrupted(
    pair: sv.Pair, reference: Result
) -> None:
    tokens = [row[:-1] if len(row) == NEW_TOKENS else row for row in reference.tokens]
    comparison = sv.compare(without_record(reference, tokens=tokens), reference, pair=pair)
    cut = [i for i, row in enumerate(reference.tokens) if len(row) == NEW_TOKENS]
    assert comparison.unexplained == cut != []
    assert comparison.prompts.loc[cut, "result_token"].isna().all()
    assert (comparison.prompts.loc[cut, "first_divergence"] == NEW_TOKENS - 1).all()
    alone = without_record(decoded("autoregressive", batch_size=1))
    for status, cause in (("interrupted", UNKNOWN), ("budget", UNEXPLAINED)):
        meta = alone.meta | {"status": [status, *alone.status[1:]]}
        short = replace(alone, tokens=[alone.tokens[0][:5], *alone.tokens[1:]], meta=meta)
        assert sv.compare(short, alone).prompts["cause"].tolist() == [cause, *[""] * 9]
        assert sv.compare(alone, short).prompts["cause"][0] == cause


def test_traces_are_compared_like_results(reference: Result) -> None:
    ours = run_broken("kv")
    whole, records = sv.compare(ours, reference), sv.compare(ours.trace, reference.trace)
    assert whole.prompts.equals(records.prompts)
    assert whole.summary.equals(records.summary)


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("coupling", "cause"), [("gumbel", UNKNOWN), ("rejection", "")])
def test_sampled_runs_are_compared_by_their_tokens(
    coupling: str, cause: str, pair: sv.Pair, prompts: list[list[int]]
) -> None:
    sampling = sv.SamplingParams(temperature=1.5, coupling=coupling)
    theirs = run(pair, prompts, "autoregressive", 1, sampling=sampling)
    tokens = [[(row[0] + 1) % VOCABULARY, *row[1:]] for row in theirs.tokens]
    comparison = sv.compare(without_record(theirs, tokens=tokens), theirs, pair=pair)
    assert set(comparison.prompts["cause"]) == {cause}
    assert comparison.summary["partial_match"].item() == 0.0
    same = sv.compare(run(pair, prompts, "eqspec", sampling=sampling), theirs)
    assert same.summary["unexplained"].item() == 0
    if coupling == "gumbel":
        assert same.summary["exact_match"].item() == 1.0


def test_two_deterministic_runs_have_no_noise(pair: sv.Pair, prompts: list[list[int]]) -> None:
    """So not even a near-best token is excused in one of them, pair or not."""
    theirs = run(pair, prompts, "autoregressive", 1, deterministic=True)
    broken = published.strategy("eqspec", break_invariant="bonus", rows=[1], refill=False)
    ours = run(pair, prompts, broken, deterministic=True)
    for given in (None, pair):
        comparison = sv.compare(ours, theirs, pair=given)
        assert comparison.unexplained
        assert comparison.summary[["noise", "near_ties"]].iloc[0].tolist() == [0.0, 0]


def two_prompts(**changes: Any) -> Result:
    """A result without a record; what is not its own goes into `meta`."""
    result = run(make_pair("llama"), [[5, 6], [7]], "inplace", record=False, max_new_tokens=2)
    own = {name: changes.pop(name) for name in ("prompts", "budgets") if name in changes}
    return replace(result, meta=result.meta | changes, **own)


SAMPLED = {"sampling": {"coupling": "gumbel"}}
FULLY = {"temperature": 0.8, "top_k": None, "top_p": None, "coupling": "gumbel"}


@pytest.mark.parametrize(
    ("ours", "theirs", "message"),
    [
        ({"prompts": [[5, 6]]}, {}, "the number of prompts differs: 1 in result, 2 in reference"),
        ({"prompts": [[5, 6], [1]]}, {}, r"prompts\[1\] differs: \[1\] in result, \[7\] in ref"),
        ({"budgets": [2, 3]}, {}, "max_new_tokens of prompt 1 differs: 3 in result, 2 in ref"),
        ({"target": "Other 1.0M"}, {}, "target differs: 'Other 1.0M' in result"),
        ({"vocabulary_size": 3}, {}, "vocabulary_size differs: 3 in result, 97 in reference"),
        ({"eos_token_ids": []}, {}, r"eos_token_ids differs: \[\] in result"),
        (SAMPLED, {}, "sampling differs: .* run both with the same sampling"),
        (
            {"sampling": FULLY | {"coupling": "rejection"}}, {"sampling": FULLY},
            "sampling differs: {'coupling': 'rejection'} in result, {'coupling': 'gumbel'} in ref",
        ),
        (SAMPLED | {"seed": 1}, SAMPLED, "seed differs: 1 in result, 0 in reference; run both"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_cannot_be_compared_is_named(
    ours: dict[str, Any], theirs: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        sv.compare(two_prompts(**ours), two_prompts(**theirs))


def test_neither_runs_nor_pairs_of_another_kind_are_taken(reference: Result) -> None:
    result, pair = two_prompts(), make_pair("llama")
    for runs, given, message in (
        (([], result), None, "result must be a Result or a Trace, got list; pass what specviz.gen"),
        ((result, None), None, "reference must be a Result or a Trace, got NoneType"),
        ((result, result), make_pair("gpt2"), "pair has target GPT2LMHeadModel"),
        ((result, result), make_pair("llama", torch.float64), "pair has dtype float64, but result"),
        ((result, result), pair.target, "pair must be a Pair"),
    ):
        with pytest.raises(ValueError, match=message):
            sv.compare(*runs, pair=given)
    named = without_record(reference, meta=reference.meta | {"strategy": "<script>"})
    page = sv.compare(named, reference)._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
