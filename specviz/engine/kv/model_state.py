"""What compiled code of a model depends on, to compare before it is used again.

Contract: two states are equal only if the same code serves both. Not known here: the compiler.
"""

from collections.abc import Mapping, Set
from functools import partial
from types import FunctionType, MethodType
from typing import Any
from zlib import crc32

import torch
from torch import nn


def state_of(model: nn.Module, with_values: bool) -> list[Any]:
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
