"""`audit`: near ties and faults under teacher forcing and without a target; its totals."""

import functools
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import (
    NEW_TOKENS,
    check_refusal,
    decoded,
    generate,
    generate_alone,
    generate_one_by_one,
    make_pair,
    make_prompts,
)

import specviz as sv
from specviz.checks.audit.report import against_control, make_totals
from specviz.checks.equivalence import NOT_MEASURED
from specviz.checks.noise import score_text

TIES = [[5, -0.7], [6, -0.7001], [7, -9.0]]
CLEAR = [[5, -0.1], [6, -2.5], [7, -9.0]]


def reference() -> list[dict[str, Any]]:
    """What transformers writes after each of `make_prompts()`, with the prompts."""
    outputs = zip(make_prompts(), generate_one_by_one(), strict=True)
    return [{"prompt": prompt, "token_ids": tokens} for prompt, tokens in outputs]


def changed(index: int, at: int, tokens: list[int]) -> list[dict[str, Any]]:
    """The reference with other tokens from `at` on in one output."""
    outputs = reference()
    outputs[index]["token_ids"] = [*outputs[index]["token_ids"][:at], *tokens]
    return outputs


@functools.cache
def a_tie() -> tuple[tuple[int, ...], tuple[int, ...], int, tuple[int, ...]]:
    """A prompt, its text in bfloat16, a place where two tokens are all but tied, and a text that
    takes the other token there and goes on as the target would, to no EOS.
    """
    pair = make_pair("llama", torch.bfloat16)
    places = []
    for prompt in make_prompts():
        (tokens,) = generate_alone(pair.target, [prompt], NEW_TOKENS)
        scores = score_text(pair, (prompt, tokens))
        gaps = scores.logprobs[:, 0] - scores.logprobs[:, 1]
        at = int(np.argmin(gaps))
        places.append((float(gaps[at]), prompt, tokens, at, scores.ids[at]))
    for gap, prompt, tokens, at, ids in sorted(places, key=lambda place: place[0]):
        assert gap < 0.05
        other = int(ids[1] if ids[0] == tokens[at] else ids[0])
        start = [*prompt, *tokens[:at], other]
        (rest,) = generate_alone(pair.target, [start], NEW_TOKENS)
        # Rounding, and so where a text ends, depends on the machine.
        if len(rest) == NEW_TOKENS:
            return tuple(prompt), tuple(tokens), at, (*tokens[:at], other, *rest)
    raise AssertionError("every text ends with an EOS")


