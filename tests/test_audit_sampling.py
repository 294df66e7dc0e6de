"""`sv.audit_sampling`: right samplers pass, planted faults are found and named.

All seeds are fixed. Over seeds, each audit calls a right decoder wrong with odds of 1e-6 at most.
"""

import dataclasses
import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from conftest import check_refusal
from decoders import FAULTY_SAMPLERS, RIGHT_SAMPLERS, Case

import specviz as sv
from specviz.checks.sampling.evidence import SHARES, by_group, learnt, smallest_distance
from specviz.checks.sampling.texts import Texts, enumerate_texts

TEMPERATURE = 0.8
FEW = [[0, 1], [1, 2, 3], [2, 0, 0, 4], [3, 5]]  # for those that decode row by row
LONGER = {"max_new_tokens": 3}
# More runs where 24 are too few, and what the report says.
PLANTED: dict[str, tuple[dict[str, Any], str]] = {
    "DrawsFromOtherQ": ({}, "drafts are drawn from q at 0.[45].* and judged as if from q"),
    "NoResidual": (
        {"runs": 60} | LONGER,
        "behind a rejected draft is drawn from p, not from what p has above q",
    ),
    "Swapped": ({}, "drafts are accepted with the chance q / p"),
    "NotClamped": (LONGER, r"behind a rejected draft is drawn from \|p - q\|"),
    "NotScaled": ({}, "behind a rejected draft is drawn from what p has above q, not scaled to 1"),
    "BonusTooEarly": (
        {"runs": 60} | LONGER,
        "behind all drafts is drawn from p one place too early",
    ),
    "OneCoin": ({}, "a uniform number that all rows are accepted by"),
    "SeedIgnored": ({}, "the seed changes nothing"),
    "ReportsOtherQ": (
        {"runs": 30, "top_k": 2} | LONGER,
        "drafts are drawn from q, and judged as if from q before top-k and top-p",
    ),
    "BeamJudgedByQ": ({}, "a choice that is always the same behind a prefix, as of a beam"),
    "FirstUnverified": (LONGER, "always if they are the first of a round"),
    "DraftsInBfloat16": (
        {"runs": 40},
        "drafts are drawn from q in bfloat16, and judged as if from q",
    ),
    "OwnScores": ({}, "foresight"),
    "DrawsAgain": (
        {"runs": 60} | LONGER,
        "behind a rejected draft is drawn from p, not from what p has above q",
    ),
}
RIGHT: dict[str, dict[str, Any]] = {
    "CachedSampling": {"prompts": FEW, "alpha": 1e-3, "runs": 40},
    "TopK": {"top_k": 2},
    "Textbook": LONGER,
    "ReadsLate": LONGER,
    "WithoutBonus": LONGER,
}
# What the report says of decoders whose rounds are not certain.
UNKNOWN = {
    "ReadsLate": "The rounds of ",
    "Repeats": "The rounds of ",
    "WithoutBonus": "The target's token behind all drafts is never kept, so nothing is said",
}


FAULTY = [
    pytest.param(case, marks=pytest.mark.slow if case.__name__ == "DrawsAgain" else ())
    for case in FAULTY_SAMPLERS
]


def audit(case: Case, **options: Any) -> sv.SamplingReport:
    def decode(target, draft, prompts, seed, max_new_tokens):
        how = {"temperature": TEMPERATURE, "seed": seed}
        return case.decode(target, draft, prompts, 2, max_new_tokens, **how)

    usual = {"temperature": TEMPERATURE, "runs": 24, "max_new_tokens": 2, "progress": False}
    return sv.audit_sampling(decode, **usual | options)


@pytest.mark.sweep(10)
@pytest.mark.parametrize("case", RIGHT_SAMPLERS, ids=lambda case: case.__name__)
def test_right_samplers_pass(case: Case) -> None:
    report = audit(case, **RIGHT.get(case.__name__, {}))
    assert str(report).startswith("right as far as")
    assert report.frame().empty
    assert report.causes == []
    said = "".join(report.facts)
    if case.__name__ in UNKNOWN:
        assert said.startswith(UNKNOWN[case.__name__])
        assert said.endswith("so nothing is said of how drafts are drawn and judged.")
    else:
        assert "could not be followed" not in said
    if case.__name__ == "Textbook":
        assert "drafts fit q best" in said
        assert said.endswith("best explained by p / q.")


