"""Forwards through torch.compile: a whole model on a CPU, its layers one by one on a GPU.

Contract: the model itself stays as it is between forwards. Not known here: caches and masks.
"""

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import count
from threading import Lock
from types import FunctionType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from specviz.engine.kv.compiler import (
    PACKING,
    VARIANTS,
    compiler_settings,
    late_inlining,
    require_compiler,
)
from specviz.engine.kv.model_state import state_of
from specviz.engine.models.compat import find_layers

# Above this, a copy of the weights costs more memory than its speed is worth.
MAX_COPIED_BYTES = 1 << 30

# Above this, weights are not packed: every kind of forward holds a packed copy.
MAX_PACKED_BYTES = 1 << 28
# Where GCC cannot be told to inline late, packed weights are the faster ones up to so many tokens.
FEW_TOKENS = 16

Copy = tuple[dict[str, nn.Parameter | None], nn.Parameter]

Compiled = tuple[list[Any], Callable[..., Any], Callable[..., Any] | None]

# By model and by code: the state of the model, and what was compiled for it.
_known: WeakKeyDictionary[nn.Module, dict[Callable[..., Any], Compiled]] = WeakKeyDictionary()
_numbers = count()
_compiler = Lock()  # for the compiler's settings, which are those of all threads


def compiled(model: PreTrainedModel) -> "CompiledModel | CompiledLayers":
    """Return what calls the model through torch.compile.

    Raises:
        ValueError: the model is on a CPU, and torch finds no C++ compiler.
    """
    if model.device.type == "cpu":
        require_compiler()
        return CompiledModel(model)
    found = find_layers(model)
    return CompiledModel(model) if found is None else CompiledLayers(model, found[1])


class Output(NamedTuple):
    """What callers read of the output of a compiled model or head; None for what it lacks."""

    logits: Tensor | None
    hidden_states: tuple[Tensor, ...] | None
    hidden: Tensor | None


