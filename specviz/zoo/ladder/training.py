"""Train the drafts of the ladder: a trunk for each size, and a cooldown branch at each mark.

A trunk runs at a constant rate, so that all marks of a size share its steps. At a mark a branch
leaves it, in which the rates fall to 0: a draft at a constant rate would look worse than one that
was trained for so many tokens. Every size reads the same windows in the same order.
"""

from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedModel

from specviz.zoo.checkpoint import branch_checkpoint
from specviz.zoo.ladder.data import Batch, WindowFeatures
from specviz.zoo.ladder.muon import float32_optimisers
from specviz.zoo.ladder.rungs import Rung, Size
from specviz.zoo.models import build_model
from specviz.zoo.train import TrainingJob, train_on

WARMUP = 10  # steps; the lowest mark has 16
CHECKPOINT_EVERY = 64
SEED = 1


def train_rung(
    rung: Rung,
    below: Rung | None,
    target: PreTrainedModel,
    reading: WindowFeatures,
    folder: Path,
    *,
    progress: bool = True,
) -> tuple[LlamaForCausalLM, list[dict[str, float]]]:
    """Train the draft of a rung, from the checkpoints of the rung below and of an interruption.

    Args:
        rung: what is trained.
        below: the rung of the same size with the next smaller mark, which is trained already.
        target: whose distributions the draft learns.
        reading: the training windows, with the target's features.
        folder: where checkpoints lie.
        progress: whether to show progress bars.

    Returns the draft, and the history from its first step on, as `train_on` returns it.
    """
    trunk = folder / f"{rung.name}.safetensors"
    if below is not None and not trunk.exists():
        branch_checkpoint(folder / f"{below.name}.safetensors", trunk, rung.mark_steps)
    draft = new_draft(rung.size)
    job = partial(
        TrainingJob,
        folder=folder,
        device=target.device,
        compile=False,
        progress=progress,
        checkpoint_every=CHECKPOINT_EVERY,
        warmup=WARMUP,
        optimisers=float32_optimisers,
    )
    loss = partial(distillation_from, draft, target)
    stretch = job(name=rung.name, steps=rung.mark_steps, schedule=constant)
    train_on(stretch, draft, loss, partial(reading.batches, rung.mark_steps))

    cooled = f"{rung.name}-cooled"
    if not (folder / f"{cooled}.safetensors").exists():
        branch_checkpoint(trunk, folder / f"{cooled}.safetensors", rung.steps)
    branch = job(name=cooled, steps=rung.steps, schedule=partial(falling, rung.mark_steps))
    history = train_on(branch, draft, loss, partial(reading.batches, rung.steps))
    return draft.eval(), history


def new_draft(size: Size) -> LlamaForCausalLM:
    """Return a draft before its training."""
    return build_model(**size.form(), seed=SEED)


def constant(step: int, steps: int, warmup: int) -> float:
    """Return the factor of the rates in a trunk: linear warm-up, then 1."""
    return min((step + 1) / warmup, 1.0)


def falling(first: int, step: int, steps: int, warmup: int) -> float:
    """Return the factor of the rates in a branch, which falls from 1 before step `first` to 0."""
    return constant(step, steps, warmup) * (steps - step) / (steps - first + 1)


def distillation_from(draft: LlamaForCausalLM, target: PreTrainedModel, batch: Batch) -> Tensor:
    """Return the mean KL(p || q) in nats, p from the target's features and q from the draft."""
    tokens, features = batch
    with torch.no_grad():
        logits = target.get_output_embeddings()(features.to(target.device))
        log_p = logits.log_softmax(-1).flatten(0, 1)  # (b * T, V)
    logits = draft(tokens.to(draft.device), use_cache=False).logits
    log_q = logits.log_softmax(-1).flatten(0, 1)
    return F.kl_div(log_q, log_p, log_target=True, reduction="batchmean")
