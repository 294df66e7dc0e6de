"""Forwards through torch.compile: a whole model on a CPU, its layers one by one on a GPU.

Contract: the model itself stays as it is between forwards. Not known here: caches and masks.
"""

import platform
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from importlib import import_module
from itertools import count
from threading import Lock
from types import BuiltinFunctionType, FunctionType, MethodType, NoneType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary
from zlib import crc32

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

# Above this, weights are not packed: every kind of forward holds a packed copy.
MAX_PACKED_BYTES = 1 << 28
# Compiled variants of a model's code (one row or many, one token a row or more, ...). Torch's
# default is too low.
VARIANTS = 64
# Inputs whose sizes change between rounds. Code for the first sizes alone would be compiled for
# nothing. The names begin with that of the parameter of `call_once`.
ARGUMENTS = ("input_ids", "position_ids", "attention_mask", "features")
ACCESS = ("rows", "slots", "order", "writing", "window")
VARYING = ",".join(
    [f"L['arguments']['{name}']" for name in ARGUMENTS]
    + [f"L['arguments']['past_key_values'].access.{name}" for name in ACCESS]
)
PACKING = {"freezing": True, "max_autotune_gemm": True, "max_autotune_gemm_backends": "CPP"}
# GCC would inline parts of the compiler's own kernels so early that their sums stay in memory. A
# product of 8 rows then takes twice as long.
LATE_INLINING = "-fno-early-inlining"
# Attributes that are compared by themselves, and hold no model.
PLAIN = (bool, int, float, str, NoneType, type, FunctionType, BuiltinFunctionType)

# By model: the state that it was compiled in, the compiled code, and whether weights are packed.
_known: WeakKeyDictionary[nn.Module, tuple[Any, Callable[..., Any], bool]] = WeakKeyDictionary()
_numbers = count()
_compiler = Lock()  # for the compiler's settings, which are those of all threads


def compiled(model: PreTrainedModel) -> "CompiledModel | CompiledLayers":
    """Return what calls the model through torch.compile.

    Raises:
        ValueError: the model is on a CPU, and torch finds no C++ compiler.
    """
    if model.device.type == "cpu":
        _require_compiler()
        return CompiledModel(model)
    layers = find_layers(model)
    return CompiledModel(model) if layers is None else CompiledLayers(model, layers)


def find_layers(model: PreTrainedModel) -> nn.ModuleList | None:
    """Return the list of the model's layers; None if it is not certain which one that is."""
    count = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    lists = [
        module
        for module in model.modules()
        if isinstance(module, nn.ModuleList) and len(module) == count
    ]
    return lists[0] if len(lists) == 1 else None


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


