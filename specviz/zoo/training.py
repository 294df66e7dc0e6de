"""A training loop that goes on where it was interrupted.

An interrupted training resumes at its last checkpoint with the batch that it would have read next.
Matrices are trained with Muon, the rest with AdamW, in float32, with warm-up and linear decay. A
checkpoint has model, optimisers and step in one safetensors file, never pickled.
"""

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from tqdm import tqdm

from specviz.util.files import replacing
from specviz.util.validate import quoted_path

Batch = TypeVar("Batch")

WARMUP_STEPS = 100
RATES = (0.02, 3e-3)  # learning rates of matrices and of all else


def optimisers_for(
    model: nn.Module, rates: tuple[float, float] = RATES
) -> list[torch.optim.Optimizer]:
    """Return Muon for the matrices inside the layers, and AdamW for embeddings and norms.

    rates: learning rates of the two.
    """
    matrix_rate, other_rate = rates
    matrices = []
    others = []
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and "embed" not in name:
            matrices.append(parameter)
        else:
            others.append(parameter)
    return [
        torch.optim.Muon(matrices, lr=matrix_rate),
        torch.optim.AdamW(others, lr=other_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def learning_rate_factor(step: int, steps: int, warmup: int = WARMUP_STEPS) -> float:
    """Return the factor of the learning rates: linear warm-up, and linear decay to 0 at `steps`."""
    return min((step + 1) / warmup, 1.0) * (1 - step / steps)


@dataclass(frozen=True)
class TrainingJob:
    """One model's training.

    Attributes:
        name: name of the checkpoint, without its ending.
        folder: where the checkpoint lies.
        steps: optimiser steps.
        device: where the model is.
        progress: whether to show a progress bar.
        checkpoint_every: steps between checkpoints.
        rates: learning rates of matrices and of all else.
        warmup: steps in which the rates rise.
        optimisers: from the model and `rates` to what is trained with.
        schedule: from a step, `steps` and `warmup` to the factor of the rates.
    """

    name: str
    folder: Path
    steps: int
    device: torch.device
    progress: bool = True
    checkpoint_every: int = 100
    rates: tuple[float, float] = RATES
    warmup: int = WARMUP_STEPS
    optimisers: Callable[[nn.Module, tuple[float, float]], list[torch.optim.Optimizer]] = (
        optimisers_for
    )
    schedule: Callable[[int, int, int], float] = learning_rate_factor


def train_on(
    job: TrainingJob,
    model: nn.Module,
    loss: Callable[[Batch], torch.Tensor],
    batches: Callable[[int], Iterator[tuple[int, Batch, int]]],
    measure: Callable[[], dict[str, float]] = dict,
) -> list[dict[str, float]]:
    """Train in place on what `batches` yields, from the job's checkpoint if there is one.

    Args:
        job: steps, device, where the checkpoint lies.
        model: whose parameters are trained.
        loss: from a batch to a scalar.
        batches: from the step to begin with to (step, batch, tokens in the batch), step by step.
        measure: what to add to the history at each checkpoint.

    Returns the history: step, tokens, loss, seconds, cpu_seconds (of the process) and what was
    measured, at each checkpoint.
    """
    optimisers = job.optimisers(model, job.rates)
    checkpoint = job.folder / f"{job.name}.safetensors"
    check_steps(checkpoint, job.steps)
    start = 0
    history: list[dict[str, float]] = []
    if checkpoint.exists():
        start, history = load_checkpoint(checkpoint, model, optimisers)
    bar = tqdm(
        total=job.steps,
        initial=start,
        desc=f"train {job.name}",
        unit="step",
        disable=not job.progress,
    )
    losses = []
    tokens_seen = history[-1]["tokens"] if history else 0
    begun = (time.monotonic(), time.process_time())
    for step, batch, num_tokens in batches(start):
        value = loss(batch)
        factor = job.schedule(step, job.steps, job.warmup)
        update(model, optimisers, value, factor, job.rates)
        losses.append(value.detach())
        tokens_seen += num_tokens
        bar.update()
        done = step + 1
        if done % job.checkpoint_every and done != job.steps:
            continue
        mean = torch.stack(losses).mean().item()
        if not math.isfinite(mean):
            raise ValueError(
                f"the loss of {job.name} is not finite at step {done}: the training diverged; "
                "the checkpoint before is kept, try another seed or lower rates"
            )
        entry = {
            "step": done,
            "tokens": tokens_seen,
            "loss": mean,
            "seconds": time.monotonic() - begun[0],
            "cpu_seconds": time.process_time() - begun[1],
        }
        history.append(entry | measure())
        save_checkpoint(checkpoint, model, optimisers, done, history, job.steps)
        bar.set_postfix(loss=f"{mean:.3f}")
        losses = []
        begun = (time.monotonic(), time.process_time())
    bar.close()
    return history


def update(
    model: nn.Module,
    optimisers: list[torch.optim.Optimizer],
    loss: torch.Tensor,
    factor: float,
    rates: tuple[float, float],
) -> None:
    """Make one optimiser step, at `factor` times the learning rates."""
    for optimiser, rate in zip(optimisers, rates, strict=True):
        optimiser.param_groups[0]["lr"] = rate * factor
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimiser in optimisers:
        optimiser.step()
        optimiser.zero_grad()


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
    expected = {f"model.{name}": value.shape for name, value in model.named_parameters()}
    found = {name: value.shape for name, value in tensors.items() if name.startswith("model.")}
    if found != expected:
        names = [name for name, _ in found.items() ^ expected.items()]
        raise ValueError(
            f"{quoted_path(path)} is the checkpoint of another model: they differ in "
            f"{min(names).removeprefix('model.')}; pass another folder, or delete that file to "
            "begin again"
        )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[f"model.{name}"])
    for i, optimiser in enumerate(optimisers):
        whole = optimiser.state_dict()
        whole["state"] = {}
        for key, tensor in tensors.items():
            if key.startswith(f"optimiser.{i}."):
                _, _, parameter_id, name = key.split(".", 3)
                whole["state"].setdefault(int(parameter_id), {})[name] = tensor
        optimiser.load_state_dict(whole)
    return int(header["step"]), json.loads(header["history"])


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
