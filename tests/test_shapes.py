"""Sizes read from configurations, against the models that transformers builds from them."""

import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import CLASSES, make_config
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

import specviz as sv
from specviz.costs.shapes import SHAPES, ModelShape, named_pair

KINDS = ("llama", "qwen2", "qwen3", "glm4", "gpt2")


def draw_config(kind: str, seed: int) -> dict[str, Any]:
    """A tiny configuration with every size drawn, and every switch that the class has."""
    pick = random.Random(f"{kind} {seed}")
    heads = pick.choice((2, 4, 6))
    hidden = heads * pick.choice((4, 8, 10))
    ids = {"model_type": kind, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    ids |= {"vocab_size": pick.randint(11, 90), "tie_word_embeddings": pick.random() < 0.5}
    layers = pick.randint(1, 3)
    if kind == "gpt2":
        sizes = {"n_layer": layers, "n_embd": hidden, "n_head": heads}
        inner = {"n_inner": pick.choice((None, 12, 50))}
        return ids | sizes | inner | {"n_positions": pick.randint(5, 40)}
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    config = ids | sizes | {"num_key_value_heads": pick.choice((1, 2, heads))}
    config |= {"intermediate_size": pick.randint(5, 60)}
    if kind != "qwen2":
        config |= {"head_dim": pick.choice((4, 16)), "attention_bias": pick.random() < 0.5}
    if kind == "llama":
        config |= {"mlp_bias": pick.random() < 0.5}
    return config


def build(config: dict[str, Any], device: str = "meta", **options: Any) -> PreTrainedModel:
    with torch.device(device):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), **options)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_are_those_of_the_model(kind: str) -> None:
    for seed in range(8):
        config = draw_config(kind, seed)
        model = build(config)
        shape = ModelShape.from_config(config)
        assert shape == ModelShape.from_config(model.config.to_dict()), (seed, config)
        assert shape.parameters == model.num_parameters(), (seed, config)
        assert shape.weight_bytes("bfloat16") == 2 * shape.parameters


@pytest.mark.parametrize("kind", CLASSES)
def test_slots_hold_what_a_real_cache_holds(kind: str, prompts: list[list[int]]) -> None:
    config = make_config(kind)
    model = build(config.to_dict(), "cpu").double().eval()
    result = sv.generate(sv.Pair(model, model), prompts[:2], max_new_tokens=2, progress=False)
    assert (
        ModelShape.from_config(config.to_dict()).kv_bytes_per_slot("float64")
        == result.meta["kv_bytes_per_slot"]["target"]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_are_those_of_the_class(kind: str) -> None:
    """A configuration that leaves out all it may."""
    small = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 11}
    small |= {"intermediate_size": 7}
    if kind == "gpt2":
        small = {"n_embd": 24, "n_layer": 1, "n_head": 2, "vocab_size": 11, "n_positions": 8}
    elif kind in ("qwen3", "glm4"):
        small["num_key_value_heads"] = 2  # these classes default to those of their published models
    elif kind == "qwen2":
        small["num_key_value_heads"] = 1
    config = {"model_type": kind, **small}
    full = AutoConfig.for_model(**config, pad_token_id=0)
    assert ModelShape.from_config(config) == ModelShape.from_config(full.to_dict())


