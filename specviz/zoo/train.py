"""Train one model of the embedded pair: losses, and the training loop.

An interrupted training resumes at its last checkpoint with the batch that it would have read next.
Matrices are trained with Muon, the rest with AdamW, in float32, with warm-up and linear decay.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import nn
from tqdm import tqdm
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from specviz.util.files import make_folder, write_folder
from specviz.zoo.checkpoint import check_steps, load_checkpoint, save_checkpoint
from specviz.zoo.data import Windows

Batch = TypeVar("Batch")

WARMUP_STEPS = 100
RATES = (0.02, 3e-3)  # learning rates of matrices and of all else


@dataclass(frozen=True)
class Stage:
    """A stretch of training with one batch shape.

    Attributes:
        share: of all steps.
        rows: windows in a step.
        length: tokens in a window.
    """

    share: float
    rows: int
    length: int


# Short windows first, then the length that generation needs.
STAGES = (Stage(0.75, 12, 256), Stage(0.25, 6, 512))


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


def stage_batches(
    make_windows: Callable[[Stage], Windows], steps: int, start: int
) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield (step, tokens (rows, length + 1)) from step `start` on.

    Each stage reads its own windows from their beginning.
    """
    first = 0
    for stage in STAGES:
        last = first + round(stage.share * steps)
        if start < last:
            windows = make_windows(stage)
            for step in range(max(first, start), last):
                yield step, torch.from_numpy(windows.batch(step - first))
        first = last


def next_token_loss(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy in nats of tokens[:, 1:], each given those before it."""
    logits = model(tokens[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


def distillation_loss(draft: nn.Module, target: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Return the mean KL(p || q) in nats, p from the target and q from the draft."""
    inputs = tokens[:, :-1]
    with torch.no_grad():
        logits = target(inputs, use_cache=False).logits
        log_p = logits.float().log_softmax(-1).flatten(0, 1)  # (rows * length, V)
    logits = draft(inputs, use_cache=False).logits
    log_q = logits.float().log_softmax(-1).flatten(0, 1)
    return F.kl_div(log_q, log_p, log_target=True, reduction="batchmean")


@dataclass(frozen=True)
class TrainingJob:
    """One model's training.

    Attributes:
        name: name of the checkpoint, without its ending.
        folder: where the checkpoint lies.
        steps: optimiser steps.
        device: where the model is.
        compile: whether to run the loss through torch.compile.
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
    compile: bool
    progress: bool = True
    checkpoint_every: int = 100
    rates: tuple[float, float] = RATES
    warmup: int = WARMUP_STEPS
    optimisers: Callable[[nn.Module, tuple[float, float]], list[torch.optim.Optimizer]] = (
        optimisers_for
    )
    schedule: Callable[[int, int, int], float] = learning_rate_factor


def train(
    job: TrainingJob,
    model: LlamaForCausalLM,
    loss: Callable[[torch.Tensor], torch.Tensor],
    make_windows: Callable[[Stage], Windows],
) -> list[dict[str, float]]:
    """Train a model of the pair in place, from the job's checkpoint if there is one.

    Returns the history: step, tokens, loss (nats a token) and seconds at each checkpoint.
    """

    def batches(start: int) -> Iterator[tuple[int, torch.Tensor, int]]:
        for step, tokens in stage_batches(make_windows, job.steps, start):
            yield step, tokens.to(job.device), tokens[:, 1:].numel()

    return train_on(job, model, loss, batches)


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
    start, history = _resume(checkpoint, model, optimisers)
    if job.compile:
        loss = torch.compile(loss)
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
        if done % job.checkpoint_every == 0 or done == job.steps:
            entry = {"step": done, "tokens": tokens_seen, "loss": _mean_loss(job, done, losses)}
            history.append(entry | _since(begun) | measure())
            save_checkpoint(checkpoint, model, optimisers, done, history, job.steps)
            bar.set_postfix(loss=f"{entry['loss']:.3f}")
            losses = []
            begun = (time.monotonic(), time.process_time())
    bar.close()
    return history


def _since(begun: tuple[float, float]) -> dict[str, float]:
    wall, cpu = begun
    return {"seconds": time.monotonic() - wall, "cpu_seconds": time.process_time() - cpu}


def _mean_loss(job: TrainingJob, step: int, losses: list[torch.Tensor]) -> float:
    """Return the mean of the losses. Raise ValueError if it is not finite."""
    mean = torch.stack(losses).mean().item()
    if not math.isfinite(mean):
        raise ValueError(
            f"the loss of {job.name} is not finite at step {step}: the training diverged; "
            "the checkpoint before is kept, try another seed or lower rates"
        )
    return mean


def _resume(
    checkpoint: Path, model: nn.Module, optimisers: list[torch.optim.Optimizer]
) -> tuple[int, list[dict[str, float]]]:
    """Return the step to begin with and the history before it."""
    if checkpoint.exists():
        return load_checkpoint(checkpoint, model, optimisers)
    return 0, []


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


def export(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the model as float16 safetensors, with its tokenizer.

    float16 halves the size, and is finer than bfloat16 for weights of this range.
    """

    def fill(partial: Path) -> None:
        model.to(torch.float16).save_pretrained(partial)
        tokenizer.save_pretrained(partial)

    make_folder(folder.parent)
    write_folder(folder, fill)
