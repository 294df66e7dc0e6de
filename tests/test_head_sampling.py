"""Sampled text with heads as drafters: distributed as the target's.

The probabilities of all texts of three tokens out of six are enumerated. Seeds are fixed; stated
odds of false failure are those over seeds.
"""

import functools
from collections import Counter
from dataclasses import replace

import pytest
import torch
from conftest import generate
from scipy.stats import chisquare
from test_sampling import PROMPT, make_tiny, probabilities

import specviz as sv
from specviz.engine.heads import KINDS, build_head

Row = tuple[int, ...]
COPIES = 2000
RUN = {"num_draft_tokens": 2, "batch_size": 1000, "max_new_tokens": 3}
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


def sample(kind: str, sampling: sv.SamplingParams) -> list[Row]:
    prompts = [PROMPT] * COPIES
    found = generate(with_head(kind), prompts, drafter=kind, sampling=sampling, seed=1, **RUN)
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