def sides(text: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    prompt, tokens, _, _ = a_tie()
    return (
        [{"prompt": prompt, "token_ids": tokens}],
        [{"prompt": prompt, "token_ids": text, "max_tokens": len(text)}],
    )


def test_equal_texts_are_right() -> None:
    candidate = decoded("inplace")
    found = sv.audit(reference(), candidate, make_pair("llama"))
    assert str(found).splitlines()[0] == found.verdict == "right: all 10 texts are equal"
    assert found.passed
    assert found.unexplained == []
    assert found.totals.loc["equal", ["count", "total", "share"]].tolist() == [10, 10, 1]
    assert found.totals.loc["divergences that a tie explains", "total"] == 0
    assert found.notes == ()


def test_a_wrong_bonus_is_found_where_it_stands() -> None:
    strategy = sv.strategy("inplace", break_invariant="bonus", rows=[2], from_round=2)
    candidate = decoded(strategy)
    right = generate_one_by_one()
    wrong = [i for i, tokens in enumerate(candidate.tokens) if tokens != right[i]]
    assert wrong
    recorded = sv.audit(reference(), candidate, make_pair("llama"))
    begins = f"wrong: the run's record violates the invariant 'bonus' in {len(wrong)} of 10 texts"
    assert recorded.verdict.startswith(begins)
    found = sv.audit(reference(), replace(candidate, trace=None), make_pair("llama"))
    assert not found.passed
    assert found.unexplained == recorded.unexplained == wrong
    entry = found.frame().loc[wrong[0]]
    at = entry["first_divergence"]
    ours, theirs = candidate.tokens[wrong[0]], right[wrong[0]]
    assert ours[:at] == theirs[:at]
    assert (entry["candidate_token"], entry["reference_token"]) == (ours[at], theirs[at])
    # What the target itself says of the two tokens, computed by hand.
    prompt = make_prompts()[wrong[0]]
    with torch.inference_mode():
        logits = make_pair("llama").target(torch.tensor([[*prompt, *ours[:at]]])).logits[0, -1]
    logprobs = logits.float().log_softmax(-1)
    assert entry["gap"] == pytest.approx(float(logprobs.max() - logprobs[ours[at]]), abs=1e-4)
    assert entry["reference_gap"] == pytest.approx(0, abs=1e-5)
    words = rf"{len(wrong)} unexplained divergences? in 10 texts, the first in prompt {wrong[0]} at"
    assert re.match(rf"{words} token {at}, with a gap of [0-9.]+; noise explains", found.verdict)


def test_a_tie_in_bfloat16_is_explained_but_not_what_follows() -> None:
    prompt, _, at, text = a_tie()
    pair = make_pair("llama", torch.bfloat16)
    found = sv.audit(*sides(text), pair)
    entry = found.prompts.loc[0]
    assert (entry["verdict"], entry["first_divergence"]) == ("near tie", at)
    assert entry["gap"] <= found.limit == pytest.approx(2.1 * found.noise, abs=1e-5)
    assert found.passed
    assert found.verdict.startswith("near ties only: 1 of 1 texts diverge, with a gap of ")
    assert found.totals.loc["divergences that a tie explains", "share"] == 1
    # A fault behind the tie.
    worst = int(score_text(pair, (prompt, text), leading=97).ids[-1, -1])
    found = sv.audit(*sides([*text[:-1], worst]), pair)
    entry = found.prompts.loc[0]
    assert (entry["verdict"], entry["first_divergence"]) == ("unexplained", at)
    assert entry["gap"] <= found.limit < entry["later_gap"]
    assert entry["later_token"] == len(text) - 1
    assert f"its token {len(text) - 1} lies" in found.verdict


def test_compare_and_audit_agree() -> None:
    """On near ties beside a fault, in bfloat16, with and without records and the pair."""
    pair, how = make_pair("llama", torch.bfloat16), {"record": True, "max_new_tokens": 12}
    theirs = generate(pair, make_prompts(), strategy="autoregressive", batch_size=1, **how)
    broken = sv.strategy("eqspec", break_invariant="mask", rows=[1])
    ours = generate(pair, make_prompts(), strategy=broken, batch_size=4, **how)
    words = {"": "equal", "not explained by noise": "unexplained"}
    for result in (ours, replace(ours, trace=None)):
        for target in (None, pair):
            causes = sv.compare(result, theirs, pair=target).prompts["cause"]
            audited = sv.audit(theirs, result, target).prompts
            assert audited["verdict"].tolist() == [words.get(each, each) for each in causes]
            # A fault that no record locates leaves no near tie.
            assert ("near tie" in set(causes)) == (result.trace is not None)


@pytest.mark.slow
def test_real_runs_in_bfloat16_differ_by_ties_alone() -> None:
    pair = sv.load_pair(device="cpu", dtype="bfloat16")
    prompts = sv.load_prompts(limit=10)
    how = {"max_new_tokens": 20}
    alone = generate(pair, prompts, strategy="autoregressive", batch_size=1, **how)
    candidate = generate(pair, prompts, strategy="inplace", batch_size=8, **how)
    control = generate(pair, prompts, strategy="autoregressive", batch_size=8, **how)
    found = sv.audit(alone, candidate, pair, control)
    assert set(found.prompts["verdict"]) <= {"equal", "near tie"}
    assert found.control is not None
    assert not found.control.is_more
    assert "It is not shown that the candidate diverges more often" in repr(found)
    # The same, as texts: read again by the tokenizer.
    sides = []
    for run in (alone, candidate):
        ends = zip(run.texts, run.status, strict=True)
        sides.append([{"text": t, "finish_reason": end, "max_tokens": 20} for t, end in ends])
    texts = sv.audit(*sides, pair, prompts=prompts)
    assert texts.passed
    assert "10 of 10 outputs are texts" in texts.notes[0]


def test_a_reference_that_is_not_the_targets_is_said() -> None:
    wrong = changed(3, 4, [int(score_text(make_pair("llama"), place()).ids[4, -1])])
    found = sv.audit(wrong, reference(), make_pair("llama"))
    entry = found.prompts.loc[3]
    assert entry["verdict"] == "unknown"
    assert entry["reference_gap"] > found.limit >= entry["candidate_gap"]
    words = (
        "not judged: the reference is not what this target writes in 1 of 10 texts, the first in"
    )
    assert found.verdict == f"{words} prompt 3 at token 4; noise explains {found.limit:.3g}"
    assert "not what the target writes in 1 of 1 diverging texts (prompt 3, token 4" in str(found)


def place() -> tuple[list[int], list[int]]:
    return make_prompts()[3], generate_one_by_one()[3]


def output(token: int, top: Any = None, chosen: float | None = None) -> dict[str, Any]:
    """An output of 41 tokens, the last of which is `token`.

    top: what is likeliest there; chosen: the token's log-probability, if no others are known.
    """
    record: dict[str, Any] = {"prompt": [1], "token_ids": [3] * 40 + [token]}
    if top is not None:
        record["top_logprobs"] = [[[3, -0.2], [9, -3.0]]] * 40 + [top]
    if chosen is not None:
        record["logprobs"] = [-0.2] * 40 + [chosen]
    return record


def noisy(record: dict[str, Any], by: float) -> dict[str, Any]:
    """The same with log-probabilities that differ by a little before the last token."""
    last = record["top_logprobs"][-1]
    return {**record, "top_logprobs": [[[3, -0.2 - by], [9, -3.0 - by]]] * 40 + [last]}


@pytest.mark.parametrize(
    ("theirs", "ours", "verdict"),
    [
        (output(5, TIES), noisy(output(6, TIES), 0.001), "near tie"),
        (output(5, CLEAR), noisy(output(6, TIES), 0.001), "unexplained"),
        # The candidate's own numbers speak against it.
        (output(5, TIES), noisy(output(6, CLEAR), 0.001), "unexplained"),
        # Where the texts part, the change is that of a fault, if there is one, and no noise.
        (
            output(5, [[5, -0.3], [6, -1.4]]),
            noisy(output(6, [[6, -0.7], [5, -0.9]]), 0.001),
            "unexplained",
        ),
        # No more noise is believed than bfloat16 has: 2.4 is beyond it, and 0.9 may be noise.
        (output(5, CLEAR), noisy(output(6, CLEAR), 2.0), "unexplained"),
        (output(5, [[5, -0.4], [6, -1.3]]), noisy(output(6, [[6, -0.4]]), 2.0), "unknown"),
        # A token that the reference does not list lies below all that it lists.
        (output(5, CLEAR), noisy(output(77, TIES), 0.001), "unexplained"),
        # Only the tokens' own: .9 leaves at most .1 for the other, .45 leaves enough.
        (output(5, chosen=-0.105), output(6, chosen=-0.105), "unexplained"),
        (output(5, chosen=-0.8), output(6, chosen=-0.8), "unknown"),
        # At a tie both would have found the same best probability.
        (output(5, chosen=-0.8), output(6, chosen=-2.4), "unexplained"),
        (output(5), output(6), "unknown"),
    ],
)
def test_verdicts_from_returned_log_probabilities(theirs: Any, ours: Any, verdict: str) -> None:
    found = sv.audit([theirs], [ours])
    assert found.prompts.loc[0, "verdict"] == verdict
    assert found.passed == (verdict == "near tie")
    assert found.notes


def test_the_control_gives_the_noise_without_a_target() -> None:
    theirs, control = output(5, TIES), noisy(output(5, TIES), 0.01)
    found = sv.audit([theirs], [noisy(output(6, CLEAR), 0.5)], None, [control], dtype="bfloat16")
    assert found.noise == pytest.approx(0.01)
    assert not any("pass a control" in note for note in found.notes)


def test_texts_alone_are_compared_by_letters() -> None:
    # A budget may cut a letter of up to four bytes in two.
    cut, longer = "same" + "\ufffd" * 3, "x" + "\ufffd" * 4
    found = sv.audit(["abc", "abcd", "a\ufffd", "same", "x"], ["abX", "ab", "aé", cut, longer])
    verdicts = ["unknown", "unknown", "unknown", "equal", "unknown"]
    assert found.prompts["verdict"].tolist() == verdicts
    assert found.prompts["unit"].unique() == ["character"]
    assert found.verdict.startswith(f"not judged: {NOT_MEASURED} in 1 of 5 texts, the first in")
    assert found.verdict.endswith("in 3 of 5 texts, the first in prompt 1 at character 2")
    assert not found.passed
    assert any("letter by letter" in note for note in found.notes)


def test_tokens_of_servers_without_ids_are_compared() -> None:
    places = [["a", -0.7], ["b", -0.7]]
    theirs = [{"tokens": ["x"] * 40 + ["a"], "top_logprobs": [[["x", -0.1]]] * 40 + [places]}]
    ours = [{"tokens": ["x"] * 40 + ["b"], "top_logprobs": [[["x", -0.11]]] * 40 + [places]}]
    found = sv.audit(theirs, ours)
    entry = found.prompts.loc[0]
    assert (entry["verdict"], entry["candidate_token"]) == ("near tie", "b")


def test_a_model_in_memory_and_its_tokenizer(embedded: sv.Pair) -> None:
    prompts = sv.load_prompts(limit=2)
    texts = generate(embedded, prompts, max_new_tokens=8).texts
    found = sv.audit(
        texts, [texts[0], "q" + texts[1]], embedded.target, None, prompts=prompts,
        tokenizer=embedded.tokenizer,
    )  # fmt: skip
    assert found.prompts["verdict"].tolist() == ["equal", "unexplained"]
    assert found.prompts.loc[1, "candidate_text"].startswith("q")
    assert found.conditions["dtype"] == "float32"


def test_a_printed_report_is_harmless() -> None:
    found = sv.audit([{"tokens": ["\x1b[31m"]}], [{"tokens": ["\x07"]}])
    assert "\x1b" not in repr(found)
    assert "<script>" not in sv.audit(["<script>1"], ["<script>2"])._repr_html_()


def tiny(reference: Any, candidate: Any, **how: Any) -> sv.Audit:
    return sv.audit(reference, candidate, make_pair("llama"), **how)


def sampled() -> sv.Result:
    return decoded("inplace", sampling=sv.SamplingParams(1.0), max_new_tokens=4)


def chat(content: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], "text": "a"}


