"""Training checkpoints: model, optimisers and step in one safetensors file, never pickled.

A checkpoint is written to a temporary file and renamed. Not known here: what is being trained.
"""

import json
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from specviz.util.files import replacing


def save_checkpoint(
    path: Path,
    model: nn.Module,
    optimisers: list[torch.optim.Optimizer],
    step: int,
    history: list[dict[str, float]],
) -> None:
    """Write parameters, optimiser state, `step` and the `history` of losses to `path`.

    Raises WriteError if the disk is full. The old file is then left, as after an interruption.
    """
    tensors = {f"model.{name}": parameter.detach() for name, parameter in model.named_parameters()}
    for i, optimiser in enumerate(optimisers):
        for parameter_id, state in optimiser.state_dict()["state"].items():
            for name, value in state.items():
                tensors[f"optimiser.{i}.{parameter_id}.{name}"] = torch.as_tensor(value)
    on_host = {name: tensor.contiguous().cpu() for name, tensor in tensors.items()}
    header = {"step": str(step), "history": json.dumps(history)}
    with replacing(path, alone=True) as partial:
        save_file(on_host, partial, metadata=header)


def load_checkpoint(
    path: Path, model: nn.Module, optimisers: list[torch.optim.Optimizer]
) -> tuple[int, list[dict[str, float]]]:
    """Restore what `save_checkpoint` wrote and return its step and history."""
    with safe_open(path, framework="pt") as file:
        names = file.keys()
        tensors = {name: file.get_tensor(name) for name in names}
        header = file.metadata()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[f"model.{name}"])
    for i, optimiser in enumerate(optimisers):
        prefix = f"optimiser.{i}."
        own = {}
        for name, tensor in tensors.items():
            if name.startswith(prefix):
                own[name.removeprefix(prefix)] = tensor
        _restore_optimiser(optimiser, own)
    return int(header["step"]), json.loads(header["history"])


def _restore_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    whole = optimiser.state_dict()
    whole["state"] = {}
    for key, tensor in tensors.items():
        parameter_id, name = key.split(".", 1)
        whole["state"].setdefault(int(parameter_id), {})[name] = tensor
    optimiser.load_state_dict(whole)
