"""Compiled forwards: weights laid out for the products, on a model that stays as it is."""

import pytest
import torch
from conftest import make_pair
from torch import nn

from specviz.engine.kv import compiled
from specviz.engine.kv.compiled import CompiledModel, transposed_weights


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
