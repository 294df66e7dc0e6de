"""Forwards through torch.compile: a whole model on a CPU, its layers one by one on a GPU.

Contract: the model itself stays as it is between forwards. Not known here: caches and masks.
"""

import warnings
from collections.abc import Callable
from threading import Lock
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from specviz.engine.models.layers import find_layers

# Compiled variants of a model's code (one row or many, one token a row or more, ...). The target
# and the draft share this limit, and torch's default is too low for both.
VARIANTS = 64
# Above this, a copy of the weights costs more memory than its speed is worth.
MAX_COPIED_BYTES = 1 << 30


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

    On a CPU, calls go through C++ instead of Python, and the weights of linear layers in float32
    are copied once, transposed: a product of few rows with them is faster. docs/results.md has the
    measurement.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        on_cpu = model.device.type == "cpu"
        options: dict[str, Any] = {"cpp_wrapper": True} if on_cpu else {}
        self._compiled = torch.compile(model, options=options)
        self._copies = transposed_weights(model) if on_cpu else []
        # Two lanes share this object. One that restored the weights of the other would keep copies.
        self._lock = Lock()

    def __call__(self, **arguments: Any) -> Any:
        """Return the model's output."""
        # For each call alone: the setting is global, and other runs share the model.
        with self._lock, torch._dynamo.config.patch(recompile_limit=VARIANTS):
            originals = [parameters["weight"] for parameters, _ in self._copies]
            try:
                for parameters, copy in self._copies:
                    parameters["weight"] = copy
                return self._compiled(**arguments)
            finally:
                for (parameters, _), original in zip(self._copies, originals, strict=True):
                    parameters["weight"] = original


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
