"""All families of causal LMs that transformers has are exact or refused; see families.py."""

import re

import families
import pytest
import tiny_models
from families_page import PAGE
from transformers import LlamaConfig, PreTrainedModel

from specviz.engine.probe import check_exact

QUICK = {
    "llama": "exact",
    "gpt_bigcode": "exact",
    "mistral": "exact",
    "lfm3": "exact",
    "recurrent_gemma": "refused",  # its modules keep their states themselves
    "gpt_neo": "refused",
}


@pytest.mark.sweep(8)
@pytest.mark.parametrize("name", QUICK)
def test_a_family_is_judged(name: str) -> None:
    outcomes = families.judge_both(name, "eager")
    assert outcomes[0].outcome == QUICK[name]


@pytest.mark.slow
def test_a_refused_family_is_tried_with_full_attention() -> None:
    assert [each.outcome for each in families.judge_both("bert", "sdpa")] == ["refused", "exact"]
    # GPT-Neo hides columns of the cache by a rule of its own, with global attention, too.
    outcomes = families.judge_both("gpt_neo", "eager")
    assert [each.outcome for each in outcomes] == ["refused", "refused"]


def test_a_wrong_text_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "alone", lambda model, prompt: [0])
    assert families.judge("llama").outcome == "wrong"


def test_a_tiny_model_has_each_type_of_layer_and_no_constants() -> None:
    config = tiny_models.make_config(tiny_models.families()["lfm3"])
    assert config.layer_types == ["conv", "full_attention", "sliding_attention"]
    model = tiny_models.build(
        "gpt2", tiny_models.make_config(tiny_models.families()["gpt2"]), "sdpa"
    )
    assert all(parameter.std() > 0 for parameter in model.parameters())
    with pytest.raises(tiny_models.NotBuiltError, match="smallest build"):
        tiny_models.build("llama", LlamaConfig(), "sdpa")


# These hide columns of the cache, or do not count from 0, whatever the length of the text.
SEEN_IN_ANY_TEXT = {"gpt_neo", "camembert", "data2vec-text", "roberta", "roberta-prelayernorm"}
SEEN_IN_ANY_TEXT |= {"xlm-roberta", "xlm-roberta-xl", "xmod"}


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The classes of the models that the trial before a run refuses from now on."""
    refused = []

    def watched(role: str, model: PreTrainedModel) -> None:
        try:
            check_exact(role, model)
        except ValueError:
            refused.append(type(model).__name__)
            raise

    monkeypatch.setattr("specviz.engine.run.check_exact", watched)
    return refused


def check_family(name: str, attention: str, *, with_remedy: bool = True) -> None:
    for found in families.judge_both(name, attention):
        assert found.outcome in ("exact", "refused", "not built"), found
        if found.outcome == "refused" and with_remedy:
            assert re.search("; (choose|load|pass) ", found.reason), found


@pytest.mark.slow
@pytest.mark.parametrize("attention", families.ATTENTIONS)
@pytest.mark.parametrize("name", sorted(tiny_models.families()))
def test_no_family_writes_wrong_text_or_ends_in_a_traceback(
    name: str, attention: str, refusals: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial has a dozen tokens: what shows in longer texts only is refused by configuration.

    So no text may be wrong without the trial either. Where it refuses nothing, it changes nothing.
    """
    check_family(name, attention)
    if refusals and attention == "eager" and name not in SEEN_IN_ANY_TEXT:
        monkeypatch.setattr("specviz.engine.run.check_exact", lambda role, model: None)
        # What a model itself raises then has no remedy.
        check_family(name, attention, with_remedy=False)


@pytest.mark.slow
def test_the_page_lists_every_family() -> None:
    listed = re.findall(r"^\| ([\w-]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(listed) - {"family"} == set(tiny_models.families())
    assert "\n## Wrong" not in PAGE.read_text(encoding="utf-8")
