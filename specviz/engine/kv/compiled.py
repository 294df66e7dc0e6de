"""Forwards through torch.compile: a whole model on a CPU, its layers one by one on a GPU.

Contract: the model itself stays as it is between forwards. Not known here: caches and masks.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from itertools import count
from threading import Lock
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary
from zlib import crc32

import torch
from torch import nn
from transformers import PreTrainedModel

from specviz.engine.models.layers import find_layers

# Compiled variants of a model's code (one row or many, one token a row or more, ...). Torch's
# default is too low.
VARIANTS = 64
# The window grows in every round. Code for its first size alone would be compiled for nothing.
GROWING = "L['arguments']['attention_mask'],L['arguments']['past_key_values'].access.window"
# Above this, a copy of the weights costs more memory than its speed is worth.
MAX_COPIED_BYTES = 1 << 30

# Each shape that is compiled for few tokens has packed weights of its own.
MAX_PACKED_BYTES = 1 << 28
# Up to so many tokens, the compiler's own kernels are the faster ones; see docs/results.md.
FEW_TOKENS = 16
PACKING = {"freezing": True, "max_autotune_gemm": True, "max_autotune_gemm_backends": "CPP"}

# How each model was compiled, with the state that it had then.
_known: WeakKeyDictionary[
    nn.Module, tuple[list[Any], Callable[..., Any], Callable[..., Any] | None]
] = WeakKeyDictionary()
_numbers = count()
_compiler = Lock()  # for the compiler's settings, which are those of all threads


def compiled(model: PreTrainedModel) -> Callable[..., Any]:
    """Return what calls the model through torch.compile."""
    found = None if model.device.type == "cpu" else find_layers(model)
    return CompiledModel(model) if found is None else CompiledLayers(model, found[1])


class CompiledLayers:
    """Calls a model whose layers are compiled: the code of one serves all.

    Kernels of a GPU leave nothing to gain between layers, and the compiler needs as long for each
    layer of a whole model as for one. K/V must be written by code that is not compiled
    (`SlabCache.hide_from_compiler`), since that differs from layer to layer.
    """

    def __init__(self, model: PreTrainedModel, layers: nn.ModuleList) -> None:
        self._model = model
        self._calls = [(layer, torch.compile(layer._call_impl)) for layer in layers]

    def __call__(self, **arguments: Any) -> Any:
        """Return the model's output."""
        # Layers have numbers, and code that is compiled for one number would serve one layer.
        settings = {"recompile_limit": VARIANTS, "allow_unspec_int_on_nn_module": True}
        with torch._dynamo.config.patch(settings), warnings.catch_warnings():
            # It advises products of 10 instead of 23 bits, which change texts.
            warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")
            try:
                for layer, call in self._calls:
                    layer._compiled_call_impl = call
                return self._model(**arguments)
            finally:
                for layer, _ in self._calls:
                    layer._compiled_call_impl = None


class CompiledModel:
    """Calls a model through torch.compile.

    On a CPU, calls go through C++ instead of Python. In float32, a forward of few tokens runs with
    kernels of the compiler's own and weights that are packed for them; one of more tokens reads
    copies of the weights that are transposed. docs/results.md has the measurements.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._copies = transposed_weights(model) if _is_on_cpu(model) else []
        self._many: Callable[..., Any] | None = None  # before the first call
        self._few: Callable[..., Any] | None = None
        self._seen: set[object] = set()
        # Two lanes share this object. One that restored the weights of the other would keep copies.
        self._lock = Lock()

    def __call__(self, **arguments: Any) -> Any:
        """Return the model's output."""
        kind = _kind(arguments)
        with self._lock:
            if self._many is None:
                self._many, self._few = _compiled_once(self._model, self._copies)
            few = self._few is not None and arguments["input_ids"].numel() <= FEW_TOKENS
            if kind in self._seen:
                # A variant may be missing after all. It is compiled below.
                with suppress(torch._inductor.exc.InductorError):
                    return self._run(arguments, few)
            with _compiler:
                return self._compile_and_run(kind, arguments, few)

    def _compile_and_run(self, kind: object, arguments: dict[str, Any], few: bool) -> Any:
        if few:
            try:
                with _settings(packs=True):
                    output = self._run(arguments, few)
                self._seen.add(kind)
                return output
            except torch._inductor.exc.InductorError:
                # Its own kernels take weights alone; some models multiply what they have computed.
                self._few = None
                self._seen.clear()
        with _settings(packs=False):
            output = self._run(arguments, few=False)
        self._seen.add(kind)
        return output

    def _run(self, arguments: dict[str, Any], few: bool) -> Any:
        if few and self._few is not None:
            return self._few(self._model, **arguments)
        assert self._many is not None
        originals = [parameters["weight"] for parameters, _ in self._copies]
        try:
            for parameters, copy in self._copies:
                parameters["weight"] = copy
            return self._many(self._model, **arguments)
        finally:
            for (parameters, _), original in zip(self._copies, originals, strict=True):
                parameters["weight"] = original


def _kind(arguments: dict[str, Any]) -> tuple[object, ...]:
    """Return what the code for a call depends on, except for the window."""
    access = getattr(arguments.get("past_key_values"), "access", None)
    return arguments["input_ids"].shape, len(arguments), None if access is None else access.kind