@pytest.mark.sweep(8)
@pytest.mark.parametrize("case", FAULTY, ids=lambda case: case.__name__)
def test_faults_are_found_and_named(case: Case) -> None:
    options, words = PLANTED[case.__name__]
    report = audit(case, **options)
    assert str(report).startswith("wrong: "), report
    said = "\n".join([report.verdict, *report.causes])
    assert re.search(words, said), report


# ---- draws without a decoder ----


@functools.cache
def texts_of(temperature: float = 1.0, length: int = 3) -> Texts:
    pair = sv.tiny_pair()
    params = sv.SamplingParams(temperature)
    return enumerate_texts(pair.target, pair.draft, FEW, length, 6, params)


def drawn(
    runs: int,
    seed: int,
    p_of: Callable[[int, int, np.ndarray, np.ndarray], np.ndarray] | None = None,
) -> list[list[list[int]]]:
    """Texts of FEW drawn from p, or from p_of(row, place, p, q)."""
    texts = texts_of()
    generator = np.random.default_rng(seed)
    context = np.tile(texts.starts(FEW), (runs, 1))
    tokens = []
    for place in range(texts.length):
        p = texts.p[context]  # (R, B, V)
        if p_of is not None:
            q = texts.q[context]
            rows = [p_of(row, place, p[:, row], q[:, row]) for row in range(len(FEW))]
            p = np.stack(rows, 1)
        token = (p.cumsum(2) < generator.random((runs, len(FEW), 1))).sum(2)
        tokens.append(token)
        context = texts.longer[context, token]
    return np.stack(tokens, 2).tolist()


def judged(runs: list[list[list[int]]], **options: Any) -> sv.SamplingReport:
    return sv.audit_sampling(runs, prompts=FEW, **options)


def test_the_enumeration_is_the_chain_rule() -> None:
    texts = texts_of()
    chances = texts.chances()
    for place in range(texts.length):
        here = texts.place == place
        assert chances[here].sum() == pytest.approx(len(FEW))
    target = sv.tiny_pair().target
    for context in (0, 1, 6, 7, 42, 43, 100, len(chances) - 1):
        prompt, prefix = texts.prefixes[context]
        with torch.inference_mode():
            logits = target(torch.tensor([[*prompt, *prefix]])).logits[0, -1]
        assert np.allclose(texts.p[context], logits.double().softmax(-1), atol=1e-5)


def test_draws_from_elsewhere_are_judged_alike() -> None:
    report = judged(drawn(300, 1))
    assert report.is_right
    assert report.texts == 1200
    wrong = judged(drawn(300, 1, lambda row, place, p, q: 0.7 * p + 0.3 * q))
    assert "lean to what the draft model gives" in str(wrong)


def test_the_row_and_the_token_are_named() -> None:
    def third_row_rolls(row: int, place: int, p: np.ndarray, q: np.ndarray) -> np.ndarray:
        return 0.5 * p + 0.5 * np.roll(p, 1, 1) if (row, place) == (2, 1) else p

    report = judged(drawn(500, 2, third_row_rolls))
    assert (report.first.row, report.first.place) == (2, 1)
    assert report.verdict.startswith("wrong: row 2, new token 2: behind prompt [2 0 0 4] and [")
    assert {each.place for each in report.findings if each.test != "lean"} == {1}
    assert report.frame()["odds"].str.startswith("1 in 10^").all()


def test_counts_of_one_prompt_are_judged() -> None:
    counts = Counter(tuple(run[1]) for run in drawn(800, 3))
    assert sv.audit_sampling(dict(counts), prompts=FEW[1:2]).is_right
    top = max(counts, key=counts.__getitem__)
    assert not sv.audit_sampling(dict(counts) | {top: 400}, prompts=FEW[1:2]).is_right


def test_what_is_ruled_out_is_wrong_at_once() -> None:
    report = judged(drawn(100, 4), top_k=3)
    assert math.isinf(report.first.log_evidence)
    assert "is ruled out; a right decoder gives this with a chance of 0" in report.verdict


