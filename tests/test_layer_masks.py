"""Layers that attend to a window or a chunk: masks by rank, and texts in ragged batches."""

import copy
import dataclasses
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import tiny_models
import torch
from conftest import NEW_TOKENS, check_refusal, generate, generate_alone, make_prompts
from families import judge, perturbed
from transformers import AutoModelForCausalLM, PreTrainedModel

import specviz as sv
from specviz.engine.kv import layer_masks
from specviz.engine.kv.layer_masks import LayerMasks, chunked, shrunk, sliding
from specviz.engine.models.compat import FULL, SLIDING, layer_types
from specviz.engine.trial import check_exact

WIDTH = 8  # of the windows and chunks of `tiny_models`
FAMILIES = ("gemma3_text", "mistral", "llama4_text", "gpt_oss", "gpt_neo")
STRATEGIES = ("inplace", "eqspec", "exspec", "masking", "rollback")
TREE = sv.drafter("tree", children=2, depth=3)


@cache
def pair_of(name: str) -> sv.Pair:
    config = tiny_models.make_config(tiny_models.families()[name])
    attention = "eager" if name in ("gpt_oss", "gpt_neo") else "sdpa"
    target = tiny_models.build(name, config, attention)
    return sv.Pair(target, perturbed(target))


@cache
def texts_of(name: str) -> list[list[int]]:
    return generate_alone(pair_of(name).target, make_prompts(), NEW_TOKENS)


