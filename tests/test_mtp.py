"""MTP layers of a target as a drafter: its drafts are those of the definition, in every batch."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from conftest import check_refusal, generate, make_pair
from families import as_float64, prompts
from from_nothing import check_drafts
from packaging.version import Version
from safetensors.torch import load_file, save_file
from tiny_models import EOS, tiny_model
from transformers import AutoModelForCausalLM, PreTrainedModel

import specviz as sv
from specviz.engine.heads import build_head

STRATEGIES = ("inplace", "eqspec", "exspec", "masking", "rollback")
# Checkpoints of these come with MTP layers; some transformers builds only where it is told to.
FAMILIES = (
    "llama", "glm4_moe", "deepseek_v3", "exaone_moe", "mellum", "qwen3_5_text", "qwen3_next",
    "bailing_hybrid", "mimo_v2_flash", "solar_open", "hy_v3", "ernie4_5_moe", "youtu", "axk1",
    "kimi_linear", "qwen3_5_moe_text", "glm4_moe_lite", "olmo_hybrid",
)  # fmt: skip
NEW_TOKENS = 10
K = 4
RUN: dict[str, Any] = {"num_draft_tokens": K, "max_new_tokens": NEW_TOKENS, "batch_size": 3}


@cache
def pair_of(family: str, num_layers: int) -> sv.Pair:
    """A random target of the family with random MTP layers, some of whose drafts are right."""
    target = tiny_model(family)
    target.generation_config.eos_token_id = EOS
    as_float64(target)
    with torch.no_grad():
        # Of few tokens that the LM head prefers, the layers guess some.
        target.get_output_embeddings().weight[6:10] *= 3
    head = build_head("mtp", target, num_layers=num_layers, seed=1)
    if hasattr(head.config, "_experts_implementation"):
        head.set_experts_implementation("eager")
    head = head.double().eval().requires_grad_(False)
    return sv.Pair(target, heads={"mtp": head})


def alone(pair: sv.Pair, texts: list[list[int]], **options: Any) -> list[list[int]]:
    options = {"strategy": "autoregressive", "max_new_tokens": NEW_TOKENS} | options
    return generate(pair, texts, batch_size=1, **options).tokens


@pytest.mark.sweep(6)
@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_drafts_are_those_from_nothing(family, num_layers):
    """Whatever was accepted before, whatever the strategy; and so is the text, and what is kept."""
    pair = pair_of(family, num_layers)
    strategy = STRATEGIES[FAMILIES.index(family) % 5]
    texts = check_drafts(pair, "mtp", prompts(), strategy=strategy, **RUN)
    assert texts == alone(pair, prompts())


@pytest.mark.parametrize("num_draft_tokens", [1, 2, 3, 6])
def test_drafts_may_be_fewer_or_more_than_layers(num_draft_tokens):
    pair = pair_of("deepseek_v3", 3)
    options = RUN | {"num_draft_tokens": num_draft_tokens, "strategy": "inplace"}
    check_drafts(pair, "mtp", prompts(), **options)


@pytest.mark.parametrize("strategy", ["exspec", "masking", "eqspec"])
def test_rows_that_move_and_prompts_in_parts_keep_what_layers_made(strategy):
    """Layer k reads what layer k - 1 made of the token before, perhaps in another row."""
    pair = pair_of("glm4_moe", 3)
    for levers in (None, sv.Levers(prefill_tokens=4), sv.Levers(keep_draft=False)):
        check_drafts(pair, "mtp", prompts(), levers=levers, strategy=strategy, **RUN)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_record_of_several_layers_holds(strategy):
    known = pair_of("llama", 3)
    head = build_head("mtp", make_pair("llama").target, num_layers=3).eval()
    head.load_state_dict(
        {name: each.float() for name, each in known.heads["mtp"].state_dict().items()}
    )
    pair = replace(make_pair("llama"), heads={"mtp": head})
    result = generate(pair, prompts(), drafter="mtp", strategy=strategy, record=True, **RUN)
    assert not sv.check_invariants(result.trace, deep=True, pair=pair)


def test_without_reading_again_the_record_tells():
    pair = pair_of("llama", 2)
    stale = sv.drafter("mtp", reread=False)
    options = {"num_draft_tokens": K, "max_new_tokens": 24, "batch_size": 3, "record": True}
    result = generate(pair, prompts(), drafter=stale, **options)
    assert result.tokens == alone(pair, prompts(), max_new_tokens=24)
    found = sv.check_invariants(result.trace)
    assert (found[0].rule, found[0].model) == ("caches", "draft")
    assert "not read again" in found[0].found


# --- where the layers come from ---


def write_checkpoint(target: PreTrainedModel, head: Any, folder: Path) -> None:
    """Write a checkpoint with an MTP layer, named as in checkpoints of Qwen3.5."""
    target.save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    names = {
        "mtp_block.": "",
        "layers.0.eh_proj.": "fc.",
        "layers.0.enorm.": "pre_fc_norm_embedding.",
        "layers.0.hnorm.": "pre_fc_norm_hidden.",
        "layers.0.post_norm.": "norm.",
    }
    for name, weight in head.state_dict().items():
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        weights[f"mtp.{name}"] = weight.clone()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.skipif(
    Version(transformers.__version__) < Version("5.23"),
    reason="earlier releases of transformers read other layouts of MTP layers",
)
@pytest.mark.parametrize("family", ["qwen3_5_text", "exaone_moe"])
def test_layers_are_read_from_the_targets_own_checkpoint(family, tmp_path):
    made = tiny_model(family)
    made.config.mtp_num_hidden_layers = 1
    head = build_head("mtp", made)
    write_checkpoint(made, head, tmp_path)
    before = dict(vars(made.config))
    pair = sv.load_heads(None, sv.Pair(AutoModelForCausalLM.from_pretrained(tmp_path)))
    read = pair.heads["mtp"].state_dict()
    assert all(torch.equal(weight, read[name]) for name, weight in head.state_dict().items())
    assert vars(made.config) == before
    result = generate(pair, [[7, 8, 9]], drafter="mtp", num_draft_tokens=2, max_new_tokens=5)
    assert result.tokens == alone(pair, [[7, 8, 9]], max_new_tokens=5)


def test_a_checkpoint_without_such_layers_is_refused(tmp_path):
    made = tiny_model("llama")
    check_refusal(
        lambda: sv.load_heads(None, sv.Pair(made)),
        "target=LlamaForCausalLM has a config that states no MTP layers",
    )
    made.config.num_nextn_predict_layers = 1
    made.save_pretrained(tmp_path)
    read = AutoModelForCausalLM.from_pretrained(tmp_path)
    check_refusal(
        lambda: sv.load_heads(None, sv.Pair(read)),
        "the MTP layers of target=LlamaForCausalLM cannot be read from",
    )
    check_refusal(
        lambda: generate(sv.Pair(read), [[7]], drafter="mtp"),
        "drafter='mtp' needs a head",
        "load_heads(None, pair)",
    )


@pytest.mark.parametrize("family", ["inkling_text", "longcat_flash", "gpt2", "zamba2"])
def test_layers_that_cannot_be_kept_are_refused(family):
    target = make_pair("gpt2").target if family == "gpt2" else tiny_model(family)
    check_refusal(lambda: build_head("mtp", target), f"target={type(target).__name__} has ")


def test_making_layers_leaves_the_target_as_it_was():
    target = tiny_model("qwen3_next")
    settings = dict(vars(target.config))
    weights = {name: weight.clone() for name, weight in target.state_dict().items()}
    build_head("mtp", target, num_layers=2)
    assert vars(target.config) == settings
    assert all(torch.equal(weight, weights[name]) for name, weight in target.state_dict().items())


def test_a_pair_may_have_no_draft_model():
    pair = pair_of("llama", 1)
    assert pair.draft is pair.target
    assert replace(pair, heads={}).draft is pair.target