def test_a_text_may_end_early() -> None:
    pair = sv.tiny_pair()
    pair.target.generation_config.eos_token_id = 5
    cut = [[row[: row.index(5) + 1] if 5 in row else row for row in run] for run in drawn(300, 5)]
    assert judged(cut, target=pair.target, draft=pair.draft).is_right
    with pytest.raises(ValueError, match="or fewer up to EOS for row"):
        judged([[row[:1] for row in run] for run in cut], target=pair.target)


# ---- the evidence ----


@pytest.mark.parametrize("p", [(0.5, 0.5), (0.9, 0.1), (0.2, 0.8)])
def test_the_expectation_of_evidence_is_one(p: tuple[float, float]) -> None:
    """By enumeration of all draws: so evidence above 1 / alpha has a chance of alpha at most."""
    count = 8
    total = 0.0
    for tokens in itertools.product((0, 1), repeat=count):
        drawn = np.array(tokens)
        strata = np.array([0, 1] * (count // 2))
        ratios = learnt(np.tile(p, (count, 1)), drawn, strata)
        total += math.prod(p[token] for token in tokens) * math.exp(
            by_group(ratios, np.zeros(count, int), 1)[0]
        )
    assert total == pytest.approx(1)


def test_alpha_is_shared() -> None:
    assert sum(SHARES.values()) == pytest.approx(1)


def test_what_is_promised_to_be_found_is_found() -> None:
    """A distance as stated is found in 99 of 100 cases. Odds of fewer than 94: 5e-4."""
    generator = np.random.default_rng(0)
    level, size, visits = 18.0, 6, 400
    distance = smallest_distance([visits] * 4, size, level)
    hits = 0
    for _ in range(100):
        p = np.full((4, size), 1 / size)
        shift = generator.permuted(np.repeat([1, -1], size // 2))
        other = p * (1 + 2 * distance * shift)
        strata = np.repeat(np.arange(4), visits)
        tokens = (other[strata].cumsum(1) < generator.random((len(strata), 1))).sum(1)
        ratios = learnt(p[strata], tokens, strata)
        hits += by_group(ratios, np.zeros(len(strata), int), 1)[0] >= level
    assert hits >= 94


@pytest.mark.slow
def test_right_draws_raise_no_alarm() -> None:
    """At alpha = 0.1 each of 10 seeds may raise one with odds of 0.1; more than 6: odds 9e-6."""
    alarms = sum(not judged(drawn(60, seed), alpha=0.1).is_right for seed in range(10))
    assert alarms <= 6


# ---- what is refused ----


def never(*_: object) -> None:
    raise AssertionError("the decoder was called")


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        ({"decode": 3}, "decode must be a function, or what it drew, got 3; pass decode(target, "),
        ({"runs": 2}, "runs=2 of 16 prompts would find no distance below 1.00 at alpha=1e-06; "),
        ({"alpha": 0.5}, "alpha must be a number from 1e-300 to 0.1, got 0.5; "),
        ({"max_new_tokens": 12}, "max_new_tokens=12 makes 16 x 6^12 texts over the target's 6 "),
        ({"prompts": [[0, 9]]}, "prompts[0] must be token ids from 0 to 5, got [0, 9]; "),
        ({"prompts": [[]]}, "prompts[0] must have a token, got []; "),
        ({"prompts": [[1], [1, 2]]}, "prompts[0] must not be a prefix of prompts[1], got [1]; "),
        ({"target": "a"}, "target must be a model of transformers, got 'a'; "),
        (
            {"temperature": 0},
            "temperature must be a number from 1e-05 to 100000.0, got 0; "
            "pass one; greedy decoders are judged by specviz.watch",
        ),
        (
            {"decode": {(1, 2, 3): 5}},
            "prompts must be one where decode is a dict of counts, got 16",
        ),
        (
            {"decode": {(1, 2, 3): -5}, "prompts": [[1]]},
            "decode[(1, 2, 3)] must be a count, got -5",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(
    options: dict[str, Any], begins: str
) -> None:
    check_refusal(lambda: sv.audit_sampling(**{"decode": never} | options), begins)


def test_more_runs_are_asked_for_as_many_as_needed() -> None:
    with pytest.raises(ValueError, match="pass runs=") as caught:
        sv.audit_sampling(never, runs=2)
    needed = int(re.search(r"pass runs=(\d+)", str(caught.value))[1])
    assert audit(RIGHT_SAMPLERS[3], runs=needed, temperature=TEMPERATURE, causes=False).is_right


def test_models_that_cannot_be_enumerated_are_refused() -> None:
    large, pair = sv.load_pair(device="cpu", dtype="float32"), sv.tiny_pair()
    check_refusal(
        lambda: sv.audit_sampling(never, large.target, large.draft, prompts=[[1]]),
        "max_new_tokens=3 makes 1 x 4096^3 texts over the target's 4096 tokens, too many",
    )
    check_refusal(
        lambda: sv.audit_sampling(never, pair.target.bfloat16(), pair.draft),
        "target must be in float32 or float64, got bfloat16",
    )


@pytest.mark.parametrize(
    ("returned", "begins"),
    [
        (None, "decode must return the new tokens of each of the 16 prompts, got None; "),
        ([[1, 2, 3]], "decode must return the new tokens of each of the 16 prompts, got [[1, 2"),
        ([[1, 2, 9]] * 16, "decode: row 0 must be token ids from 0 to 5, got [1, 2, 9]; "),
        ([[1.0, 2.0, 3.0]] * 16, "decode: row 0 must be token ids from 0 to 5, got [1.0, 2.0"),
        ([[1, 2, 3, 4, 5]] * 16, "decode must return 3 new tokens for row 0, got 5; "),
        ([[1, 2, 3]] * 15 + [[1]], "decode must return 3 new tokens for row 15, got 1; "),
    ],
)
def test_what_a_decoder_must_return(returned: object, begins: str) -> None:
    check_refusal(lambda: sv.audit_sampling(lambda *_: returned, progress=False), begins)


def test_a_tensor_will_do() -> None:
    def decode(target, draft, prompts, seed, max_new_tokens):
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(6, (len(prompts), max_new_tokens), generator=generator)

    assert not sv.audit_sampling(decode, runs=40, causes=False, progress=False).is_right


# ---- the report ----


@pytest.mark.slow
def test_the_same_seed_gives_the_same_report() -> None:
    case = next(case for case in FAULTY_SAMPLERS if case.__name__ == "Swapped")
    first, again, other = (
        dataclasses.asdict(audit(case, seed=seed, causes=False)) for seed in (3, 3, 4)
    )
    assert first["findings"] == again["findings"] != other["findings"]


def test_html_is_escaped() -> None:
    report = judged(drawn(300, 1, lambda row, place, p, q: 0.7 * p + 0.3 * q))
    report = dataclasses.replace(report, causes=["<script>alert(1)</script>"])
    page = report._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "lean to what the draft model gives" in page


@pytest.mark.slow
@pytest.mark.parametrize("coupling", ["rejection", "gumbel"])
def test_the_engine_is_right(coupling: str) -> None:
    def decode(target, draft, prompts, seed, max_new_tokens):
        sampling = sv.SamplingParams(TEMPERATURE, coupling=coupling)
        options = {"num_draft_tokens": 3, "batch_size": 5, "max_new_tokens": max_new_tokens}
        pair = sv.Pair(target, draft)
        return sv.generate(
            pair, prompts, sampling=sampling, seed=seed, progress=False, **options
        ).tokens

    report = sv.audit_sampling(decode, temperature=TEMPERATURE, runs=40, progress=False)
    assert report.is_right, report
    rule = "by p / q" if coupling == "rejection" else "by Gumbel noise"
    assert rule in report.facts[0]


@pytest.mark.slow
@pytest.mark.parametrize(("temperature", "top_k"), [(0.5, None), (1.0, 3)])
def test_assisted_generation_is_right(temperature: float, top_k: int | None) -> None:
    """At temperature T its draft model draws at T^2, which its judgement knows."""

    def decode(target, draft, prompts, seed, max_new_tokens):
        torch.manual_seed(seed)
        draft.generation_config.assistant_confidence_threshold = 0.0
        outputs = []
        for prompt in prompts:
            ids = torch.tensor([prompt])
            text = target.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                assistant_model=draft,
                do_sample=True,
                temperature=temperature,
                top_k=top_k or 0,
                max_new_tokens=max_new_tokens,
            )
            outputs.append(text[0, len(prompt) :].tolist())
        return outputs

    options = {"temperature": temperature, "top_k": top_k, "prompts": FEW, "progress": False}
    report = sv.audit_sampling(decode, runs=100, **options)
    assert report.is_right, report
    assert "best explained by p / q" in report.facts[0]