BAD = [
    (lambda: sv.audit([[1]], [[1], [2]]), "the number of outputs differs: 1 in reference, 2 in"),
    (lambda: sv.audit([[1]], [[1]], prompts=["a", "b"]), "prompts has 2 entries"),
    (lambda: sv.audit([output(5)], [{**output(5), "prompt": [2]}]), "the prompts of candidate[0]"),
    (
        lambda: sv.audit([chat("x")], [chat("z")]),
        "the prompts of candidate[0] and reference[0] differ",
    ),
    (lambda: sv.audit([[1]], ["a"]), "reference[0] has token ids only and candidate[0] text only"),
    (lambda: tiny([[1]], [[2]]), "candidate[0] has no prompt"),
    (lambda: tiny([[98]], [[97]], prompts=[[1]]), "reference[0]: token_ids has the id 98"),
    (lambda: tiny([[1]], [[1]], prompts=[[99]]), "reference[0]: prompt_token_ids has the id 99"),
    (lambda: tiny([[1] * 300], [[2] * 300], prompts=[[1]]), "candidate[0] is 301 tokens long"),
    (lambda: tiny(["a"], ["b"], prompts=[[1]]), "candidate[0] or its prompt is text"),
    (lambda: tiny([[1]], [[1]], dtype="float32"), "dtype='float32' is for"),
    (lambda: tiny([[1]], [[1]], tokenizer=object()), "tokenizer is given"),
    (lambda: sv.audit([[1]], [[1]], dtype="int8"), "dtype='int8'"),
    (lambda: sv.audit(sampled(), sampled()), "reference was sampled"),
    (lambda: sv.audit([[1]], [[1]], device="cpu"), "device='cpu' is given, but no target"),
]


