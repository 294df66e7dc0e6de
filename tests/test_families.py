"""All families of causal LMs that transformers has are exact or refused; see families.py."""

import re
from pathlib import Path

import families
import pytest
import tiny_models
import torch
from transformers import LlamaConfig, PreTrainedModel

import specviz as sv
from specviz.engine.rng import Noise
from specviz.engine.trial import check_exact

QUICK = {
    "llama": "exact",
    "gpt_bigcode": "exact",
    "mistral": "exact",
    "lfm3": "exact",
    "mamba": "refused",  # it takes no position_ids
}


@pytest.mark.sweep(8)
@pytest.mark.parametrize("name", QUICK)
def test_a_family_is_judged(name: str) -> None:
    outcomes = families.judge_both(name, "eager")
    assert outcomes[0].outcome == QUICK[name]


@pytest.mark.slow
def test_a_refused_family_is_tried_with_full_attention() -> None:
    assert [each.outcome for each in families.judge_both("bert", "sdpa")] == ["refused", "exact"]
    # RoBERTa counts positions from another number than 0.
    outcomes = families.judge_both("roberta", "eager")
    assert [each.outcome for each in outcomes] == ["refused", "refused"]


def test_a_wrong_text_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "alone", lambda model, prompt: [0])
    assert families.judge("llama").outcome == "wrong"


@pytest.mark.parametrize("sampling", ["greedy", "gumbel"])
def test_only_what_rounding_explains_is_a_near_tie(
    sampling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two tokens, the model's own may stand for itself, and another one only if it is as good.

    Where tokens are sampled, the noise decides between them, too.
    """
    target = tiny_models.build(
        "llama", tiny_models.make_config(tiny_models.families()["llama"]), "sdpa"
    )
    options = families.OPTIONS | ({} if sampling == "greedy" else {"sampling": families.SAMPLED})
    pair = sv.Pair(target, target)
    right = sv.generate(pair, families.prompts(), progress=False, **options).tokens[0]
    scores = families.last_logits(target, families.prompts()[0])
    if sampling == "gumbel":
        scores = scores / families.TEMPERATURE + torch.from_numpy(
            Noise(0).gumbel(0, len(families.prompts()[0]), len(scores))
        )
    best, second = scores.topk(2).indices.tolist()
    assert best == right[0]
    text = [second, *right[1:]]
    sampled = sampling == "gumbel"
    assert not families.is_near_tie(target, 0, text, right, sampled=sampled)
    gap = float(scores[best] - scores[second])
    plain = families.last_logits(target, families.prompts()[0])
    monkeypatch.setattr(families, "rounded", lambda model, prefix, seed: plain + gap)
    assert families.is_near_tie(target, 0, text, right, sampled=sampled)


def test_a_tiny_model_has_each_type_of_layer_and_no_constants() -> None:
    config = tiny_models.make_config(tiny_models.families()["lfm3"])
    assert config.layer_types == ["conv", "full_attention", "sliding_attention"]
    model = tiny_models.build(
        "gpt2", tiny_models.make_config(tiny_models.families()["gpt2"]), "sdpa"
    )
    assert all(parameter.std() > 0 for parameter in model.parameters())
    with pytest.raises(tiny_models.NotBuiltError, match="smallest build"):
        tiny_models.build("llama", LlamaConfig(), "sdpa")


# Their fault shows whatever the length of the text: Moshi computes other logits with a cache of its
# own than without, and the others do not count from 0.
SEEN_IN_ANY_TEXT = {"camembert", "data2vec-text", "roberta", "roberta-prelayernorm"}
SEEN_IN_ANY_TEXT |= {"moshi", "xlm-roberta", "xlm-roberta-xl", "xmod"}


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


OUTCOMES = (*families.EXACT, "refused", "not built", "not run")
WAY = ["family", "attention", "dtype", "sampling", "changes"]


def check_family(name: str, attention: str) -> None:
    listed = families.read_table().set_index(WAY)["outcome"]
    for found in families.judge_in_all_ways(name, attention):
        assert found.outcome in OUTCOMES, found
        if found.outcome == "refused":
            assert re.search("; (choose|load|pass) ", found.reason), found
        before = listed[tuple(getattr(found, each) for each in WAY)]
        # On another machine, rounding may decide near ties otherwise.
        assert {before, found.outcome} <= set(families.EXACT) or before == found.outcome, found


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
        for found in families.judge_both(name, attention):
            assert found.outcome in OUTCOMES, found


def test_the_counts_of_the_page_are_those_of_the_table() -> None:
    table = families.read_table()
    assert set(table["family"]) == set(tiny_models.families())
    groups = table.groupby("family").apply(families.group_of, include_groups=False).value_counts()
    assert groups.get("wrong", 0) == 0
    counted = {name: int(count) for name, count in groups.items()}
    page = (Path(__file__).parents[1] / "docs" / "models.md").read_text(encoding="utf-8")
    stated = re.findall(r"(?m)^\| ([a-z ]+) \| (\d+) \|", page)
    assert {name: int(count) for name, count in stated} == counted
    assert f"Of {groups.sum()} families" in page
    refused = table[table["outcome"] == "refused"]["family"]
    assert set(re.findall(r"(?m)^\| .* \| (?:`([\w-]+)`)", page)) <= set(refused)
