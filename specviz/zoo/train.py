"""How the embedded pair is made: tokenizer, target, the target's own continuations, a draft
distilled from it, export.

Every stage leaves its result in the output folder and is skipped when that is complete; a stage
that was interrupted resumes at its last checkpoint with the batch that it would have read next.
Matrices are trained with Muon, the rest with AdamW, in float32, with warm-up and linear decay.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from specviz.util.files import make_folder, write_folder
from specviz.zoo.checkpoint import load_checkpoint, save_checkpoint
from specviz.zoo.data import VOCABULARY, Windows

POSITIONS = 1024
WARMUP_STEPS = 100
MATRIX_RATE, OTHER_RATE = 0.02, 3e-3


@dataclass(frozen=True)
class Stage:
    """A stretch of training with one batch shape.

    `share` of all steps, `rows` windows of `length` tokens a step.
    """

    share: float
    rows: int
    length: int


STAGES = (
    Stage(0.75, 12, 256),
    Stage(0.25, 6, 512),
)  # short windows first, then the length that generation needs


def build_model(
    layers: int, width: int, heads: int, kv_heads: int, mlp: int, seed: int = 0
) -> LlamaForCausalLM:
    """A Llama model with tied embeddings and random weights for the embedded tokenizer's vocabulary."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
        intermediate_size=mlp, max_position_embeddings=POSITIONS, tie_word_embeddings=True, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def build_target() -> LlamaForCausalLM:
    """Deep and narrow, so that a step costs several draft steps even where the cost is one kernel launch after the other."""
    return build_model(layers=14, width=192, heads=4, kv_heads=2, mlp=512)


def build_draft() -> LlamaForCausalLM:
    """Two layers: the fewest that can copy what followed an earlier occurrence of a token."""
    return build_model(layers=2, width=256, heads=4, kv_heads=2, mlp=704, seed=1)


def optimisers_for(model: nn.Module) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for embeddings and norms."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    return [
        torch.optim.Muon(matrices, lr=MATRIX_RATE),
        torch.optim.AdamW(others, lr=OTHER_RATE, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def learning_rate_factor(step: int, steps: int) -> float:
    """Linear warm-up to 1, then linear decay to 0 at `steps`."""
    return min((step + 1) / WARMUP_STEPS, 1.0) * (1 - step / steps)


def stage_batches(
    make_windows: Callable[[Stage], Windows], steps: int, start: int
) -> Iterator[tuple[int, torch.Tensor]]:
    """(step, tokens (rows, length + 1)) from `start` on.

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
    """Mean cross-entropy in nats of tokens[:, 1:] given what stands before each."""
    logits = model(tokens[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


def distillation_loss(draft: nn.Module, target: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Mean KL(p || q) in nats over all positions, p from the target and q from the draft."""
    with torch.no_grad():
        p = (
            target(tokens[:, :-1], use_cache=False).logits.float().log_softmax(-1)
        )  # (rows, length, V)
    q = draft(tokens[:, :-1], use_cache=False).logits.float().log_softmax(-1)
    return F.kl_div(q.flatten(0, 1), p.flatten(0, 1), log_target=True, reduction="batchmean")


@dataclass(frozen=True)
class Job:
    """One model's training.

    Where its checkpoint lies, how long it runs and on what, and after how many steps it is kept.
    """

    name: str
    folder: Path
    steps: int
    device: torch.device
    compile: bool
    progress: bool = True
    checkpoint_every: int = 100


def train(
    job: Job,
    model: LlamaForCausalLM,
    loss: Callable[[torch.Tensor], torch.Tensor],
    make_windows: Callable[[Stage], Windows],
) -> list[dict[str, float]]:
    """Train in place, from the job's checkpoint if there is one. Returns the history.

    Step, tokens, loss (nats a token), seconds.
    """
    optimisers = optimisers_for(model)
    checkpoint = job.folder / f"{job.name}.safetensors"
    start, history = (
        load_checkpoint(checkpoint, model, optimisers) if checkpoint.exists() else (0, [])
    )
    loss = torch.compile(loss) if job.compile else loss
    bar = tqdm(
        total=job.steps,
        initial=start,
        desc=f"train {job.name}",
        unit="step",
        disable=not job.progress,
    )
    losses, tokens_seen, begun = [], history[-1]["tokens"] if history else 0, time.monotonic()
    for step, tokens in stage_batches(make_windows, job.steps, start):
        factor = learning_rate_factor(step, job.steps)
        for optimiser, rate in zip(optimisers, (MATRIX_RATE, OTHER_RATE), strict=True):
            optimiser.param_groups[0]["lr"] = rate * factor
            optimiser.zero_grad()
        value = loss(tokens.to(job.device))
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser in optimisers:
            optimiser.step()
        losses.append(value.detach())
        tokens_seen += tokens[:, 1:].numel()
        bar.update()
        if (step + 1) % job.checkpoint_every == 0 or step + 1 == job.steps:
            mean = torch.stack(losses).mean().item()
            history.append(
                {
                    "step": step + 1,
                    "tokens": tokens_seen,
                    "loss": mean,
                    "seconds": time.monotonic() - begun,
                }
            )
            save_checkpoint(checkpoint, model, optimisers, step + 1, history)
            bar.set_postfix(loss=f"{mean:.3f}")
            losses, begun = [], time.monotonic()
    bar.close()
    return history


def export(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the model as float16 safetensors with its tokenizer.

    Half the size, and finer than bfloat16 for weights of this range.
    """

    def fill(partial: Path) -> None:
        model.to(torch.float16).save_pretrained(partial)
        tokenizer.save_pretrained(partial)

    make_folder(folder.parent)
    write_folder(folder, fill)