class CompiledModel:
    """Calls a model through torch.compile.

    On a CPU, calls go through C++ instead of Python. Where weights are packed, products run with
    kernels of the compiler's own; see `_packs`.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._call: Callable[..., Any] | None = None  # before the first call
        self._seen: set[object] = set()
        self._lock = Lock()  # two lanes share this object

    def __call__(self, **arguments: Any) -> Output:
        """Return what the model computes of the arguments."""
        kind = _kind(arguments)
        with self._lock:
            if self._call is None:
                self._call, self._packed = _find_or_compile(self._model)
            if kind in self._seen:
                # The compiler may still need another variant. It is compiled below.
                with suppress(torch._inductor.exc.InductorError):
                    return Output(*self._call(self._model, **arguments))
            with _compiler:
                return self._compile_and_run(kind, arguments)

    def _compile_and_run(self, kind: object, arguments: dict[str, Any]) -> Output:
        assert self._call is not None
        try:
            with _settings(self._packed):
                output = self._call(self._model, **arguments)
        except torch._inductor.exc.InductorError:
            if not self._packed:
                raise
            # The compiler's own kernels multiply by weights alone, and some models multiply two
            # results.
            self._call, self._packed = _find_or_compile(self._model, packs=False)
            self._seen.clear()
            return self._compile_and_run(kind, arguments)
        self._seen.add(kind)
        return Output(*output)


def _kind(arguments: dict[str, Any]) -> tuple[object, ...]:
    """Return what the code for a call depends on, except for the window."""
    access = getattr(arguments.get("past_key_values"), "access", None)
    return arguments["input_ids"].shape, len(arguments), None if access is None else access.kind


def _find_or_compile(
    model: nn.Module, packs: bool | None = None
) -> tuple[Callable[..., Any], bool]:
    """Return `call_once` compiled for a model of this very state, and whether weights are packed.

    The state includes the attention that a run sets, so the model is to be in that of its forwards.

    packs: False to compile again without packing, which has failed.
    """
    may_pack = _packs(model)
    state = state_of(model, may_pack)
    known = _known.get(model)
    if known is None or known[0] != state or packs is not None:
        packed = may_pack if packs is None else packs
        options: dict[str, Any] = {"guard_filter_fn": _of_arguments}
        if _is_on_cpu(model):
            options["cpp_wrapper"] = True
        if packed:
            # Torch keeps packed weights on disk under a key that leaves out their values.
            values = sha256(repr(state[-1]).encode()).hexdigest()
            options |= {**PACKING, "aot_inductor.metadata": {"weights": values}}
            options["cpp.march"] = late_inlining()
        known = state, torch.compile(_own_code(), options=options), packed
        _known[model] = known
    return known[1:]


def _packs(model: nn.Module) -> bool:
    """Return whether weights are packed: those of a model in float32, with GCC on x86."""
    layers = [module for module in model.modules() if type(module) is nn.Linear]
    weights = [each.weight for each in layers if each.weight.dtype == torch.float32]
    fits = 0 < sum(weight.nbytes for weight in weights) <= MAX_PACKED_BYTES
    return fits and _is_on_cpu(model) and late_inlining() is not None


def late_inlining() -> str | None:
    """Return the processor to compile for and LATE_INLINING; None where torch takes no flag."""
    builder: Any = import_module("torch._inductor.cpp_builder")  # not before it is needed
    given = getattr(torch._inductor.config.cpp, "march", "")
    is_usual = platform.system() == "Linux" and platform.machine() == "x86_64"
    if not is_usual or given == "" or not builder.is_gcc():
        return None
    return f"{given or 'native'} {LATE_INLINING}"


def state_of(model: nn.Module, with_values: bool) -> list[Any]:
    """Return what compiled code depends on: modules, their attributes, settings, kinds of weights.

    Equal states may share code. Functions and classes of libraries are taken to stay as they are.
    The last entry has a checksum of each weight, if `with_values`.
    """
    modules: list[Any] = []
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
    return [modules, kinds, None if config is None else repr(vars(config)), sums]


def _comparable(value: Any) -> Any:
    """Return of an attribute what can be compared, without a reference to the model."""
    # Not `isinstance`, which asks the object, too: a configuration takes long to answer.
    kind = type(value)
    if issubclass(kind, PLAIN):
        return value
    if kind is MethodType:
        return value.__func__
    if issubclass(kind, partial):
        return value.func
    if issubclass(kind, Mapping):
        return [(_comparable(key), _comparable(item)) for key, item in value.items()]
    if issubclass(kind, Set):
        return sorted(map(str, value))
    if issubclass(kind, list | tuple):
        return [_comparable(item) for item in value]
    return kind


def _of_arguments(guards: Sequence[Any]) -> Sequence[bool]:
    """Return which checks a call makes: those of its arguments and of PyTorch's own state.

    Not those of the model's modules and weights, nor of the functions and classes that its code
    names: they take a quarter of a small model's forward. Within a run all that stays as it is, and
    a run compares it when it begins, see `state_of`.
    """
    without_modules = torch.compiler.skip_guard_on_all_nn_modules_unsafe(guards)
    pairs = zip(guards, without_modules, strict=True)
    return [kept and not guard.is_global for guard, kept in pairs]


def _own_code() -> Callable[..., Any]:
    """Return a copy of `call_once` with code of its own.

    The compiler keeps its variants by code. Two models that shared code would be told apart by the
    checks that `_of_arguments` leaves out.
    """
    name = f"{call_once.__name__}_{next(_numbers)}"
    return FunctionType(call_once.__code__.replace(co_name=name), call_once.__globals__, name)


def _is_on_cpu(model: nn.Module) -> bool:
    return next(model.parameters()).device.type == "cpu"


def _require_compiler() -> None:
    """Raise ValueError if torch finds no C++ compiler."""
    builder: Any = import_module("torch._inductor.cpp_builder")  # not before it is needed
    try:
        builder.get_cpp_compiler()
    except torch._inductor.exc.InvalidCxxCompiler:
        raise ValueError(
            "compile=True needs a C++ compiler on a CPU, and torch found none; install g++ or "
            "clang++, or set the environment variable CXX to one"
        ) from None


@contextmanager
def _settings(packs: bool) -> Iterator[None]:
    """Set what the compiler needs. The settings are global, and not only ours."""
    sources: Any = torch.compiler.config
    with_onednn = torch._C._get_mkldnn_enabled()
    with (
        torch._dynamo.config.patch(recompile_limit=VARIANTS),
        sources.patch(dynamic_sources=VARYING),
        torch._inductor.config.patch(freezing=packs),
    ):
        try:
            # What oneDNN packs cannot be kept on disk: every process would compile it again.
            torch._C._set_mkldnn_enabled(with_onednn and not packs)
            yield
        finally:
            torch._C._set_mkldnn_enabled(with_onednn)
