"""Train the embedded pair, from the standard library's sources, and measure it.

`python figures/make/pair.py --train FOLDER` trains in that folder for half a day, goes on where it
was interrupted, and writes FOLDER/weights; those that come with specviz were made so. Without
`--train` the figures of the embedded pair are measured.
"""

import json
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
import transformers
from corpus import (
    VOCABULARY,
    SourceFile,
    Windows,
    continuations,
    cut_bundled_prompts,
    encode_blocks,
    held_out_windows,
    read_corpus,
    split_documents,
    train_tokenizer,
)
from measure import Measured, command, measured_on
from torch import nn
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

import specviz as sv
from specviz import metrics
from specviz.util.files import make_folder, write, write_folder
from specviz.zoo.training import TrainingJob, train_on

POSITIONS = 1024
WINDOW = 512  # targets of a window in which bits per byte are measured
BOS_ID = 1
JOINED = 64  # documents of the target in one file


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


def build_model(
    layers: int, hidden_size: int, heads: int, kv_heads: int, mlp: int, seed: int = 0
) -> LlamaForCausalLM:
    """Return a Llama model with tied embeddings, random weights and the embedded vocabulary."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=mlp,
        max_position_embeddings=POSITIONS,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return LlamaForCausalLM(config)


def build_target() -> LlamaForCausalLM:
    """Return an untrained target.

    It is deep and narrow, so that a step costs several draft steps even where kernel launches make
    up the cost.
    """
    return build_model(layers=14, hidden_size=192, heads=4, kv_heads=2, mlp=512)


def build_draft() -> LlamaForCausalLM:
    """Return an untrained draft.

    Two layers are the fewest that can copy what followed an earlier occurrence of a token.
    """
    return build_model(layers=2, hidden_size=256, heads=4, kv_heads=2, mlp=704, seed=1)


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


def export(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the model as float16 safetensors, with its tokenizer.

    float16 halves the size, and is finer than bfloat16 for weights of this range.
    """

    def fill(partial: Path) -> None:
        model.to(torch.float16).save_pretrained(partial)
        tokenizer.save_pretrained(partial)

    make_folder(folder.parent)
    write_folder(folder, fill)


@dataclass(frozen=True)
class Budget:
    """How long to train.

    Attributes:
        target_steps, draft_steps: optimiser steps.
        continuations: documents that the target writes for the draft.
    """

    target_steps: int = 3400
    draft_steps: int = 2400
    continuations: int = 6144


def train_pair(out: Path, budget: Budget, files: Sequence[SourceFile], device: str = "cpu") -> Path:
    """Train the pair in `out`, or go on training it. Return the folder of target, draft and card.

    Checkpoints and texts lie in `out/checkpoints`.
    """
    work = make_folder(out / "checkpoints")
    begun = time.monotonic()
    learned = [file for file in files if not file.held_out]
    tokenizer = tokenizer_of(learned, work)
    encoded = [(file.is_test, encode_blocks(tokenizer, file)) for file in learned]
    library = [tokens for is_test, tokens in encoded if not is_test]
    tests = [tokens for is_test, tokens in encoded if is_test]

    def windows(stage: Stage) -> Windows:
        return Windows(library, tests, stage.rows, stage.length)

    job = partial(TrainingJob, folder=work, device=torch.device(device))
    target = build_target().to(device)
    target_job = job("target", steps=budget.target_steps)
    history = {"target": train(target_job, target, partial(next_token_loss, target), windows)}
    target.eval().requires_grad_(False)

    draft = build_draft().to(device)
    blocks = [block for tokens in library for block in split_documents(tokens, BOS_ID)]
    pair = sv.Pair(target, draft, tokenizer)
    written = continuations(pair, blocks, budget.continuations, work)
    # Training shuffles files. In joined ones a window rarely ends in an unrelated document.
    library += [np.concatenate(written[i : i + JOINED]) for i in range(0, len(written), JOINED)]
    loss = partial(distillation_loss, draft.train(), target)
    history["draft"] = train(job("draft", steps=budget.draft_steps), draft, loss, windows)

    weights = out / "weights"
    export(target, tokenizer, weights / "target")
    export(draft, tokenizer, weights / "draft")
    prompts = cut_bundled_prompts(tokenizer, files)
    lines = "".join(json.dumps(prompt) + "\n" for prompt in prompts)
    write(weights / "prompts.jsonl", lines.encode())
    pair = sv.load_pair(weights / "target", weights / "draft", device="cpu", dtype="float32")
    figures = measure_pair(pair, [prompt["text"] for prompt in prompts], files)
    facts = circumstances(f"python figures/make/pair.py --train FOLDER, {budget}", device)
    hours = (time.monotonic() - begun) / 3600
    write(weights / "README.md", card(pair, history, figures, facts, hours).encode())
    return weights


def tokenizer_of(files: Sequence[SourceFile], work: Path) -> PreTrainedTokenizerFast:
    """Return the tokenizer, trained once."""
    folder = work / "tokenizer"
    if not folder.exists():
        write_folder(folder, train_tokenizer(file.text for file in files).save_pretrained)
    return PreTrainedTokenizerFast.from_pretrained(folder)