@pytest.mark.parametrize("logits", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_flops_are_those_that_torch_counts(kind: str, logits: bool) -> None:
    """Count all matrix products but the one that turns positions into rotary angles."""
    config = draw_config(kind, 1)
    model = build(config, "cpu", attn_implementation="eager")
    rows, tokens, shape = 3, 5, ModelShape.from_config(config)
    ids = torch.zeros(rows, tokens, dtype=torch.long)
    counter = FlopCounterMode(display=False)
    with torch.inference_mode(), counter:
        (model if logits else model.base_model)(input_ids=ids, use_cache=False)
    rotary = [
        module.inv_freq.numel()
        for name, module in model.named_modules()
        if name.endswith("rotary_emb")
    ]
    angles = counter.get_total_flops() - shape.flops(rows, tokens, tokens, logits=logits)
    assert angles in {2 * b * tokens * sum(rotary) for b in (0, 1, rows)}


def test_a_forward_reads_every_weight_it_multiplies_by_once() -> None:
    shape = ModelShape(2, 8, 4, 2, 4, 16, 50)
    table = 50 * 8
    fixed = shape.read_bytes("float32", 0, 0)
    assert fixed == 4 * (shape.parameters - table)  # without its input embedding
    assert shape.read_bytes("float32", 0, 0, logits=False) == 4 * (shape.parameters - 2 * table)
    assert shape.read_bytes("float32", 3, 2) - fixed == 4 * 6 * 8
    tied = replace(shape, tied=True)
    # Its one table is the output embedding.
    assert tied.read_bytes("float16", 0, 0) == 2 * tied.parameters
    learned = replace(shape, positions=10)
    assert learned.read_bytes("float32", 1, 1) - learned.read_bytes("float32", 0, 0) == 4 * 2 * 8


def test_launches_count_one_kernel_for_each_operation() -> None:
    """Llama: 2 norms, q, k, v, rotation, write, attention, o, sum, gate, up, activation, down, sum.

    Embedding, norm and head follow once.
    """
    shape = ModelShape(2, 8, 4, 2, 4, 16, 50)
    assert (shape.launches(), shape.launches(logits=False)) == (2 * 15 + 3, 2 * 15 + 2)
    assert replace(shape, head_norms=True).launches() == 2 * 17 + 3
    one_layer = ModelShape.from_config(draw_config("gpt2", 0) | {"n_layer": 1})
    assert one_layer.launches() == 2 + 4 + 5 + 3


@pytest.mark.parametrize(
    ("name", "target", "draft"),
    [
        ("qwen3-8b/0.6b", 8_190_735_360, 596_049_920),
        ("vicuna-7b/68m", 6_738_415_616, 68_030_208),
        ("glm4-9b/0.6b", 9_400_279_040, 629_479_296),
    ],
)
def test_named_shapes_are_the_published_sizes(name: str, target: int, draft: int) -> None:
    """To the last parameter what transformers builds from them, and what their makers publish."""
    assert tuple(shape.parameters for shape in named_pair(name)) == (target, draft)
    configs = SHAPES[name].values()
    for config in configs:
        model = build(config)
        shape = ModelShape.from_config(config)
        assert model.num_parameters() == shape.parameters
        assert ModelShape.from_config(model.config.to_dict()) == shape
    assert len({config["vocab_size"] for config in configs}) == 1


GOOD = draw_config("llama", 0)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "model_type must be one of llama, qwen2, .*, got None"),
        (GOOD | {"model_type": "mamba"}, "model_type must be one of .*, got 'mamba'"),
        ({"model_type": "llama"}, "config must have '.*', which is missing"),
        (GOOD | {"num_hidden_layers": 0}, "layers must be an int >= 1, got 0"),
        (GOOD | {"vocab_size": 10.5}, "vocabulary must be an int >= 1, got 10.5"),
        (
            GOOD | {"num_key_value_heads": 3, "num_attention_heads": 4},
            "kv_heads must divide heads=4, got 3",
        ),
        (GOOD | {"hidden_size": "wide", "head_dim": None}, "must hold sizes that are ints >= 1"),
        (GOOD | {"num_attention_heads": 0, "head_dim": None}, "must hold sizes that are ints >= 1"),
    ],
)
def test_a_configuration_that_cannot_be_read_says_why(config: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelShape.from_config(config)


def test_other_bad_input() -> None:
    with pytest.raises(ValueError, match=r"shapes must be one of qwen3-8b/0\.6b, .*, got 'qwen'"):
        named_pair("qwen")
