"""No rule accuses a valid run: 200 random configurations, a few of them in the fast tests."""

from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import published
import pytest
import torch
from conftest import make_pair, make_prompts
from mutated_runs import Cycling

import specviz as sv
from specviz.checks.draws import Chosen, Draws
from specviz.engine.sampling import Places

MODELS = ("llama", "llama", "qwen3", "gpt2", "glm4")
DTYPES = (torch.float32, torch.float32, torch.float64, torch.bfloat16)
RATES = [0.9, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]
FAST = 25
ALL = 200


def strategy(pick: Random, batch_size: int) -> Any:
    """A valid strategy with random options."""
    name = pick.choice(
        ["autoregressive", "rollback", "masking", "repadding", "eqspec", "exspec", "inplace"]
    )
    if name == "exspec":
        fallback = pick.choice(["realign", "partial", "wait"])
        habits = pick.choice([{}, {}, {"as_published": True}, {"group_by": "padded"}])
        options = {"window": batch_size + pick.randint(0, 4), "sort_prompts": pick.random() < 0.3}
        return published.strategy(
            name, fallback=fallback, max_wait=pick.randint(1, 4), **options, **habits
        )
    options = {"refill": pick.random() < 0.7}
    if name == "repadding":
        plain = {"ones_mask": False, "draft_bonus": False}
        options |= plain | {"skip_unpadding": pick.random() < 0.7}
    if name == "eqspec":
        options |= pick.choice([{}, {"bonus": False}, {"shrink_to_budget": True}])
        if pick.random() < 0.2:
            options["as_published"] = True
    return published.strategy(name, **options)


def selector(pick: Random, coupling: str | None) -> Any:
    """A selector that the run may have, with random options; every third run has one."""
    if pick.random() < 0.7:
        return "everything"
    safe = pick.choice(["largest", "entropy"])
    score = pick.choice([safe, "chosen"]) if coupling != "rejection" else safe
    if pick.random() < 0.6:
        waits = pick.choice([None, None, 1, 3])
        return sv.selector("tetris", extra=pick.randint(0, 3), score=score, max_wait=waits)
    kind = "chosen" if score == "chosen" else "largest"
    return sv.selector("threshold", at_least=pick.choice([0.0, 0.2, 0.6, 1.0]), score=kind)


def configuration(seed: int) -> dict[str, Any]:
    """Everything that a run is made with, from a seed."""
    pick = Random(seed)
    batch_size = pick.randint(1, 5)
    coupling = pick.choice([None, None, "gumbel", "rejection"])
    sampling = None
    if coupling is not None:
        sampling = sv.SamplingParams(
            pick.choice([0.3, 0.8, 1.0, 1.0, 2.0]),
            top_k=pick.choice([None, None, 3, 20]),
            top_p=pick.choice([None, None, 0.7, 0.95]),
            coupling=coupling,
        )
    drafters = ["model", "model", "lookup", "model"]
    if coupling != "rejection":
        drafters.append(sv.drafter("synthetic", rates=RATES))
    prompts = make_prompts()
    chosen = [pick.choice(prompts) for _ in range(pick.randint(1, 7))]
    drafter = pick.choice(drafters)
    gives_logits = drafter == "model" or getattr(drafter, "gives_logits", False)
    return {
        "model": pick.choice(MODELS),
        "dtype": pick.choice(DTYPES),
        "prompts": chosen,
        "strategy": strategy(pick, batch_size),
        "drafter": drafter,
        "selector": selector(pick, coupling) if gives_logits else "everything",
        "num_draft_tokens": pick.choice([1, 2, 3, 4, 6, "auto", Cycling(3)]),
        "batch_size": batch_size,
        "max_new_tokens": [pick.choice([1, 2, 3, 7, 12]) for _ in chosen],
        "sampling": sampling,
        "seed": pick.randint(0, 2**40),
        "deterministic": pick.random() < 0.1,
        "levers": sv.Levers(keep_draft=pick.random() < 0.8),
    }


def check(seed: int, *, deep: bool) -> None:
    run = configuration(seed)
    pair = make_pair(run.pop("model"), run.pop("dtype"))
    result = sv.generate(pair, run.pop("prompts"), record=True, progress=False, **run)
    assert result.trace is not None
    found = sv.check_invariants(result.trace, deep=deep, pair=pair if deep else None)
    assert list(found) == [], f"{found[0]}\nseed {seed}: {run}"


@pytest.mark.sweep(4)
@pytest.mark.parametrize("seed", range(FAST))
def test_a_random_valid_run_has_no_findings(seed: int) -> None:
    """With the models, too, in every fifth of them."""
    check(seed, deep=seed % 5 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FAST, ALL, 25))
def test_no_random_valid_run_has_findings(first: int) -> None:
    for seed in range(first, first + 25):
        check(seed, deep=True)


def refuted(sampling: sv.SamplingParams, logits: torch.Tensor, shift: int) -> np.ndarray:
    """Which choices among logits (m, V) are refuted if the tokens are `shift` further on."""
    m, size = logits.shape
    requests, indices = [0] * m, list(range(m))
    places = Places(torch.tensor(requests), torch.tensor(indices))
    tokens = sampling.chooser(1).draft(logits, places)
    top = logits.log_softmax(-1).topk(5, -1)
    settings = {"temperature": sampling.temperature, "coupling": "gumbel"}
    settings |= {"top_k": sampling.top_k, "top_p": sampling.top_p}
    meta = {"vocabulary_size": size, "seed": 1, "sampling": settings}
    chosen = Chosen(
        tokens=(tokens.numpy() + shift) % size,
        requests=np.array(requests),
        indices=np.array(indices),
        logprobs=np.full(m, np.nan),
        top_ids=top.indices.numpy(),
        top_logprobs=top.values.numpy(),
    )
    return Draws(SimpleNamespace(meta=meta)).refuted(chosen) >= 0


@pytest.mark.parametrize("top_k", [None, 3])
@pytest.mark.parametrize("top_p", [None, 0.1, 0.3, 0.8])
@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_equally_likely_candidates_accuse_no_choice(
    temperature: float, top_p: float | None, top_k: int | None
) -> None:
    """Among equals, top-p and the record may put another token first."""
    sampling = sv.SamplingParams(temperature, top_k=top_k, top_p=top_p, coupling="gumbel")
    levels = torch.randint(0, 3, (1000, 8), generator=torch.Generator().manual_seed(0))
    assert not refuted(sampling, levels.float(), 0).any()


@pytest.mark.parametrize("top_p", [None, 0.1, 0.8])
def test_candidates_that_differ_refute_other_choices(top_p: float | None) -> None:
    """A token that the noise did not choose, where no two are equally likely."""
    sampling = sv.SamplingParams(1.0, top_p=top_p, coupling="gumbel")
    logits = torch.randn(1000, 8, generator=torch.Generator().manual_seed(0))
    assert refuted(sampling, logits, 1).mean() > 0.7
