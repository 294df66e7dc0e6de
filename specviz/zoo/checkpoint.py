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
from specviz.util.validate import quoted_path


def save_checkpoint(
    path: Path,
    model: nn.Module,
    optimisers: list[torch.optim.Optimizer],
    step: int,
    history: list[dict[str, float]],
    steps: int,
) -> None:
    """Write parameters, optimiser state, `step` and the `history` of losses to `path`.

    steps: of the whole training, which its learning rates go by.

    Raises WriteError if the disk is full. The old file is then left, as after an interruption.
    """
    tensors = {f"model.{name}": parameter.detach() for name, parameter in model.named_parameters()}
    for i, optimiser in enumerate(optimisers):
        for parameter_id, state in optimiser.state_dict()["state"].items():
            for name, value in state.items():
                tensors[f"optimiser.{i}.{parameter_id}.{name}"] = torch.as_tensor(value)
    on_host = {name: tensor.contiguous().cpu() for name, tensor in tensors.items()}
    header = {"step": str(step), "steps": str(steps), "history": json.dumps(history)}
    with replacing(path, alone=True) as partial:
        save_file(on_host, partial, metadata=header)


def load_checkpoint(
    path: Path, model: nn.Module, optimisers: list[torch.optim.Optimizer]
) -> tuple[int, list[dict[str, float]]]:
    """Restore what `save_checkpoint` wrote and return its step and history.

    Raises ValueError if the file holds another model.
    """
    with safe_open(path, framework="pt") as file:
        names = file.keys()
        tensors = {name: file.get_tensor(name) for name in names}
        header = file.metadata()
    _check_parameters(path, model, tensors)
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


def branch_checkpoint(source: Path, path: Path, steps: int) -> None:
    """Copy a checkpoint to `path`, for a training of another number of steps that begins there.

    Raises WriteError if the disk is full.
    """
    with safe_open(source, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = file.metadata()
    with replacing(path, alone=True) as partial:
        save_file(tensors, partial, metadata={**header, "steps": str(steps)})


def check_steps(path: Path, steps: int) -> None:
    """Raise ValueError if `path` is the checkpoint of a training with another number of steps.

    Its learning rates went down to 0 towards that number, so it cannot go on to another one.
    """
    if not path.exists():
        return
    with safe_open(path, framework="pt") as file:
        header = file.metadata()
    # Older files do not say how long the training was to be.
    known = int(header.get("steps", max(steps, int(header["step"]))))
    if known != steps:
        raise ValueError(
            f"steps must be {known}, those of the training in {quoted_path(path)}, got {steps}; "
            f"pass {known}, or another folder, or delete that file to begin again"
        )


def _check_parameters(path: Path, model: nn.Module, tensors: dict[str, torch.Tensor]) -> None:
    """Raise ValueError unless the tensors are those of the model."""
    expected = {f"model.{name}": value.shape for name, value in model.named_parameters()}
    found = {name: value.shape for name, value in tensors.items() if name.startswith("model.")}
    if found != expected:
        names = [name for name, _ in found.items() ^ expected.items()]
        raise ValueError(
            f"{quoted_path(path)} is the checkpoint of another model: they differ in "
            f"{min(names).removeprefix('model.')}; pass another folder, or delete that file to "
            "begin again"
        )


def _restore_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    whole = optimiser.state_dict()
    whole["state"] = {}
    for key, tensor in tensors.items():
        parameter_id, name = key.split(".", 1)
        whole["state"].setdefault(int(parameter_id), {})[name] = tensor
    optimiser.load_state_dict(whole)
