"""Sampled text with heads as drafters: distributed as the target's, or as a broken promise says.

The probabilities of all texts of three tokens out of six are enumerated. Seeds are fixed; stated
odds of false failure are those over seeds.
"""

import functools
from collections import Counter
from dataclasses import replace

import couplings
import pytest
import torch
from conftest import generate
from scipy.stats import chisquare
from test_sampling import PROMPT, make_tiny, probabilities
from test_typical import COPIES, RUN, SAMPLING, K, total_variation, written

import specviz as sv
from specviz.engine.heads import KINDS, build_head

Row = tuple[int, ...]
# How far weights are from those that training starts with, so that some drafts are accepted.
NOISE = dict.fromkeys(KINDS, 0.4) | {"clover": 0.15}


@functools.cache
def with_head(kind: str) -> sv.Pair:
    """The tiny pair with a head at random, which draws quite other tokens than the target."""
    pair = make_tiny()
    head = build_head(kind, pair.target, seed=3)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for weight in head.parameters():
            if weight.ndim > 1:
                weight += NOISE[kind] * torch.randn(weight.shape, generator=generator)
    return replace(pair, heads={kind: head.double().eval().requires_grad_(False)})


def proposed(kind: str, prefix: Row) -> Row:
    """The head's likeliest drafts behind the prompt and `prefix`, from a fresh forward."""
    pair = with_head(kind)
    head = pair.heads[kind]
    drafts: Row = ()
    with torch.no_grad():
        for j in range(K):
            # Unrolled chains read the drafts before. What they would read behind those is not used.
            tokens = torch.tensor([[*PROMPT, *prefix, *drafts, *[0] * (K - j)]])
            states = pair.target.base_model(tokens, output_hidden_states=True).hidden_states
            start = torch.tensor([[len(PROMPT) + len(prefix) - 1]])
            output = head.unroll(tokens, head.select(states), start, j + 1)[j]
            drafts = (*drafts, int(output.logits[0, 0].argmax()))
    return drafts


def sample(kind: str, sampling: sv.SamplingParams) -> list[Row]:
    prompts = [PROMPT] * COPIES
    found = generate(with_head(kind), prompts, drafter=kind, sampling=sampling, seed=1, **RUN)
    if sampling.coupling != "typical":
        assert 0.05 < found.summary["draft_acceptance_rate"].item() < 0.95, "both must happen"
    return [tuple(row) for row in found.tokens]


@pytest.mark.sweep(5)
@pytest.mark.parametrize("kind", KINDS)
def test_sampled_text_is_the_targets(kind: str) -> None:
    """By chi-square over all texts; each case fails with odds of one in a million."""
    sampling = sv.SamplingParams(1.3)
    expected = dict(probabilities(sampling))
    counts = Counter(sample(kind, sampling))
    assert set(counts) <= set(expected)
    # Texts that are expected less than five times are counted as one.
    rare = [row for row, chance in expected.items() if chance * COPIES < 5]
    observed = [counts[row] for row in expected if row not in rare]
    wanted = [expected[row] * COPIES for row in expected if row not in rare]
    observed.append(sum(counts[row] for row in rare))
    wanted.append(sum(expected[row] for row in rare) * COPIES)
    assert chisquare(observed, wanted).pvalue > 1e-6


@pytest.mark.sweep(2)
@pytest.mark.parametrize("kind", ["medusa", "eagle3"])
def test_typical_text_is_what_the_rule_makes_of_the_heads_drafts(kind: str) -> None:
    """By Hoeffding, a share of 2000 texts is off by 0.06 with odds of 2e-6 a text."""
    rule = written(propose=functools.partial(proposed, kind))
    assert sum(rule.values()) == pytest.approx(1)
    target = dict(probabilities(SAMPLING))
    distance = total_variation(rule, target)
    assert distance > 0.05
    counts = Counter(sample(kind, SAMPLING))
    assert set(counts) <= set(rule)
    for row, chance in rule.items():
        assert counts[row] / COPIES == pytest.approx(chance, abs=0.06), row
    found = {row: count / COPIES for row, count in counts.items()}
    assert total_variation(found, rule) < distance, "nearer to the rule than the rule to the target"
    run = {**RUN, "drafter": kind}
    assert 0 < couplings.distance(with_head(kind), [PROMPT] * 20, SAMPLING, seed=0, **run) < 1
