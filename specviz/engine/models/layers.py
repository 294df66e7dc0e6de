"""A model cut down to its first layers, one of each kind and at least two.

Contract: the parts that are kept are the model's own, and the model itself is not changed. Layers
are of one kind if they differ in their weights and their number alone. Not known here: what the
result is used for.
"""

import copy
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from torch import nn
from transformers import PreTrainedModel

# Ends of the names of attributes that tell layers, or models of one kind, apart.
_NAMES = ("idx", "index", "layer_id", "layer_number", "name_or_path")
_PLAIN = {bool, int, float, str, tuple, type(None)}


def first_layers(model: PreTrainedModel) -> PreTrainedModel | None:
    """Return the model with as few of its first layers as show every kind of layer that it has.

    None if that saves nothing, or if its layers cannot be found.
    """
    found = find_layers(model)
    if found is None:
        return None
    path, layers = found
    needed = max(2, _count_to_last_kind(model, layers))
    if needed >= len(layers):
        return None
    cut = _shallow(model)
    if cut is None:
        return None
    part: nn.Module = cut
    *outer, last = path.split(".")
    for name in outer:
        inner = _shallow(part._modules[name])
        if inner is None:
            return None
        part._modules[name] = inner
        part = inner
    # Not a new list, which would be in training mode.
    kept = _shallow(layers)
    kept._modules = dict(list(layers._modules.items())[:needed])
    part._modules[last] = kept
    return cut


def find_layers(model: PreTrainedModel) -> tuple[str, nn.ModuleList] | None:
    """Return the path and the list of the model's layers; None if it is not certain."""
    count = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    lists = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == count
    ]
    return lists[0] if len(lists) == 1 else None


def _shallow(module: Any) -> Any:
    """Return a copy that shares all parts with the module; None if its forward is bound to it."""
    # accelerate, and others who replace a module's forward, leave theirs on the object.
    if "forward" in vars(module) or hasattr(module, "_hf_hook"):
        return None
    if module._compiled_call_impl is not None:
        return None
    shared = copy.copy(module)
    shared.__dict__["_modules"] = dict(module._modules)
    return shared


def _count_to_last_kind(model: PreTrainedModel, layers: nn.ModuleList) -> int:
    """Return how many of the first layers hold one of each kind."""
    settings = _settings_by_layer(model.config.get_text_config(), len(layers))
    kinds: list[Any] = []
    needed = 0
    for number, layer in enumerate(layers):
        kind = ([values[number] for values in settings], describe(layer))
        if kind not in kinds:
            kinds.append(kind)
            needed = number + 1
    return needed


def _settings_by_layer(config: Any, count: int) -> list[Any]:
    """Return the configuration's lists that have an entry for each layer."""
    values = vars(config).values()
    return [value for value in values if isinstance(value, list | tuple) and len(value) == count]


def describe(model: nn.Module, *, sizes: bool = True) -> list[Any]:
    """Return the modules' types and settings; layer numbers are left out.

    Args:
        sizes: whether numbers are part of it.
    """
    found: list[Any] = []
    for module in model.modules():
        found += [type(module), len(module._forward_hooks), len(module._forward_pre_hooks)]
        for key, value in vars(module).items():
            kind = type(value)
            if kind in _PLAIN:
                if not key.startswith("_") and not key.endswith(_NAMES):
                    found += [key, kind if kind in (int, float) and not sizes else value]
            elif kind is FunctionType or kind is MethodType or kind is partial:
                # A forward that was put onto the object, or an activation function.
                found += [key, getattr(value, "__qualname__", value)]
    return found