def call_once(model: nn.Module, **arguments: Any) -> tuple[Any, ...]:
    """Run one forward, and return what is read of its output."""
    # No more than is read, since compiled code builds its result again at every call.
    output = model(**arguments)
    return tuple([getattr(output, name, None) for name in Output._fields])


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
        limits = {"recompile_limit": VARIANTS, "allow_unspec_int_on_nn_module": True}
        with torch._dynamo.config.patch(limits), warnings.catch_warnings():
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

    On a CPU, calls go through C++ instead of Python. In float32, forwards run with kernels of the
    compiler's own and weights that are packed for them. Where that is not possible, or not faster,
    they read copies of the weights that are transposed.

    Attributes:
        code: what is compiled, given the model and the arguments of a call.
        output: the named tuple that its results are put into.
    """

    code: Callable[..., tuple[Any, ...]] = staticmethod(call_once)
    output: Callable[..., Any] = Output

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._copies: list[Copy] | None = None  # before they are needed
        self._packs_many = _is_on_cpu(model) and late_inlining() is not None
        self._plain: Callable[..., Any] | None = None  # before the first call
        self._packed: Callable[..., Any] | None = None
        self._seen: set[object] = set()
        # Two lanes share this object. One that restored the weights of the other would keep copies.
        self._lock = Lock()

    def __call__(self, **arguments: Any) -> Any:
        """Return what the model computes of the arguments, as `output` names it."""
        kind = _kind(arguments)
        with self._lock:
            if self._plain is None:
                self._plain, self._packed = _compiled_once(self._model, type(self).code)
            is_quick = self._packs_many or arguments["input_ids"].numel() <= FEW_TOKENS
            packed = self._packed is not None and is_quick
            if kind in self._seen:
                # A variant may be missing after all. It is compiled below.
                with suppress(torch._inductor.exc.InductorError):
                    return self._run(arguments, packed)
            with _compiler:
                return self._compile_and_run(kind, arguments, packed)

    def _compile_and_run(self, kind: object, arguments: dict[str, Any], packed: bool) -> Any:
        if packed:
            try:
                with compiler_settings(packs=True):
                    output = self._run(arguments, packed)
                self._seen.add(kind)
                return output
            except torch._inductor.exc.InductorError:
                # Its own kernels take weights alone; some models multiply what they have computed.
                self._packed = None
                self._seen.clear()
        with compiler_settings(packs=False):
            output = self._run(arguments, packed=False)
        self._seen.add(kind)
        return output

    def _run(self, arguments: dict[str, Any], packed: bool) -> Any:
        if packed and self._packed is not None:
            return self.output(*self._packed(self._model, **arguments))
        assert self._plain is not None
        if self._copies is None:
            self._copies = transposed_weights(self._model)
        originals = [parameters["weight"] for parameters, _ in self._copies]
        try:
            for parameters, copy in self._copies:
                parameters["weight"] = copy
            return self.output(*self._plain(self._model, **arguments))
        finally:
            for (parameters, _), original in zip(self._copies, originals, strict=True):
                parameters["weight"] = original


def _kind(arguments: dict[str, Any]) -> tuple[object, ...]:
    """Return what the code for a call depends on, except for the window."""
    access = getattr(arguments.get("past_key_values"), "access", None)
    return arguments["input_ids"].shape, len(arguments), None if access is None else access.kind


def _compiled_once(
    model: nn.Module, code: Callable[..., Any]
) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
    """Return `code` compiled for a model of this very state; the model is its first argument.

    The second has packed weights inside; it is None where that is not possible. The state includes
    the attention that a run sets, so the model is to be in that of its forwards.
    """
    packs = 0 < weight_bytes(model) <= MAX_PACKED_BYTES
    state = state_of(model, packs)
    codes = _known.setdefault(model, {})
    known = codes.get(code)
    if known is None or known[0] != state:
        options: dict[str, Any] = {"guard_filter_fn": _of_arguments}
        if _is_on_cpu(model):
            options["cpp_wrapper"] = True
        # A copy, because torch takes its filter out of what it is given.
        plain = torch.compile(_own_code(code), options=dict(options))
        packed = None
        if packs:
            # Torch keeps packed weights on disk under a key that leaves out their values.
            values = sha256(repr(state[-1]).encode()).hexdigest()
            options = {**options, **PACKING, "aot_inductor.metadata": {"weights": values}}
            processor = late_inlining()
            if processor is not None:
                options["cpp.march"] = processor
            packed = torch.compile(_own_code(code), options=options)
        known = state, plain, packed
        codes[code] = known
    return known[1:]


def _of_arguments(guards: Sequence[Any]) -> Sequence[bool]:
    """Return which checks a call makes: those of its arguments and of PyTorch's own state.

    Not those of the model's modules and weights, nor of the functions and classes that its code
    names: they take a quarter of a small model's forward. Within a run all that stays as it is, and
    a run compares it when it begins, see `state_of`.
    """
    without_modules = torch.compiler.skip_guard_on_all_nn_modules_unsafe(guards)
    pairs = zip(guards, without_modules, strict=True)
    return [kept and not guard.is_global for guard, kept in pairs]


def _own_code(code: Callable[..., Any]) -> Callable[..., Any]:
    """Return a copy of a function of a module, with code of its own.

    The compiler keeps its variants by code. Two models that shared code would be told apart by the
    checks that `_of_arguments` leaves out.
    """
    assert isinstance(code, FunctionType)
    name = f"{code.__name__}_{next(_numbers)}"
    return FunctionType(code.__code__.replace(co_name=name), code.__globals__, name)


def _is_on_cpu(model: nn.Module) -> bool:
    return next(model.parameters()).device.type == "cpu"


def transposed_weights(model: nn.Module) -> list[Copy]:
    """Return the parameters of each linear layer in float32, with its weight laid out (in, out).

    The weights keep their shape (out, in). There are none on a GPU, or if they would take more than
    MAX_COPIED_BYTES.
    """
    if weight_bytes(model) > MAX_COPIED_BYTES:
        return []
    copies = []
    for layer in _layers(model):
        weight = layer.weight.detach().t().contiguous().t()
        copies.append((layer._parameters, nn.Parameter(weight, layer.weight.requires_grad)))
    return copies


def weight_bytes(model: nn.Module) -> int:
    """Return the bytes of the weights that are packed or transposed."""
    return sum(layer.weight.nbytes for layer in _layers(model))


def _layers(model: nn.Module) -> list[nn.Linear]:
    """Return the linear layers whose products the compiler's kernels can take over."""
    layers = []
    for module in model.modules():
        if type(module) is nn.Linear and module.weight.dtype == torch.float32:
            layers.append(module)
    return layers if _is_on_cpu(model) else []
