"""Sizes of models that no formula knows: what a run holds, and budgets that it stays within."""

import copy
from typing import Any

import pytest
import torch
from conftest import check_refusal
from test_cost import ceilings  # noqa: F401 - a fixture
from test_plan import make_long_prompts, measured_bytes
from test_states import pair_of, target_of
from transformers import AutoModelForCausalLM, Lfm2Config, Lfm2ForCausalLM, Qwen3NextConfig

import specviz as sv
from specviz.cli.main import main
from specviz.costs.ceilings import CPU_TABLE, Ceilings
from specviz.costs.memory import ALWAYS, memory
from specviz.costs.roofline import Roofline
from specviz.costs.shapes import MeasuredShape
from specviz.engine.options import Options
from specviz.engine.run import make_run
from specviz.generation.measure import measure_config, measure_model

RUN: dict[str, Any] = {"batch_size": 3, "num_draft_tokens": 4, "max_new_tokens": 9}
PROMPTS = [[token % 90 + 6 for token in prompt] for prompt in make_long_prompts(40, 6)]


@pytest.mark.slow
def test_bytes_of_a_published_size():
    """Qwen3-Next 80B has 36 layers of state and 12 that attend; here are three and one of them."""
    types = ["linear_attention"] * 3 + ["full_attention"]
    config = Qwen3NextConfig(num_hidden_layers=4, layer_types=types, num_experts=16)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    shape = measure_model("target", model)
    assert 12 * 32 * 5 * shape.state_bytes == 11.6015625 * 2**30
    slot = shape.kv_bytes_per_slot("bfloat16")
    assert slot == 2 * config.num_key_value_heads * config.head_dim * 2
    assert 3 * shape.state_bytes / slot == 3 * 3168
    # A ring keeps K + 2 states with their numbers.
    tags = 3 * 2 * 8
    assert shape.row_bytes(4) == 6 * (shape.state_bytes + tags)
    assert shape.parameters == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", ["qwen3_next", "lfm2", "jamba", "deepseek_v32"])
def test_parts_are_the_bytes_of_the_tensors(name):
    pair = pair_of(name)
    run = make_run(pair, PROMPTS, Options(**RUN))
    assert list(run.events())
    shapes = [measure_model(role, getattr(pair, role)) for role in ("target", "draft")]
    sizes = {"dtype": "float32", "prompt_tokens": 40, "requests": 6}
    table = memory(*shapes, sv.strategy("inplace"), **sizes | RUN)
    parts = dict(zip(table["part"], table["bytes"], strict=True))
    for role, shape in zip(("target", "draft"), shapes, strict=True):
        cache = run.state.caches[role]
        assert parts[f"{role} K/V"] == sum(slab.nbytes for slab in cache.slabs)
        layers = cache.cache.state_layers
        rings = [ring for layer in layers for ring in layer.rings.values()]
        held = sum(ring.held.nbytes + ring.tags.nbytes for ring in rings)
        assert parts.get(f"{role} states", 0) == held
        assert parts[f"{role} weights"] == sum(p.nbytes for p in getattr(pair, role).parameters())
        assert shape.state_bytes * 3 == sum(ring.held[:, 0].nbytes for ring in rings)
        # Beside the rings, nothing stays between two forwards.
        assert not any(layer.conv_states[0] is not None for layer in layers)
    assert set(table[table["part"].str.endswith("states")]["when"]) <= {ALWAYS}


OPTIONS = [
    {},
    {"strategy": "exspec"},
    {"drafter": "lookup"},
    {"levers": sv.Levers(keep_draft=False)},
    {"strategy": "autoregressive"},
    {"levers": sv.Levers(state="inputs")},
]


@pytest.mark.sweep(12)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", ["qwen3_next", "lfm2", "jamba", "deepseek_v32", "gemma3_text"])
def test_no_run_takes_more_than_its_budget(name, options):
    """At the least budget, which leaves one row, and where all rows fit."""
    pair = pair_of(name)
    run = RUN | {"batch_size": 6} | options
    least = sv.plan("1GB", pair, PROMPTS, **run).least_bytes
    for budget in (least, 4 * least):
        plan = sv.plan(budget, pair, PROMPTS, **run)
        found = measured_bytes(pair, PROMPTS, memory_budget=budget, **run)
        assert plan.weight_bytes + found <= plan.peak_bytes <= budget


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen3_next", "lfm2", "jamba"])
def test_a_plan_of_many_rows_is_not_far_from_what_they_hold(name):
    prompts = [[6 + row, 70] * (1 + row % 4) for row in range(64)]
    run = {"batch_size": 64, "num_draft_tokens": 10, "max_new_tokens": 6}
    plan = sv.plan("4GB", pair_of(name), prompts, **run)
    found = measured_bytes(pair_of(name), prompts, memory_budget="4GB", **run)
    assert 0.5 < found / (plan.peak_bytes - plan.weight_bytes) <= 1


def test_a_round_reads_and_writes_states():
    """One state of each row is read, and one written for each token; a prompt writes two."""
    shape = measure_model("target", target_of("lfm2"))
    line = Roofline(shape, None, Ceilings.load(CPU_TABLE))
    moved = [
        float(line.forward(each, 3, 5, 10, logits=logits).bytes)
        for logits in (True, False)
        for each in (shape, MeasuredShape(**vars(shape) | {"state_bytes": 0}))
    ]
    assert moved[0] - moved[1] == 3 * 6 * shape.state_bytes
    assert moved[2] - moved[3] == 3 * 3 * shape.state_bytes
    more = shape.flops(1, 1, 7) - shape.flops(1, 1, 6)
    assert more == 4 * 4 * 8  # one layer with 4 heads of 8 attends


def test_specviz_cost_counts_states(tmp_path, capsys):
    sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 64}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2}
    for role in ("target", "draft"):
        config = Lfm2Config(layer_types=["conv", "full_attention"], num_hidden_layers=2, **sizes)
        Lfm2ForCausalLM(config).save_pretrained(tmp_path / role)
    folders = ["--target", str(tmp_path / "target"), "--draft", str(tmp_path / "draft")]
    assert main(["cost", *folders, "--batch-sizes", "1", "4"]) == 0
    assert "peak_gb" in capsys.readouterr().out


def test_what_cannot_be_told_is_refused(monkeypatch):
    config = target_of("qwen3_next").config
    check_refusal(
        lambda: measure_config("target", config, "float32"),
        "target=qwen3_next cannot be measured without its weights (ValueError: it routes tokens to",
    )
    model = copy.deepcopy(target_of("lfm2"))
    broken = type("Lfm2ForCausalLM", (Lfm2ForCausalLM,), {"forward": lambda *_, **__: [][0]})
    monkeypatch.setattr(model, "__class__", broken)
    check_refusal(
        lambda: measure_model("target", model),
        "target=Lfm2ForCausalLM cannot be measured without",
    )
