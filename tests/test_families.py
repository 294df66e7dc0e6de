"""All families of causal LMs that build tiny are exact or refused; see families.py."""

import re

import families
import pytest
from transformers import GPTBigCodeConfig, GPTNeoConfig, LlamaConfig, MistralConfig

QUICK = {
    "llama": (LlamaConfig, "exact"),
    "gpt_bigcode": (GPTBigCodeConfig, "exact"),
    "mistral": (MistralConfig, "refused"),  # its layers have a sliding window
    "gpt_neo": (GPTNeoConfig, "refused"),
}


@pytest.mark.parametrize("name", QUICK)
def test_a_family_is_judged(name: str) -> None:
    config, outcome = QUICK[name]
    assert families.judge(name, config).outcome == outcome


def test_a_wrong_text_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "alone", lambda model, prompt: [0])
    assert families.judge("llama", LlamaConfig).outcome == "wrong"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(families.families()))
def test_no_family_writes_wrong_text_or_ends_in_a_traceback(name: str) -> None:
    found = families.judge(name, families.families()[name])
    assert found.outcome in ("exact", "refused", "not built"), found
    if found.outcome == "refused":
        assert re.search("; (choose|load|pass) ", found.reason), found


@pytest.mark.slow
def test_the_page_lists_every_family() -> None:
    listed = re.findall(r"^\| ([\w-]+) \|", families.PAGE.read_text(), re.MULTILINE)
    assert set(listed) - {"family"} == set(families.families())
