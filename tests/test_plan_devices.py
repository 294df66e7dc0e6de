"""Plans for models that a device_map spreads: what lies where, and that runs stay within them."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import generate, make_pair, make_prompts
from test_pair import save
from test_plan import measured_bytes

import specviz as sv
from specviz.generation.devices import by_device

RUN: dict[str, Any] = {"batch_size": 3, "num_draft_tokens": 4, "max_new_tokens": 8}
MAP = {"model.embed_tokens": 0, "model.layers.0": 0, "model.layers.1": 1, "model.rotary_emb": 0}
MAP |= {"model.layers.2": 1, "model.norm": 1, "lm_head": 1}


def spread(places: dict[str, Any]) -> sv.Pair:
    """A pair whose target says that it is laid out so. It runs nothing."""
    plain = make_pair("llama")
    target = copy.deepcopy(plain.target)
    pair = sv.Pair(target, plain.draft)
    target.hf_device_map = places
    return pair


def test_each_device_has_its_layers_and_a_share_of_the_kv() -> None:
    pair = spread(MAP)
    plan = sv.plan("1GB", pair, make_prompts(), **RUN)
    table = plan.devices.set_index("device")
    assert list(table.index) == ["cuda:0", "cuda:1", "cpu"]
    assert list(table["layers"]) == ["0", "1-2", ""]
    sizes = dict(zip(plan.parts["part"], plan.parts["bytes"], strict=True))
    target_kv = table["kv_bytes"][["cuda:0", "cuda:1"]]
    assert list(target_kv) == [sizes["target K/V"] / 3, sizes["target K/V"] / 3 * 2]
    assert table["kv_bytes"]["cpu"] == sizes["draft K/V"]
    assert table["weight_bytes"].sum() == plan.weight_bytes
    first = [pair.target.model.embed_tokens, pair.target.model.layers[0]]
    assert table["weight_bytes"]["cuda:0"] == sum(p.nbytes for m in first for p in m.parameters())
    assert table["work_bytes"].nunique() == 1
    # Nothing is left out: with one device, its peak is that of the plan.
    held = table["weight_bytes"].sum() + table["kv_bytes"].sum() + table["work_bytes"].max()
    assert held == plan.peak_bytes
    assert "cuda:1: layers 1-2 of the target, " in repr(plan)


def test_weights_that_wait_elsewhere_have_their_kv_where_they_run() -> None:
    pair = spread(dict.fromkeys(MAP, 0) | {"model.layers.1": "cpu", "lm_head": "disk"})
    table = sv.plan("1GB", pair, make_prompts(), **RUN).devices.set_index("device")
    assert table["layers"].to_dict() == {"cuda:0": "0-2", "cpu": "", "disk": ""}
    assert table["weight_bytes"]["disk"] > 0
    assert table["kv_bytes"]["disk"] == table["work_bytes"]["disk"] == 0


def test_without_a_device_map_there_is_one_device() -> None:
    pair = make_pair("llama")
    plan = sv.plan("1GB", pair, make_prompts(), **RUN)
    assert list(plan.devices["device"]) == ["cpu"]
    assert list(plan.devices["layers"]) == ["0-2"]
    assert list(plan.devices["peak_bytes"]) == [plan.peak_bytes]
    assert "layers" not in repr(plan)
    alone = sv.plan("1GB", pair, make_prompts(), strategy="autoregressive", **RUN)
    assert alone.devices["weight_bytes"].sum() == alone.weight_bytes


def test_layers_are_written_as_spans() -> None:
    pair = make_pair("llama")
    pair.target.hf_device_map = {"model.layers.0": 1, "model.layers.2": 1, "": 0}
    try:
        parts = list(sv.plan("1GB", pair, [[1]]).parts.itertuples(index=False, name=None))
        table = by_device([pair.target], parts)
    finally:
        del pair.target.hf_device_map
    assert table.set_index("device")["layers"].to_dict() == {"cuda:1": "0, 2", "cuda:0": "1"}


@pytest.mark.slow
def test_a_run_with_a_device_map_stays_within_its_budget() -> None:
    """Laid out by accelerate, module by module, on the one device that every machine has."""
    accelerate = pytest.importorskip("accelerate", reason="device_map needs accelerate")
    whole = make_pair("llama")
    places = dict.fromkeys(MAP, "cpu")
    how = {"device_map": places, "main_device": "cpu", "force_hooks": True}
    target = accelerate.dispatch_model(copy.deepcopy(whole.target), **how)
    assert target.hf_device_map == places
    pair = sv.Pair(target, whole.draft)
    budget = int(1.2 * sv.plan("1GB", pair, make_prompts(), **RUN).least_bytes)
    plan = sv.plan(budget, pair, make_prompts(), **RUN)
    assert list(plan.devices["device"]) == ["cpu"]
    assert plan.devices["peak_bytes"].sum() == plan.peak_bytes <= budget
    result = generate(pair, make_prompts(), memory_budget=budget, **RUN)
    assert result.tokens == generate(whole, make_prompts(), **RUN).tokens
    found = measured_bytes(pair, make_prompts(), memory_budget=budget, **RUN)
    assert plan.weight_bytes + found <= budget


@pytest.mark.gpu
def test_no_device_exceeds_what_the_plan_says(tmp_path: Path) -> None:
    """A target over a GPU and, where there is one, a second GPU."""
    pytest.importorskip("accelerate", reason="device_map needs accelerate")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    target = save(tmp_path / "target")
    draft = save(tmp_path / "draft", num_hidden_layers=1)
    second = 1 if torch.cuda.device_count() > 1 else 0
    places = MAP | {name: second for name, place in MAP.items() if place == 1}
    pair = sv.load_pair(target, draft, device_map=places, dtype="float32")
    generate(pair, [[1, 2]], max_new_tokens=1)  # the trial of the models comes before
    plan = sv.plan("1GB", pair, make_prompts(), **RUN)
    before = {}
    for number in {0, second}:
        torch.cuda.reset_peak_memory_stats(number)
        before[number] = torch.cuda.memory_stats(number)["requested_bytes.all.current"]
    generate(pair, make_prompts(), memory_budget="1GB", **RUN)
    peaks = plan.devices.set_index("device")
    for number, held in before.items():
        peak = torch.cuda.memory_stats(number)["requested_bytes.all.peak"] - held
        entry = peaks.loc[f"cuda:{number}"]
        assert peak <= entry["peak_bytes"] - entry["weight_bytes"]
