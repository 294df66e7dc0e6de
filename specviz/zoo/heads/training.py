"""Train one head for a target on token windows.

An interrupted training resumes at its last checkpoint, with the batch and the starts that it would
have read next. Not known here: where the windows come from.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from specviz.engine.heads import DraftHead, EagleHead, ResidualHeads, build_head
from specviz.engine.heads.files import fingerprint
from specviz.engine.heads.settings import LAST, fused_layers
from specviz.engine.models.compat import check_model
from specviz.util.files import check_writable, make_folder
from specviz.util.validate import require_path, short
from specviz.zoo.heads.features import StoredFeatures, keep_features
from specviz.zoo.heads.loss import HeadBatch, head_loss
from specviz.zoo.heads.measure import Text, measure_head
from specviz.zoo.training import WARMUP_STEPS, TrainingJob, check_steps, train_on

RATES = (0.02, 2e-3)  # of Muon and AdamW
UNROLL = 5  # steps of a chain, where the head has no limit


@dataclass(frozen=True)
class HeadPlan:
    """How a head is trained.

    Attributes:
        steps: optimiser steps.
        unroll: steps of a chain; None for what the head can propose, or 5 where it has no limit.
        rows: windows in a step.
        starts: chains in a window, as a share of its tokens.
        seed: of weights, order and starts.
        checkpoint_every: steps between checkpoints, and between measurements.
        warmup: steps in which the rates rise.
    """

    steps: int = 2000
    unroll: int | None = None
    rows: int = 4
    starts: float = 0.25
    seed: int = 0
    checkpoint_every: int = 100
    warmup: int = WARMUP_STEPS


@dataclass(frozen=True)
class TrainedHead:
    """What a training left.

    Attributes:
        head: the head, attached to its target.
        history: step, tokens, loss, seconds, cpu_seconds and the figures of `measure_head`, by
            checkpoint.
    """

    head: DraftHead
    history: list[dict[str, float]] = field(repr=False)


def train_head(
    kind: str,
    target: PreTrainedModel,
    tokens: np.ndarray,
    folder: str | Path,
    *,
    plan: HeadPlan | None = None,
    texts: Sequence[Text] = (),
    progress: bool = True,
    **changes: Any,
) -> TrainedHead:
    """Train a head for `target`, or resume training it.

    The target's features of the windows are computed first and kept in `folder`, for all kinds of
    heads. The checkpoint lies there, too: `head-KIND.safetensors`.

    Args:
        kind: one of KINDS.
        target: a causal LM in float32; the head is trained on its device.
        tokens: (n, T), windows of token ids. They should be the target's own texts for the most.
        folder: for features and the checkpoint.
        plan: steps and batches; None for `HeadPlan()`.
        texts: what to measure the head on at each checkpoint; see `greedy_texts`.
        progress: whether to show progress bars.
        changes: settings of the head that differ from the kind's own.

    Raises:
        ValueError: an argument cannot be used, or `folder` holds a training with other steps.
        WriteError: the folder cannot be written, or the disk is full. The last checkpoint is still
            whole.
    """
    plan = HeadPlan() if plan is None else plan
    check_model("target", target)
    if target.dtype != torch.float32:
        raise ValueError(f"target must be in float32, got {target.dtype}; load it so")
    folder = require_path("folder", folder)
    check_writable(folder, folder=True)
    check_steps(folder / f"head-{kind}.safetensors", plan.steps)
    head = new_head(kind, target, plan, **changes)
    windows = _checked_windows(tokens, head, plan)
    make_folder(folder)
    layers = kept_layers(target, head.settings.layers)
    features = keep_features(target, windows, layers, folder, progress=progress)
    job = job_of(f"head-{kind}", folder, target, plan, progress=progress)
    return train_from(features, job, head, target, plan, texts)


def new_head(kind: str, target: PreTrainedModel, plan: HeadPlan, **changes: Any) -> DraftHead:
    """Return a head as its training begins. Raise ValueError as `build_head`."""
    head = build_head(kind, target, seed=plan.seed, **changes)
    head.settings = replace(head.settings, target=fingerprint(target))
    if head.settings.block:
        start_from_last_layer(head, target)
    return head


def job_of(
    name: str, folder: Path, target: PreTrainedModel, plan: HeadPlan, *, progress: bool = True
) -> TrainingJob:
    """Return the training of a head, with its checkpoint `NAME.safetensors` in `folder`."""
    return TrainingJob(
        name=name,
        folder=folder,
        steps=plan.steps,
        device=target.device,
        progress=progress,
        checkpoint_every=plan.checkpoint_every,
        rates=RATES,
        warmup=plan.warmup,
    )


def train_from(
    features: StoredFeatures,
    job: TrainingJob,
    head: DraftHead,
    target: PreTrainedModel,
    plan: HeadPlan,
    texts: Sequence[Text] = (),
) -> TrainedHead:
    """Train `head` in place on features that are kept already, from the job's checkpoint if any."""
    measure: Callable[[], dict[str, float]] = dict
    if texts:
        measure = partial(measure_head, head, texts)
    loss = partial(head_loss, head, target, chain_steps(head, plan))
    with frozen(target):
        history = train_on(job, head, loss, partial(head_batches, features, head, plan), measure)
    return TrainedHead(head.eval(), history)


