"""Audits of texts that were chosen from processed scores."""

import copy
import json
import re
import warnings
from functools import cache
from typing import Any

import pytest
import torch
from conftest import check_refusal, debug_page, generate
from transformers import GenerationConfig, LogitsProcessorList, RepetitionPenaltyLogitsProcessor

import specviz as sv
from specviz.checks.noise import score_text
from specviz.cli.main import main

NEW_TOKENS = 24
PENALTY = RepetitionPenaltyLogitsProcessor(1.4)


@cache
def pair_of() -> sv.Pair:
    """Return the embedded pair with a penalty in its generation config."""
    pair = copy.deepcopy(sv.load_pair(device="cpu"))
    pair.target.generation_config.update(repetition_penalty=1.4)
    return pair


@cache
def outputs(setting: str) -> list[dict[str, Any]]:
    """Return outputs with the penalty or without it."""
    pair, prompts = pair_of(), sv.load_prompts(limit=4)
    options: dict[str, Any] = {"batch_size": 3, "max_new_tokens": NEW_TOKENS, "strategy": "eqspec"}
    config = None if setting == "without" else "target"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = generate(pair, prompts, generation_config=config, **options)
    return [
        {"prompt": list(prompt), "token_ids": tokens, "max_tokens": NEW_TOKENS}
        for prompt, tokens in zip(result.prompts, result.tokens, strict=True)
    ]


@cache
def reference() -> list[dict[str, Any]]:
    """Return what transformers writes for each prompt alone."""
    pair, found = pair_of(), []
    for each in outputs("with"):
        ids = torch.tensor([each["prompt"]])
        text = pair.target.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW_TOKENS
        )
        found.append(each | {"token_ids": text[0, ids.shape[1] :].tolist()})
    return found


def test_texts_are_judged_by_processed_scores() -> None:
    pair = pair_of()
    right = sv.audit(reference(), outputs("with"), pair, generation_config="target")
    assert right.passed
    assert right.verdict == "right: all 4 texts are equal"
    wrong = sv.audit(reference(), outputs("without"), pair, generation_config="target")
    assert wrong.unexplained
    assert set(wrong.prompts["verdict"]) <= {"equal", "unexplained"}
    assert (wrong.prompts.loc[wrong.unexplained, "reference_gap"] < 1e-3).all()


def test_without_the_settings_nothing_is_judged() -> None:
    found = sv.audit(reference(), outputs("without"), pair_of())
    assert not found.passed
    assert not found.unexplained
    reasons = found.prompts["reason"][found.prompts["verdict"] == "unknown"]
    assert reasons.str.contains("pass generation_config").all()


def test_a_config_of_ones_own_is_applied() -> None:
    plain = sv.load_pair(device="cpu")
    config = GenerationConfig(repetition_penalty=1.4)
    found = sv.audit(reference(), outputs("without"), plain, generation_config=config)
    assert found.unexplained
    without = sv.audit(outputs("without"), outputs("without"), plain)
    assert without.passed


def test_log_probabilities_after_processing_are_named() -> None:
    pair = pair_of()
    for name, processors in (
        ("", None),
        ("those after processing", LogitsProcessorList([PENALTY])),
    ):
        said = []
        for each in outputs("with"):
            text = each["prompt"], each["token_ids"]
            logprobs = score_text(pair, text, processors=processors).chosen
            said.append(each | {"logprobs": logprobs.tolist()})
        found = sv.audit(reference(), said, pair, generation_config="target")
        assert found.passed
        assert set(found.logprobs["explanation"]) == {name}


def test_runs_with_other_settings_are_not_compared() -> None:
    pair = sv.load_pair(device="cpu")
    options = {"batch_size": 2, "max_new_tokens": 8, "record": True}
    plain = generate(pair, sv.load_prompts(limit=2), **options)
    made = [
        generate(pair, sv.load_prompts(limit=2), logits_processor=PENALTY, strategy=each, **options)
        for each in ("inplace", "eqspec")
    ]
    check_refusal(lambda: sv.compare(made[0], plain), "logits_processor differs")
    check_refusal(lambda: sv.compare(*made, pair=pair), "pair reads scores")
    assert sv.compare(*made).summary["exact_match"].item() == 1
    stopped = generate(pair, sv.load_prompts(limit=2), stop="\n", **options)
    check_refusal(lambda: sv.compare(stopped, plain), "stop differs")


def test_the_settings_need_a_target() -> None:
    check_refusal(
        lambda: sv.audit(reference(), reference(), generation_config="target"),
        "generation_config='target' is given",
    )


@pytest.mark.parametrize("setting", ["with", "without"])
def test_the_command_judges_by_the_settings(setting: str, tmp_path: Any, capsys: Any) -> None:
    pair = pair_of()
    pair.target.save_pretrained(tmp_path / "target")
    pair.tokenizer.save_pretrained(tmp_path / "target")
    for name, made in (("reference", reference()), ("candidate", outputs(setting))):
        lines = "\n".join(map(json.dumps, made))
        (tmp_path / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    given = ["audit", "--reference", str(tmp_path / "reference.jsonl")]
    given += [
        "--candidate",
        str(tmp_path / "candidate.jsonl"),
        "--target",
        str(tmp_path / "target"),
    ]
    status = main([*given, "--generation-config", "target"])
    assert status == (setting == "without")
    shown = capsys.readouterr().out.splitlines()[0]
    assert ("unexplained" in shown) == (setting == "without")


def test_the_example_of_the_page_prints_what_it_says(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    section = debug_page("Audit").partition("### Saved outputs")[2]
    code, printed = re.findall(r"```(?:python)?\n(.*?)```", section, re.DOTALL)[:2]
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "debug.md", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out == printed