@contextmanager
def _settings(packs: bool) -> Iterator[None]:
    """Set what the compiler needs. The settings are global, and not only ours."""
    sources: Any = torch.compiler.config
    with_onednn = torch._C._get_mkldnn_enabled()
    with (
        torch._dynamo.config.patch(recompile_limit=VARIANTS),
        sources.patch(dynamic_sources=GROWING),
        torch._inductor.config.patch(freezing=packs),
    ):
        try:
            # What oneDNN packs cannot be kept on disk: every process would compile it again.
            torch._C._set_mkldnn_enabled(with_onednn and not packs)
            yield
        finally:
            torch._C._set_mkldnn_enabled(with_onednn)


def _compiled_once(
    model: nn.Module, copies: Sequence[tuple[object, nn.Parameter]]
) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
    """Return what calls a model of this very state compiled; the model is its first argument.

    The first is for any number of tokens. The second, for few, has the weights inside; None where
    that gains nothing. The state includes the attention that a run sets, so the model is to be in
    that of its forwards.
    """
    packs = bool(copies) and sum(copy.nbytes for _, copy in copies) <= MAX_PACKED_BYTES
    state = _state(model, packs)
    known = _known.get(model)
    if known is None or known[0] != state:
        options: dict[str, Any] = {"guard_filter_fn": _without_modules}
        if _is_on_cpu(model):
            options["cpp_wrapper"] = True
        many = torch.compile(_own_code(), options=options)
        few = None
        if packs:
            # Torch keeps packed weights on disk under a key that leaves out their values.
            values = sha256(repr(state[-1]).encode()).hexdigest()
            options = {**options, **PACKING, "aot_inductor.metadata": {"weights": values}}
            few = torch.compile(_own_code(), options=options)
        known = state, many, few
        _known[model] = known
    return known[1:]


def _without_modules(guards: Sequence[Any]) -> Sequence[bool]:
    """Return which checks a call makes: all except those of the model's modules and weights.

    Those take a fifth of a small model's forward. Within a run the model stays as it is, and a run
    compares the model's state when it begins.
    """
    kept: Sequence[bool] = torch.compiler.skip_guard_on_all_nn_modules_unsafe(guards)
    return kept


def _own_code() -> Callable[..., Any]:
    """Return a function that calls a model, with code of its own.

    The compiler keeps its variants by code. Two models that shared code would be told apart by the
    checks that `_without_modules` leaves out.
    """

    def call(model: nn.Module, **arguments: Any) -> Any:
        return model(**arguments)

    name = f"call_{next(_numbers)}"
    return FunctionType(call.__code__.replace(co_name=name), globals(), name)


def _state(model: nn.Module, with_values: bool) -> list[Any]:
    """Return what compiled code depends on: modules, their attributes, settings, kinds of weights.

    The last entry has a checksum of each weight, if `with_values`.
    """
    modules = []
    for name, module in model.named_modules():
        modules.append((name, type(module)))
        for key, value in vars(module).items():
            if key not in ("_parameters", "_buffers", "_modules"):
                modules.append((key, _comparable(value)))
    kinds, sums = [], []
    for name, weight in [*model.named_parameters(), *model.named_buffers()]:
        kind = weight.shape, weight.stride(), weight.dtype, weight.device, weight.requires_grad
        kinds.append((name, type(weight), kind))
        if with_values:
            values = weight.detach().contiguous().view(-1).view(torch.uint8)
            sums.append(crc32(values.cpu().numpy().data))
    config = getattr(model, "config", None)
    settings = repr(vars(config)) if config is not None else None
    return [modules, kinds, settings, sums]


def _comparable(value: Any) -> Any:
    """Return of an attribute what can be compared, without a reference to the model."""
    if isinstance(value, bool | int | float | str | None | FunctionType):
        return value
    if isinstance(value, MethodType):
        return value.__func__
    if isinstance(value, partial):
        return value.func
    if isinstance(value, Mapping):
        return [(_comparable(key), _comparable(item)) for key, item in value.items()]
    if isinstance(value, Set):
        return sorted(map(str, value))
    if isinstance(value, list | tuple):
        return [_comparable(item) for item in value]
    return type(value)


def _is_on_cpu(model: nn.Module) -> bool:
    return next(model.parameters()).device.type == "cpu"


def transposed_weights(
    model: nn.Module,
) -> list[tuple[dict[str, nn.Parameter | None], nn.Parameter]]:
    """Return the parameters of each linear layer in float32, with its weight laid out (in, out).

    The weights keep their shape (out, in). There are none if they would take more than
    MAX_COPIED_BYTES.
    """
    layers = []
    for module in model.modules():
        if type(module) is nn.Linear and module.weight.dtype == torch.float32:
            layers.append(module)
    if sum(layer.weight.nbytes for layer in layers) > MAX_COPIED_BYTES:
        return []
    copies = []
    for layer in layers:
        weight = layer.weight.detach().t().contiguous().t()
        copies.append((layer._parameters, nn.Parameter(weight, layer.weight.requires_grad)))
    return copies