@pytest.mark.parametrize(("call", "begins"), BAD)
def test_what_cannot_be_judged_is_refused(call: Any, begins: str) -> None:
    check_refusal(call, begins)


def test_another_vocabulary_of_the_same_size_is_refused(embedded: sv.Pair) -> None:
    outputs = [{"prompt": "a", "token_ids": [400, 401], "text": "another text"}]
    check_refusal(
        lambda: sv.audit(outputs, outputs, embedded), "reference[0]: target target reads its"
    )
    right = [{**outputs[0], "text": embedded.tokenizer.decode([400, 401])}]
    assert sv.audit(right, right, embedded).passed


@pytest.mark.parametrize(("count", "total"), [(0, 16), (1, 16), (30, 32), (7, 7)])
def test_the_interval_is_wilsons(count: int, total: int) -> None:
    totals = make_totals(["equal"] * count + ["longer"] * (total - count))
    found = totals.loc["equal"]
    z = 1.959963984540054  # of 95 %
    p = count / total
    middle = (p + z**2 / (2 * total)) / (1 + z**2 / total)
    half = z / (1 + z**2 / total) * math.sqrt(p * (1 - p) / total + z**2 / (4 * total**2))
    assert found["share"] == p
    assert found[["low", "high"]].tolist() == pytest.approx([middle - half, middle + half])
    no_share = totals.loc["divergences that a tie explains"]
    assert no_share[["share", "low", "high"]].isna().all()


@pytest.mark.parametrize(
    ("ours", "theirs", "p_value"),
    [
        ([True] * 6, [False] * 6, 0.5**6),
        # One of seven the other way: 8 of 128 outcomes are as extreme.
        ([True] * 6 + [False], [False] * 6 + [True], 8 / 128),
        ([False] * 9, [True] * 9, 1),
        ([], [], 1),
    ],
)
def test_only_prompts_where_the_control_differs_count(
    ours: list[bool], theirs: list[bool], p_value: float
) -> None:
    both = [True] * 3 + [False] * 20
    found = against_control(ours + both, theirs + both)
    assert (found.candidate, found.control) == (sum(ours) + 3, sum(theirs) + 3)
    assert (found.candidate_only, found.control_only) == (sum(ours), sum(theirs))
    assert found.p_value == pytest.approx(p_value)
    assert found.is_more == (p_value < 0.05)
