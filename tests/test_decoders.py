"""Each foreign decoder of `decoders` is what it says: right, wrong in its text, or slow."""

import ast
from functools import cache
from pathlib import Path

import pytest
import torch
from decoder_work import EOS, PROMPTS, Run, pair, prompts, reference, run
from decoders import CASES, SAMPLED, Case
from scipy.stats import chisquare

from specviz.checks.violations import RULES

BY_NAME = {case.name: case for case in CASES}
RIGHT = [case for case in CASES if case.affects is None]
WRONG_TEXT = [case for case in CASES if case.affects == "text"]
SLOW = [case for case in CASES if case.affects == "speed"]
DRAWS = 500


def case_id(case: Case) -> str:
    return case.name


@cache
def run_once(name: str) -> Run:
    return run(BY_NAME[name])


@pytest.mark.sweep(8)
@pytest.mark.parametrize("case", RIGHT, ids=case_id)
def test_right_decoders_agree_with_generate(case):
    """Rows that end with an EOS token, and rows that end with their budget."""
    assert run(case, EOS).outputs == reference(EOS)


@pytest.mark.sweep(24)
@pytest.mark.parametrize("case", WRONG_TEXT, ids=case_id)
def test_faults_change_the_text(case):
    eos = EOS if case.needs_eos else ()
    assert run(case, eos).outputs != reference(eos)


@pytest.mark.sweep(12)
@pytest.mark.parametrize("case", SLOW, ids=case_id)
def test_slow_decoders_are_right_and_cost_more(case):
    slow = run_once(case.name)
    right = run_once(case.like)
    assert slow.outputs == right.outputs == reference(())
    assert getattr(slow.cost, case.costs) > getattr(right.cost, case.costs)


def test_the_work_shows_every_fault():
    ends = [text[-1] in EOS for text in reference(EOS)]
    assert any(ends)
    assert not all(ends)
    assert any(set(EOS) & set(prompt) for prompt in prompts())
    assert len({len(prompt) for prompt in prompts()}) > 2
    assert max(case.min_batch for case in CASES) <= len(PROMPTS)


def test_registry_is_complete():
    cases = [*CASES, *SAMPLED]
    assert len({case.name for case in cases}) == len(cases)
    assert {case.rule for case in cases} - {None} <= RULES.keys()
    assert [case.name for case in RIGHT if case.rule or case.costs or case.model] == []
    assert [case.name for case in SLOW if case.costs not in ("forwards", "tokens")] == []
    for case in (*WRONG_TEXT, *SLOW):
        assert BY_NAME[case.like].affects is None


def test_decoders_import_nothing_of_specviz():
    """Those of the course, whose helpers they share, do not either: test_debug.py."""
    known = {"torch", "transformers", "collections", "dataclasses", "typing", "checks", None}
    for path in Path(__file__).with_name("decoders").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert {alias.name.partition(".")[0] for alias in node.names} <= known
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                assert node.module.partition(".")[0] in known


# Sampling


def first_token_p_value(case: Case) -> float:
    """Chi-square of first tokens against the target's distribution."""
    prompt = list(prompts()[-1][:6])  # the pair differs in what follows
    drawn = case.decode(pair().target, pair().draft, [prompt] * DRAWS, 1, 1, seed=7)
    with torch.inference_mode():
        logits = pair().target(torch.tensor([prompt])).logits[0, -1]
    expected = logits.double().softmax(-1) * DRAWS
    observed = torch.bincount(torch.tensor(drawn)[:, 0], minlength=len(expected)).double()
    likely = expected >= 5
    bins = [torch.cat([x[likely], x[~likely].sum()[None]]) for x in (observed, expected)]
    return chisquare(*bins).pvalue


def test_right_sampling_has_the_targets_distribution():
    """The seed is fixed; of other seeds, one in a thousand would fail."""
    assert first_token_p_value(SAMPLED[0]) > 1e-3


@pytest.mark.sweep(2)
@pytest.mark.parametrize("case", SAMPLED[1:], ids=case_id)
def test_wrong_sampling_has_another_distribution(case):
    assert first_token_p_value(case) < 1e-6


def test_cold_sampling_is_greedy():
    """At a temperature near 0 all probability is on the target's choice."""
    rows = [list(prompt) for prompt in prompts()]
    cold = SAMPLED[0].decode(pair().target, pair().draft, rows, 4, 8, temperature=1e-5)
    assert cold == [text[:8] for text in reference(())]