@torch.inference_mode()
def bits_per_byte(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, files: Sequence[SourceFile]
) -> float:
    """Return the mean bits that `model` needs for a byte of the files' blocks.

    A file is read in windows of 512 targets. A target sees only its own window. Every token but the
    first of a file is a target, the ends of blocks included. Bytes are those of the blocks.
    """
    nats = 0.0
    bar = tqdm(files, desc="bits per byte", unit="file")
    encoded = (encode_blocks(tokenizer, file) for file in bar)
    for window in held_out_windows(encoded, WINDOW):
        tokens = torch.from_numpy(window).to(model.device)
        logits = model(tokens[:, :-1]).logits.float()
        nats += F.cross_entropy(logits[0], tokens[0, 1:], reduction="sum").item()
    num_bytes = sum(len(block.encode()) for file in files for block in file.blocks)
    return nats / np.log(2) / num_bytes


def measure_pair(
    pair: sv.Pair, prompts: Sequence[str], files: Sequence[SourceFile], max_new_tokens: int = 128
) -> pd.DataFrame:
    """Return one entry a figure: bits per byte on held-out files, and acceptance on prompts."""
    figures = {}
    held_out = [file for file in files if file.held_out]
    for name, model in (("target", pair.target), ("draft", pair.draft)):
        for part in ("library", "test suite"):
            of_part = [file for file in held_out if file.is_test == (part == "test suite")]
            label = f"{name}: bits per byte, held-out {part} ({len(of_part)} files)"
            figures[label] = bits_per_byte(model, pair.tokenizer, of_part)
    run = sv.generate(pair, prompts, num_draft_tokens=5, max_new_tokens=max_new_tokens)
    summary = run.summary.iloc[0]
    lengths = metrics.requests(run)["mean_acceptance_length"]
    figures["mean acceptance length (K = 5)"] = summary["mean_acceptance_length"]
    figures["draft acceptance rate"] = summary["draft_acceptance_rate"]
    figures["share of rounds with full acceptance"] = summary["full_acceptance_share"]
    for quantile, name in ((0.1, "10th percentile"), (0.5, "median"), (0.9, "90th percentile")):
        figures[f"mean acceptance length over prompts, {name}"] = lengths.quantile(quantile)
    ended = [row[-1] in pair.eos_token_ids for row in run.tokens]
    figures["share of prompts that end by themselves"] = np.mean(ended)
    return pd.DataFrame({"figure": list(figures), "value": list(figures.values())})


def measure_embedded(limit: int | None = None, of_files: int | None = None) -> Measured:
    """Measure the embedded pair."""
    pair = sv.load_pair(device="cpu", dtype="float32")
    prompts = sv.load_prompts(limit=limit)
    files = read_corpus()
    if of_files is not None:
        held_out = [file for file in files if file.held_out]
        files = [file for file in held_out if file.is_test][:of_files]
        files += [file for file in held_out if not file.is_test][:of_files]
    return measure_pair(pair, prompts, files), measured_on(pair, prompts=len(prompts))


def circumstances(command: str, device: str) -> dict[str, str]:
    """Return what a card says of the circumstances: date, device, command and versions."""
    return {
        "date": str(date.today()),
        "device": f"{device} ({platform.machine()}, {torch.get_num_threads()} threads)",
        "command": command,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


def card(
    pair: sv.Pair,
    history: dict[str, list[dict[str, float]]],
    figures: pd.DataFrame,
    facts: dict[str, str],
    hours: float,
) -> str:
    """Return the model card."""
    rows = []
    for name, model in (("target", pair.target), ("draft", pair.draft)):
        config, last = model.config, history[name][-1]
        rows.append(
            f"| {name} | {model.num_parameters() / 1e6:.2f}M "
            f"| {config.num_hidden_layers} x {config.hidden_size} "
            f"| {config.num_attention_heads} / {config.num_key_value_heads} "
            f"| {last['step']} | {last['tokens'] / 1e6:.1f}M | {last['loss']:.3f} |"
        )
    values = [f"| {row.figure} | {row.value:.3f} |" for row in figures.itertuples()]
    return CARD.format(sizes="\n".join(rows), figures="\n".join(values), hours=hours, **facts)


CARD = """# The embedded pair

Two small Llama models that write Python: a deep and narrow target, and a two-layer draft distilled
from it. specviz itself trained them, so everything in this repository runs without a network. They
are made to be decoded, measured and studied. They are not useful programmers.

| | parameters | layers x hidden size | heads (query / key-value) | steps | tokens | last loss |
|---|---|---|---|---|---|---|
{sizes}

The losses are in nats a token: cross-entropy of the target, KL from the target of the draft.

- **Data**: the sources of the Python {python} standard library, as installed with the interpreter
  (`figures/make/corpus.py`). One tenth of the files, chosen by a hash of their path, is held out.
  The draft also learned from the target's greedy continuations.
- **Licence**: the corpus is under the Python Software Foundation License 2.0. These weights are
  offered under the same terms.
- **Command**: `{command}`, {date}, on {device};
  torch {torch}, transformers {transformers}; {hours:.1f} hours in the last session.
- **Stored** as float16 safetensors. `specviz.load_pair` loads them as float32 by default.
- `prompts.jsonl`: the first lines of 32 held-out functions and classes.

Measured on the stored weights, CPU, float32 (`figures/make/pair.py`):

| figure | value |
|---|---|
{figures}
"""

if __name__ == "__main__":
    if "--train" in sys.argv:
        train_pair(Path(sys.argv[sys.argv.index("--train") + 1]), Budget(), read_corpus())
    else:
        command(measure_embedded, {"pair": {}}, {"limit": 2, "of_files": 2})
