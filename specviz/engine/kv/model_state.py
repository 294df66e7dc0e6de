"""What compiled code of a model depends on, to compare before it is used again.

Contract: two states are equal only if the same code serves both. Not known here: the compiler.
"""

import inspect
from collections.abc import Mapping, Set
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, NoneType
from typing import Any
from zlib import crc32

import torch
from torch import nn
from torch.nn.modules import module as module_file

# What is kept as it is: such values are compared by themselves, and hold no model.
PLAIN = (bool, int, float, str, NoneType, type, FunctionType, BuiltinFunctionType)


def state_of(model: nn.Module, with_values: bool) -> list[Any]:
    """Return what compiled code depends on: modules, attributes, settings, kinds of weights, code.

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
    return [modules, kinds, settings, _code_of(model), sums]


def _code_of(model: nn.Module) -> list[Any]:
    """Return what other libraries may replace: functions, methods, and hooks of all modules.

    Those are what the model's classes define, what their forwards name, and the functions of
    PyTorch that modules call.
    """
    classes: dict[type, None] = {}
    for module in model.modules():
        classes.update(dict.fromkeys(type(module).__mro__))
    hooks = {key: value for key, value in vars(module_file).items() if key.startswith("_global_")}
    found = [_comparable(hooks), _own_names(nn.functional)]
    pending = []
    for kind in classes:
        found.append(_own_names(kind))
        forward = vars(kind).get("forward")
        if isinstance(forward, FunctionType):
            pending.append(forward)
    seen = set()
    while pending:
        function = inspect.unwrap(pending.pop())
        if function in seen or not isinstance(function, FunctionType):
            continue
        seen.add(function)
        for name in function.__code__.co_names:
            value = function.__globals__.get(name)
            found.append((name, _comparable(value)))
            # What the file itself defines may name more of it.
            if isinstance(value, FunctionType) and value.__module__ == function.__module__:
                pending.append(value)
    return found


def _own_names(place: Any) -> list[Any]:
    """Return what a class or file defines, without what Python adds."""
    return [(key, _comparable(vars(place)[key])) for key in vars(place) if key[:2] != "__"]


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