def _checked_windows(tokens: object, head: DraftHead, plan: HeadPlan) -> np.ndarray:
    """Return the windows as int64 (n, T). Raise ValueError."""
    if not isinstance(tokens, np.ndarray) or tokens.ndim != 2 or tokens.dtype.kind not in "iu":
        raise ValueError(f"tokens must be a 2-D array of ints, got {short(tokens)}; pass windows")
    count, length = tokens.shape
    steps = chain_steps(head, plan)
    if count < plan.rows or length <= steps:
        raise ValueError(
            f"tokens must be at least {plan.rows} windows of {steps + 1} ids, got {count} of "
            f"{length}; pass more, or a smaller plan"
        )
    last = head.settings.vocabulary_size - 1
    if tokens.min() < 0 or tokens.max() > last:
        span = f"{tokens.min()}..{tokens.max()}"
        raise ValueError(f"tokens must be ids from 0 to {last}, got {span}; encode them again")
    if reduced := head.settings.draft_vocabulary_size:
        raise ValueError(f"draft_vocabulary_size must be 0, got {reduced}; leave it out")
    return tokens.astype(np.int64)


def chain_steps(head: DraftHead, plan: HeadPlan) -> int:
    """Return how many steps the head is unrolled. Raise ValueError if it has fewer heads."""
    limit = head.settings.heads
    if plan.unroll is not None and limit and plan.unroll > limit:
        raise ValueError(
            f"unroll={plan.unroll} is more than the head's {limit} heads; pass {limit} or less"
        )
    return plan.unroll or limit or UNROLL


def kept_layers(target: PreTrainedModel, layers: Sequence[int] = ()) -> tuple[int, ...]:
    """Return the layers whose features are kept: those of all kinds, `layers`, and LAST."""
    return (*sorted({*fused_layers(target), *layers} - {LAST}), LAST)


def head_batches(
    features: StoredFeatures, head: DraftHead, plan: HeadPlan, start: int
) -> Iterator[tuple[int, HeadBatch, int]]:
    """Yield (step, batch, tokens in it) from step `start` on. Each epoch has its own order."""
    count, length = features.tokens.shape
    size = head.settings.hidden_size
    steps_per_epoch = count // plan.rows
    # Entry 0 has no feature. Medusa's and Clover's state is zero there, so nothing can be learned,
    # and the gradient of a cosine at zero is not finite. MTP has no such entry, DFlash no context.
    first = 0 if isinstance(head, EagleHead) else 1
    places = length - chain_steps(head, plan) + 1 - first
    chains = min(max(int(plan.starts * length), 1), places)
    for step in range(start, plan.steps):
        epoch, index = divmod(step, steps_per_epoch)
        order = np.random.default_rng([plan.seed, 0, epoch]).permutation(count)
        windows = order[index * plan.rows : (index + 1) * plan.rows]
        tokens, read = features.batch(windows, (*head.settings.layers, LAST))
        rng = np.random.default_rng([plan.seed, 1, step])
        drawn = [np.sort(rng.permutation(places)[:chains]) + first for _ in range(plan.rows)]
        batch = HeadBatch(
            tokens.to(head.device),
            read[..., :-size].to(head.device),
            read[..., -size:].to(head.device),
            torch.from_numpy(np.stack(drawn)).to(head.device),
        )
        yield step, batch, tokens.numel()


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Compute no gradients for the model's parameters inside the block."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


def start_from_last_layer(head: DraftHead, target: PreTrainedModel) -> None:
    """Let the augmenting block begin as the target's last layer, where it is of the same form."""
    assert isinstance(head, ResidualHeads)
    layers = getattr(target.base_model, "layers", None)
    if layers is None:
        return
    weights = layers[-1].state_dict()
    own = head.block.state_dict()
    shapes = {name: weight.shape for name, weight in weights.items()}
    if shapes == {name: weight.shape for name, weight in own.items()}:
        head.block.load_state_dict(weights)
