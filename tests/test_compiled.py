"""Compiled forwards: weights laid out for the products, on a model that stays as it is."""

import shutil
from collections.abc import Callable, Sequence
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest
import torch
from conftest import generate, make_pair, make_prompts
from torch import nn
from transformers import PreTrainedModel
from transformers.models.llama import modeling_llama

import specviz as sv
from specviz.engine.kv import cache, compiled
from specviz.engine.kv.compiled import CompiledLayers, CompiledModel, transposed_weights
from specviz.engine.kv.compiler import compiler_settings
from specviz.engine.kv.model_state import state_of
from specviz.engine.models.compat import find_layers


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """Compile nothing; return the options that were asked for."""
    asked: list[dict[str, object]] = []

    def compile(call: Callable[..., object], options: dict[str, object]) -> Callable[..., object]:
        asked.append(dict(options))
        options.clear()  # torch takes things out of it, too
        return call

    monkeypatch.setattr(torch, "compile", compile)
    monkeypatch.setattr(compiled, "_known", WeakKeyDictionary())
    return asked


def test_weights_are_transposed_within_a_call_and_theirs_again_after_it(
    uncompiled: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "FEW_TOKENS", 2)
    monkeypatch.setattr(compiled, "late_inlining", lambda: None)
    model = make_pair("llama").target
    ids = torch.tensor([[5, 9, 3]])
    before = dict(model.named_parameters(remove_duplicate=False))
    expected = model(ids).logits
    strides = []
    layer = model.model.layers[0].mlp.up_proj
    hook = layer.register_forward_pre_hook(lambda *_: strides.append(layer.weight.stride()))
    call = CompiledModel(model)
    torch.testing.assert_close(call(input_ids=ids).logits, expected)
    assert strides == [(1, layer.out_features)]
    call(input_ids=ids[:, :2])
    assert strides[1:] == [(layer.in_features, 1)], "packed weights need no copies"
    hook.remove()
    plain, packed = uncompiled
    assert plain["cpp_wrapper"]
    assert "freezing" not in plain
    assert packed["cpp_wrapper"]
    assert packed["freezing"]
    assert "cpp.march" not in packed
    assert plain["guard_filter_fn"] is packed["guard_filter_fn"] is compiled._of_arguments

    with pytest.raises(ValueError, match="inputs_embeds"):
        call(input_ids=ids, inputs_embeds=torch.zeros(1, 3, 8))
    after = dict(model.named_parameters(remove_duplicate=False))
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)


