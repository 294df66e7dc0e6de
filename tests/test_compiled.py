"""Compiled forwards: weights laid out for the products, on a model that stays as it is."""

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from conftest import generate, make_pair, make_prompts
from torch import nn
from transformers import PreTrainedModel

import specviz as sv
from specviz.engine.kv import cache, compiled
from specviz.engine.kv.compiled import CompiledLayers, CompiledModel, transposed_weights
from specviz.engine.models.layers import find_layers


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """Compile nothing; return the options that were asked for."""
    asked: list[dict[str, object]] = []

    def compile(model: nn.Module, options: dict[str, object]) -> nn.Module:
        asked.append(options)
        return model

    monkeypatch.setattr(torch, "compile", compile)
    return asked


def test_weights_are_transposed_within_a_call_and_theirs_again_after_it(
    uncompiled: list[dict[str, object]],
) -> None:
    model = make_pair("llama").target
    ids = torch.tensor([[5, 9, 3]])
    before = dict(model.named_parameters(remove_duplicate=False))
    expected = model(ids).logits
    strides = []
    layer = model.model.layers[0].mlp.up_proj
    hook = layer.register_forward_pre_hook(lambda *_: strides.append(layer.weight.stride()))
    call = CompiledModel(model)
    torch.testing.assert_close(call(input_ids=ids).logits, expected)
    hook.remove()
    assert strides == [(1, layer.out_features)]
    assert uncompiled == [{"cpp_wrapper": True}]

    with pytest.raises(ValueError, match="inputs_embeds"):
        call(input_ids=ids, inputs_embeds=torch.zeros(1, 3, 8))
    after = dict(model.named_parameters(remove_duplicate=False))
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)


def test_copies_are_those_of_the_weights_at_the_start_of_a_run(
    uncompiled: list[dict[str, object]],
) -> None:
    """Weights that change between runs take effect, since each run makes its own copies."""
    layers = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False))
    for _ in range(2):
        copies = transposed_weights(layers)
        assert len(copies) == 2
        for layer, (parameters, copy) in zip(layers, copies, strict=True):
            assert parameters is layer._parameters
            assert torch.equal(copy, layer.weight)
            assert copy.t().is_contiguous()
        with torch.no_grad():
            layers[0].weight += 1


def test_what_would_not_gain_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    class Quantized(nn.Linear):
        """Its weight may mean something else."""

    assert transposed_weights(nn.Sequential(Quantized(3, 4), nn.Linear(3, 4).bfloat16())) == []
    assert len(transposed_weights(nn.Linear(3, 4))) == 1
    monkeypatch.setattr(compiled, "MAX_COPIED_BYTES", 3 * 4 * 4 - 1)
    assert transposed_weights(nn.Linear(3, 4)) == []


def count_graphs(name: str, num_layers: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many graphs a run of compiled layers makes; check that it writes the same text."""
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: object) -> Callable[..., object]:
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    compile = torch.compile
    pair = deepened(make_pair(name), num_layers)
    options = {"batch_size": 2, "max_new_tokens": 8, "num_draft_tokens": 3, "strategy": "inplace"}
    prompts = make_prompts()[2:5]
    with monkeypatch.context() as patch:
        patch.setattr(torch, "compile", lambda call: compile(call, backend=backend))
        patch.setattr(cache, "compiled", lambda model: CompiledLayers(model, layers_of(model)))
        texts = generate(pair, prompts, compile=True, **options).tokens
    assert texts == generate(pair, prompts, **options).tokens
    for model in (pair.target, pair.draft):
        assert all(layer._compiled_call_impl is None for layer in layers_of(model))
    return len(graphs)


def layers_of(model: PreTrainedModel) -> nn.ModuleList:
    found = find_layers(model)
    assert found is not None
    return found[1]


def deepened(pair: sv.Pair, num_layers: int) -> sv.Pair:
    """Return the pair with its layers repeated until there are `num_layers`."""
    models = []
    for model in (deepcopy(pair.target), deepcopy(pair.draft)):
        layers = layers_of(model)
        for number in range(len(layers), num_layers):
            layer = deepcopy(layers[0], {id(model.config): model.config})
            layer.self_attn.layer_idx = number
            layers.append(layer)
        model.config.num_hidden_layers = num_layers
        if getattr(model.config, "layer_types", None) is not None:
            model.config.layer_types = [model.config.layer_types[0]] * num_layers
        models.append(model)
    return sv.Pair(*models)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "qwen3", "glm4"])
def test_one_layers_code_serves_all(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few = count_graphs(name, 3, monkeypatch)
    assert 0 < count_graphs(name, 6, monkeypatch) <= few


@pytest.mark.gpu
@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("strategy", ["inplace", "eqspec"])
@pytest.mark.parametrize("drafter", ["model", "eagle3"])
def test_layers_compiled_for_a_gpu_write_the_same_text(
    drafter: str, strategy: str, graphs: bool
) -> None:
    pair = sv.load_pair(device="cuda")
    options = {"batch_size": 3, "max_new_tokens": 24, "num_draft_tokens": 3, "drafter": drafter}
    prompts = sv.load_prompts()[:4]
    expected = generate(pair, prompts, strategy="autoregressive", batch_size=1, max_new_tokens=24)
    result = generate(pair, prompts, strategy=strategy, graphs=graphs, compile=True, **options)
    assert result.tokens == expected.tokens