@pytest.mark.parametrize("width", [1, 3, 8])
def test_a_mask_counts_tokens_and_not_slots(width: int) -> None:
    generator = np.random.default_rng(width)
    visible = torch.from_numpy(generator.random((6, 5, 40)) < 0.6)
    visible[..., -1] = True
    for found, sees in (
        (sliding(visible, width), lambda tokens: tokens[-width:]),
        (chunked(visible, width), lambda tokens: tokens[(len(tokens) - 1) // width * width :]),
    ):
        for mask, all_visible in zip(found.flatten(0, 1), visible.flatten(0, 1), strict=True):
            tokens = all_visible.nonzero()[:, 0].tolist()
            assert mask.nonzero()[:, 0].tolist() == sees(tokens)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", FAMILIES)
def test_ragged_batches_write_what_the_target_writes_alone(name: str, strategy: str) -> None:
    result = generate(
        pair_of(name), make_prompts(), strategy=strategy, batch_size=4, num_draft_tokens=3,
        max_new_tokens=NEW_TOKENS, record=True,
    )  # fmt: skip
    assert result.tokens == texts_of(name)
    found = sv.check_invariants(result.trace, deep=True, pair=pair_of(name))
    assert not found
    assert not found.unchecked


@pytest.mark.sweep(4)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", FAMILIES)
def test_windows_that_count_rejected_drafts_are_found(name: str, strategy: str) -> None:
    faulty = sv.strategy(strategy, break_invariant="window", rows=[1], from_round=2)
    options = {"batch_size": 4, "num_draft_tokens": 3, "max_new_tokens": NEW_TOKENS}
    result = generate(pair_of(name), make_prompts(), strategy=faulty, record=True, **options)
    assert result.tokens != texts_of(name)
    found = sv.check_invariants(result.trace)
    assert {(each.rule, each.row) for each in found} == {("window", 1)}
    assert found[0].round >= 2
    again = sv.check_invariants(result.trace, deep=True, pair=pair_of(name))
    assert {each.rule for each in again} <= {"window", "kv"}


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "options",
    [
        {"strategy": "inplace", "drafter": TREE},
        {"strategy": "masking", "drafter": TREE},
        {"deterministic": True},
        {"levers": sv.Levers(prefill_tokens=3, keep_draft=False)},
        {"lanes": 2},
        {"selector": "tetris"},
        {"drafter": "lookup"},
    ],
    ids=str,
)
def test_options_keep_the_text(options: dict[str, Any]) -> None:
    result = generate(
        pair_of("gemma3_text"), make_prompts(), batch_size=4, max_new_tokens=NEW_TOKENS, **options
    )
    assert result.tokens == texts_of("gemma3_text")


def test_sampled_texts_are_those_of_the_target() -> None:
    how = {"max_new_tokens": NEW_TOKENS, "sampling": sv.SamplingParams(0.8, coupling="gumbel")}
    pair = pair_of("gemma3_text")
    alone = generate(pair, make_prompts(), strategy="autoregressive", batch_size=1, **how)
    for strategy in ("masking", "exspec"):
        together = generate(pair, make_prompts(), strategy=strategy, batch_size=4, **how)
        assert together.tokens == alone.tokens


def test_pairs_of_mixed_kinds(embedded: sv.Pair) -> None:
    windowed = pair_of("gemma3_text").target
    full = tiny_models.build(
        "llama", tiny_models.make_config(tiny_models.families()["llama"]), "sdpa"
    )
    for target, draft in ((windowed, full), (full, windowed)):
        result = generate(sv.Pair(target, draft), make_prompts(), max_new_tokens=NEW_TOKENS)
        assert result.tokens == generate_alone(target, make_prompts(), NEW_TOKENS)


def test_the_trial_sees_what_a_window_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    target = copy.deepcopy(pair_of("gemma3_text").target)
    monkeypatch.setattr(LayerMasks, "masks", lambda self, visible, make: make(visible))
    check_refusal(lambda: check_exact("target", target), "target=Gemma3ForCausalLM cannot be")
    assert target.config.sliding_window == WIDTH


def test_the_trial_sees_a_table_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    target = copy.deepcopy(pair_of("gpt_neo").target)
    monkeypatch.setattr(layer_masks, "sliding", lambda visible, width: visible)
    check_refusal(lambda: check_exact("target", target), "target=GPTNeoForCausalLM cannot be")
    assert all("bias" not in vars(module) for module in target.modules())


@pytest.mark.parametrize("options", [{"lanes": 2}, {"compile": True}], ids=str)
def test_a_table_of_columns_is_not_replaced_everywhere(options: dict[str, Any]) -> None:
    call = partial(generate, pair_of("gpt_neo"), make_prompts()[:2], batch_size=2, **options)
    check_refusal(call, "target=GPTNeoForCausalLM masks columns")


def test_a_trial_leaves_the_configuration_as_it_was() -> None:
    config = pair_of("llama4_text").target.config
    before = copy.deepcopy(config).to_dict()
    with shrunk(pair_of("llama4_text").target, 4):
        assert config.attention_chunk_size == 4
    assert config.to_dict() == before


@pytest.mark.slow
def test_layers_that_read_the_k_v_of_others() -> None:
    config = tiny_models.make_config(
        tiny_models.families()["gemma3n_text"], num_hidden_layers=4, num_kv_shared_layers=2,
        layer_types=["sliding_attention", "full_attention"] * 2,
    )  # fmt: skip
    torch.manual_seed(0)
    target: PreTrainedModel = AutoModelForCausalLM.from_config(config).eval()
    result = generate(sv.Pair(target, perturbed(target)), make_prompts(), max_new_tokens=NEW_TOKENS)
    assert result.tokens == generate_alone(target, make_prompts(), NEW_TOKENS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["phi3", "starcoder2", "mixtral", "phimoe", "ministral3", "qwen2_moe", "qwen3_moe", "qwen3"],
)
def test_windows_that_are_off_by_default(name: str) -> None:
    changes = {"sliding_window": WIDTH, "use_sliding_window": True, "layer_types": [SLIDING, FULL]}
    config_class = tiny_models.families()[name]
    known = {field.name for field in dataclasses.fields(config_class)}
    used = {key: value for key, value in changes.items() if key in known}
    assert SLIDING in layer_types(tiny_models.make_config(config_class, **used))
    assert judge(name, "eager", **used).outcome == "exact"


def test_what_an_indexer_selects_is_not_recorded() -> None:
    result = generate(pair_of("deepseek_v32"), make_prompts()[:3], max_new_tokens=4, record=True)
    found = sv.check_invariants(result.trace)
    assert not found
    assert found.unchecked[0].startswith(
        "mask (target): which of the visible tokens its layers sel"
    )