def traced_only(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let torch trace what it compiles, and run it as it is. Return a list of the variants."""
    variants: list[str] = []

    def compile(call: Callable[..., object], options: dict[str, object]) -> Callable[..., object]:
        def backend(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., object]:
            variants.append(call.__code__.co_name)
            return graph.forward

        checks = {"guard_filter_fn": options.pop("guard_filter_fn")}
        return compile_with(call, backend=backend, options=checks)

    compile_with = torch.compile
    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", compile)
    monkeypatch.setattr(compiled, "_known", WeakKeyDictionary())
    return variants


@pytest.mark.slow
def test_a_call_checks_its_arguments_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others take as long as half of a small model's forward."""
    checked: list[str] = []

    def observed(guards: Sequence[Any]) -> Sequence[bool]:
        kept = of_arguments(guards)
        checked.extend(guard.name for guard, is_kept in zip(guards, kept, strict=True) if is_kept)
        return kept

    of_arguments = compiled._of_arguments
    monkeypatch.setattr(compiled, "_of_arguments", observed)
    variants = traced_only(monkeypatch)
    with torch.inference_mode():
        CompiledModel(make_pair("llama").target)(
            input_ids=torch.tensor([[5, 9, 3]]), use_cache=False
        )
    assert len(variants) == 1
    assert "arguments['input_ids']" in checked
    of_others = [name for name in checked if name and not name.startswith("arguments")]
    assert not of_others


def add_hook(model: PreTrainedModel) -> None:
    model.model.layers[0].register_forward_hook(lambda *_: None)


def replace_hook(model: PreTrainedModel) -> None:
    hooks = model.model.layers[1]._forward_hooks
    hooks[next(iter(hooks))] = lambda *_: None


def choose_other_adapter(model: PreTrainedModel) -> None:
    model.model.layers[0]._active_adapter[0] = "other"


def change_setting(model: PreTrainedModel) -> None:
    model.config._attn_implementation = "eager"


def change_forward(model: PreTrainedModel) -> None:
    model.model.norm.forward = lambda hidden: hidden


def change_one_weight(model: PreTrainedModel) -> None:
    model.lm_head.weight.data[0, 0] += 1e-3


def swap_two_weights(model: PreTrainedModel) -> None:
    rows = model.lm_head.weight.data
    rows[[0, 1]] = rows[[1, 0]].clone()


def replace_function(model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """As libraries with faster kernels do."""
    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", lambda *_: None)


def replace_what_a_function_uses(model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modeling_llama, "rotate_half", lambda hidden: hidden)


def replace_method(model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modeling_llama.LlamaMLP, "forward", lambda _, hidden: hidden)


def replace_torchs_function(model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.functional, "silu", lambda hidden: hidden)


def add_global_hook(model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = dict(nn.modules.module._global_forward_hooks)
    monkeypatch.setattr(nn.modules.module, "_global_forward_hooks", hooks | {0: print})


CHANGES = [
    add_hook,
    replace_hook,
    choose_other_adapter,
    change_setting,
    change_forward,
    change_one_weight,
    swap_two_weights,
]
REPLACEMENTS = [
    replace_function,
    replace_what_a_function_uses,
    replace_method,
    replace_torchs_function,
    add_global_hook,
]


@pytest.mark.parametrize("replace", REPLACEMENTS)
def test_a_model_whose_code_was_replaced_has_another_state(
    replace: Callable[[PreTrainedModel, pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Calls do not check functions and classes, so a run does when it begins."""
    model = make_pair("llama").target
    before = state_of(model, with_values=True)
    assert state_of(model, with_values=True) == before
    replace(model, monkeypatch)
    assert state_of(model, with_values=True) != before
    monkeypatch.undo()
    assert state_of(model, with_values=True) == before


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_model_is_compiled_again(
    change: Callable[[PreTrainedModel], None], uncompiled: list[dict[str, object]]
) -> None:
    """Calls do not check modules and weights, so a run does when it begins."""
    model = deepcopy(make_pair("llama").target)
    model.model.layers[0]._active_adapter = ["default"]  # as peft names its choice
    model.model.layers[1].register_forward_hook(lambda *_: None)
    ids = torch.tensor([[5, 9, 3]])
    for _ in range(2):
        CompiledModel(model)(input_ids=ids)
    assert len(uncompiled) == 2, "the code with packed weights, and without"
    first = uncompiled[1]["aot_inductor.metadata"]
    change(model)
    CompiledModel(model)(input_ids=ids)
    assert len(uncompiled) == 4
    has_other_weights = uncompiled[3]["aot_inductor.metadata"] != first
    assert has_other_weights == (change in (change_one_weight, swap_two_weights))


def test_a_larger_model_is_not_packed(
    uncompiled: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "MAX_PACKED_BYTES", 1)
    call = CompiledModel(make_pair("llama").target)
    call(input_ids=torch.tensor([[5, 9, 3]]))
    assert call._packed is None
    assert len(uncompiled) == 1


@pytest.mark.parametrize(
    ("system", "machine", "is_gcc", "march", "expected"),
    [
        ("Linux", "x86_64", True, None, "native -fno-early-inlining"),
        ("Linux", "x86_64", True, "x86-64-v3", "x86-64-v3 -fno-early-inlining"),
        ("Linux", "x86_64", True, "", None),
        ("Linux", "x86_64", False, None, None),
        ("Linux", "aarch64", True, None, None),
        ("Darwin", "x86_64", True, None, None),
    ],
)
def test_gcc_inlines_late_where_torch_can_pass_it_on(
    system: str,
    machine: str,
    is_gcc: bool,
    march: str | None,
    expected: str | None,
    uncompiled: list[dict[str, object]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With that flag, packed weights are the faster ones for any number of tokens."""
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr("torch._inductor.cpp_builder.is_gcc", lambda: is_gcc)
    monkeypatch.setattr(compiled, "FEW_TOKENS", 2)
    config = torch._inductor.config
    if not hasattr(config.cpp, "march"):
        pytest.skip("this torch passes no processor on to the compiler")
    with config.patch({"cpp.march": march}):
        call = CompiledModel(make_pair("llama").target)
        call(input_ids=torch.tensor([[5, 9, 3]]))
    assert uncompiled[1].get("cpp.march") == expected
    assert (call._copies is None) == (expected is not None), "copies are made where they are read"


def test_a_machine_without_a_compiler_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find() -> str:
        raise torch._inductor.exc.InvalidCxxCompiler

    import_module("torch._inductor.cpp_builder")
    monkeypatch.setattr("torch._inductor.cpp_builder.get_cpp_compiler", find)
    said = "^compile=True needs a C\\+\\+ compiler on a CPU, and torch found none; install g\\+\\+"
    pair = make_pair("llama")
    forwards = 0

    def count(*_: object) -> None:
        nonlocal forwards
        forwards += 1

    hooks = [model.register_forward_hook(count) for model in (pair.target, pair.draft)]
    with pytest.raises(ValueError, match=said):
        sv.generate(pair, [[5, 9, 3]], max_new_tokens=4, compile=True, progress=False)
    for hook in hooks:
        hook.remove()
    assert forwards == 0


def test_a_head_reads_features_that_lie_at_the_start_of_their_memory(
    embedded: sv.Pair, uncompiled: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled code for a view depends on its offset, so each offset would be compiled for."""
    offsets = []
    call = CompiledModel.__call__

    def observed(self: CompiledModel, **arguments: object) -> object:
        features = arguments.get("features")
        if isinstance(features, torch.Tensor):
            offsets.append(features.storage_offset())
        return call(self, **arguments)

    monkeypatch.setattr(CompiledModel, "__call__", observed)
    options = {"drafter": "eagle3", "num_draft_tokens": 3, "max_new_tokens": 8, "progress": False}
    sv.generate(embedded, sv.load_prompts()[:2], compile=True, **options)
    assert len(offsets) > 3
    assert set(offsets) == {0}


def calls_of(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool, nn.Module]]:
    """Return a list to which each compiled call appends its tokens a row, and its model.

    Between them stands whether the tensor of its rows was made inside inference mode.
    """
    calls = []
    call = CompiledModel.__call__

    def observed(self: CompiledModel, **arguments: Any) -> object:
        rows = arguments["past_key_values"].access.rows
        calls.append((arguments["input_ids"].shape[1], rows.is_inference(), self._model))
        return call(self, **arguments)

    monkeypatch.setattr(CompiledModel, "__call__", observed)
    return calls


@pytest.mark.sweep(2)
@pytest.mark.parametrize("drafter", ["model", "eagle3"])
def test_with_one_row_prompts_are_read_by_the_code_of_a_verification(
    drafter: str,
    embedded: sv.Pair,
    uncompiled: list[dict[str, object]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = calls_of(monkeypatch)
    prompts = [[5, 9, 3, 7, 8, 2, 4, 11, 6], [4, 8, 2, 6, 9, 1, 3, 12], [7, 3]]
    options = {"drafter": drafter, "num_draft_tokens": 3, "max_new_tokens": 6, "progress": False}
    expected = sv.generate(embedded, prompts, batch_size=1, **options).tokens
    assert not calls
    result = sv.generate(embedded, prompts, batch_size=1, compile=True, **options)
    assert result.tokens == expected
    prefills = [q for q, _, _ in calls if q > 4]
    # Not the first one, which allocates the slabs. Of the last prompt one token is read.
    assert prefills == [7, 7], "the target's and the draft's"
    assert not any(is_inference for _, is_inference, _ in calls), "it would need code of its own"

    calls.clear()
    several = sv.generate(embedded, prompts, batch_size=2, compile=True, **options)
    assert several.tokens == expected
    assert max(q for q, _, _ in calls) <= 4


def test_a_forward_of_one_shape_is_no_prefill(
    uncompiled: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = calls_of(monkeypatch)
    pair = make_pair("llama")
    options = {"num_draft_tokens": 3, "max_new_tokens": 6, "batch_size": 1, "progress": False}
    expected = sv.generate(pair, make_prompts()[:3], **options).tokens
    result = sv.generate(
        pair, make_prompts()[:3], strategy="inplace", compile=True, deterministic=True, **options
    )
    assert result.tokens == expected
    widths = {q for q, _, model in calls if model is pair.target}
    assert len(widths) == 1, "prefills would be of 64 tokens"


@pytest.mark.slow
def test_one_variant_serves_all_batches_of_more_than_one_row_and_all_slabs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows leave the batch one by one here, and each variant takes up to a minute to compile."""
    variants = traced_only(monkeypatch)
    pair = make_pair("llama")
    prompts = make_prompts()[:5]
    options = {"num_draft_tokens": 3, "max_new_tokens": 24, "batch_size": 5, "progress": False}
    expected = sv.generate(pair, prompts, **options).tokens
    result = sv.generate(pair, prompts, compile=True, **options)
    assert result.tokens == expected
    # One row or more, one token a row or more: the draft does both, the target only the latter.
    assert 0 < len(variants) <= 2 * 2 + 2
    before = len(variants)
    options |= {"max_new_tokens": 31, "batch_size": 3}
    assert sv.generate(pair, prompts, compile=True, **options).tokens
    assert len(variants) == before, "slabs of other sizes need no other code"


@pytest.mark.slow
def test_slabs_may_be_allocated_by_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of prompts of one token there is nothing to prefill."""
    variants = traced_only(monkeypatch)
    pair = make_pair("llama")
    options = {"num_draft_tokens": 3, "max_new_tokens": 8, "progress": False}
    expected = sv.generate(pair, [[5], [9]], **options).tokens
    assert sv.generate(pair, [[5], [9]], compile=True, **options).tokens == expected
    assert variants


def test_templates_of_kernels_are_parsed_once() -> None:
    kernels = torch._inductor.codegen.common.KernelTemplate
    parse = kernels._template_from_string
    with compiler_settings(packs=True):
        first = kernels._template_from_string("{{x}}")
        assert kernels._template_from_string("{{x}}") is first
    assert kernels._template_from_string is parse


def test_models_share_no_compiled_code(uncompiled: list[dict[str, object]]) -> None:
    model = make_pair("llama").target
    models = model, deepcopy(model)
    codes = set()
    for model in models:
        call = CompiledModel(model)
        call(input_ids=torch.tensor([[5, 9, 3]]))
        codes |= {id(code.__code__) for code in (call._plain, call._packed)}
    assert len(codes) == 4


def test_what_cannot_be_packed_runs_without(
    uncompiled: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_pair("llama").target
    call = CompiledModel(model)

    def refuse(*_: object, **__: object) -> None:
        raise torch._inductor.exc.InductorError(ValueError("no kernel"), None)

    ids = torch.tensor([[5, 9, 3]])
    call(input_ids=ids[:, :1])
    monkeypatch.setattr(call, "_packed", refuse)
    for _ in range(2):
        found = call(input_ids=ids).logits
        torch.testing.assert_close(found, model(ids).logits, rtol=1e-4, atol=1e-4)
    assert call._packed is None
    assert torch.backends.mkldnn.enabled
    assert not torch._inductor.config.freezing


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++ on a CPU")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")
def test_packed_weights_are_those_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's cache on disk takes packed weights of the same shapes for the same weights."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    ids = torch.tensor([[5, 9, 3, 7]])
    for seed in (1, 2):
        torch.compiler.reset()  # forgets what is compiled, as another process would
        model = deepcopy(make_pair("llama").target)
        torch.manual_seed(seed)
        with torch.no_grad():
            for weight in model.parameters():
                weight += 0.1 * torch.randn_like(weight)
        with torch.inference_mode():
            call = CompiledModel(model)
            found = call(input_ids=ids, use_cache=False).logits
            expected = model(ids, use_cache=False).logits
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
            assert call._packed is not None, "it was packed"


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
