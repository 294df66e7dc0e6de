"""`sv.watch` and what `generate` applies to scores: no verdict on tokens that were not computed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from conftest import make_pair
from transformers import LogitsProcessor

import specviz as sv

PROMPTS = [[5, 9, 11, 40, 7], [8, 21, 4], [30, 31, 32, 33, 34, 35, 36]]


@pytest.fixture
def pair() -> sv.Pair:
    return copy.deepcopy(make_pair("llama"))


class Forbids(LogitsProcessor):
    """Forbids some tokens, by name those of even ids."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        scores[:, ::2] = -torch.inf
        return scores


def assisted(pair: sv.Pair, prompt: list[int], **options: Any) -> list[int]:
    options = {"do_sample": False, "max_new_tokens": 12, "eos_token_id": None} | options
    ids = torch.tensor([prompt])
    text = pair.target.generate(ids, assistant_model=pair.draft, **options)
    return text[0, len(prompt) :].tolist()


def audited(
    pair: sv.Pair, wrong: bool = False, known: bool = True, **options: Any
) -> sv.WatchReport:
    with sv.watch(pair.target, pair.draft) as watched:
        outputs = [assisted(pair, prompt, **options) for prompt in PROMPTS]
    if wrong:  # the last token of each text
        outputs = [[*each[:-1], (each[-1] + 1) % 97] for each in outputs]
    assert "generate" not in vars(pair.target)
    return watched.audit(PROMPTS, outputs if known else None, eos_token_ids=[])


@pytest.mark.sweep(4)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"repetition_penalty": 1.8}, "repetition_penalty=1.8"),
        ({"no_repeat_ngram_size": 1}, "no_repeat_ngram_size=1"),
        ({"suppress_tokens": list(range(0, 97, 2))}, "suppress_tokens=[0, 2, 4, 6, 8, "),
        ({"logits_processor": [Forbids()]}, "logits_processor=['Forbids']"),
        ({"do_sample": True, "temperature": 3.0, "top_k": 0}, "do_sample=True"),
    ],
    ids=["penalty", "ngrams", "suppressed", "processor", "sampled"],
)
def test_tokens_of_processed_scores_are_not_judged(
    pair: sv.Pair, given: dict[str, Any], named: str, known: bool
) -> None:
    torch.manual_seed(0)
    report = audited(pair, known=known, **given)
    assert report.verdict.startswith("not judged: which tokens 3 texts should have; "), report
    assert f"target.generate() applied {named}" in report.verdict
    assert not report.is_right
    assert not report.faults
    assert not report.wrong


def test_the_config_is_named_as_generate_names_it(pair: sv.Pair) -> None:
    pair.target.generation_config.repetition_penalty = 1.8
    report = audited(pair)
    assert "target.generation_config has repetition_penalty=1.8: generate() would" in report.verdict
    assert report.verdict.startswith("not judged: ")
    alone = audited(pair, repetition_penalty=1.0)
    assert alone.is_right, "the call does not apply it"
    assert not alone.ignored


@pytest.mark.parametrize(
    "harmless", [{}, {"repetition_penalty": 1.0}, {"temperature": None}, {"logits_processor": []}]
)
def test_harmless_settings_excuse_nothing(pair: sv.Pair, harmless: dict[str, Any]) -> None:
    pair.draft.generation_config.repetition_penalty = 1.8  # the draft's choices are its own
    report = audited(pair, wrong=True, **harmless)
    assert report.verdict.startswith("wrong: 3 of 3 texts"), report


@torch.inference_mode()
def by_hand(pair: sv.Pair, prompt: list[int], shift: int = 0, penalty: float = 1.0) -> list[int]:
    """Greedy decoding without a cache, perhaps with wrong positions, or with a penalty."""
    text = list(prompt)
    while len(text) < len(prompt) + 12:
        places = torch.arange(len(text))[None]
        places[:, -1] += shift
        scores = pair.target(torch.tensor([text]), position_ids=places).logits[0, -1]
        used = scores[text]
        scores[text] = torch.where(used > 0, used / penalty, used * penalty)
        text.append(int(scores.argmax()))
    return text[len(prompt) :]


@pytest.mark.parametrize(
    ("how", "verdict"),
    [
        ({}, "right: 3 texts"),
        ({"penalty": 1.8}, "not judged: "),
        (
            {"shift": 3},
            "wrong: 3 of 3 texts; row 0 (request 0) since round 0, forward 0: positions",
        ),
    ],
    ids=["plain", "penalty", "positions"],
)
def test_a_decoder_of_its_own_may_read_the_config(
    pair: sv.Pair, how: dict[str, Any], verdict: str
) -> None:
    """Forwards are judged, also where the config asks for what specviz does not apply."""
    pair.target.generation_config.repetition_penalty = 1.8
    with sv.watch(pair.target) as watched:
        outputs = [by_hand(pair, prompt, **how) for prompt in PROMPTS]
    report = watched.audit(PROMPTS, outputs, eos_token_ids=[])
    assert str(report).startswith(verdict), report
    assert "repetition_penalty=1.8" in str(report), "it is named in any case"


def test_blocks_that_overlap_give_generate_back(pair: sv.Pair) -> None:
    first, second = sv.watch(pair.target), sv.watch(pair.target)
    early, late = first.__enter__(), second.__enter__()
    assisted(pair, PROMPTS[0], repetition_penalty=1.8)
    first.__exit__(None, None, None)
    assisted(pair, PROMPTS[0], repetition_penalty=1.9)
    second.__exit__(None, None, None)
    assert [each["repetition_penalty"] for each in early.ignored] == [1.8]
    assert [each["repetition_penalty"] for each in late.ignored] == [1.8, 1.9]
    assert "generate" not in vars(pair.target)
