"""Train the pairs that come with specviz, from the standard library's sources, and measure them.

`python figures/make/pair.py --train FOLDER` trains the embedded pair in that folder for half a day,
goes on where it was interrupted, and writes FOLDER/weights. With `--hybrid` it is the hybrid pair,
in two hours on one core. Without `--train` the figures of both pairs are measured.
"""

import json
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

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
from tables import markdown
from torch import nn
from tqdm import tqdm
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.models.qwen3_5 import Qwen3_5TextConfig

import specviz as sv
from specviz import metrics
from specviz.util.files import make_folder, write, write_folder
from specviz.zoo.training import TrainingJob, train_on

POSITIONS = 1024
SPECIAL = {  # what the models of a pair have in common
    "vocab_size": VOCABULARY,
    "max_position_embeddings": POSITIONS,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOW = 512  # targets of a window in which bits per byte are measured
BOS_ID = 1
Loss = Callable[[torch.Tensor], torch.Tensor]
JOINED = 64  # documents of the target in one file


@dataclass(frozen=True)
class Stage:
    """A stretch of training: its share of all steps, windows in a step, and tokens in a window."""

    share: float
    rows: int
    length: int


# Short windows first, then the length that generation needs.
STAGES = (Stage(0.75, 12, 256), Stage(0.25, 6, 512))


def stage_batches(
    make_windows: Callable[[Stage], Windows], steps: int, start: int
) -> Iterator[tuple[int, torch.Tensor, int]]:
    """Yield (step, tokens (rows, length + 1), targets among them) from step `start` on.

    Each stage reads its own windows from their beginning.
    """
    first = 0
    for stage in STAGES:
        last = first + round(stage.share * steps)
        if start < last:
            windows = make_windows(stage)
            for step in range(max(first, start), last):
                tokens = torch.from_numpy(windows.batch(step - first))
                yield step, tokens, tokens[:, 1:].numel()
        first = last


def next_token_loss(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy in nats of tokens[:, 1:], each given those before it."""
    tokens = tokens.to(next(model.parameters()).device)
    logits = model(tokens[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


def distillation_loss(draft: nn.Module, target: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Return the mean KL(p || q) in nats after each token, p from the target, q from the draft."""
    inputs = tokens.to(next(draft.parameters()).device)
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
        **SPECIAL,
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=mlp,
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


def build_hybrid_target() -> PreTrainedModel:
    """Return an untrained target: six gated delta nets, and two layers that keep K/V."""
    config = Qwen3_5TextConfig(
        **SPECIAL,
        hidden_size=160,
        num_hidden_layers=8,
        intermediate_size=256,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=40,
        partial_rotary_factor=1.0,
        linear_num_key_heads=4,
        linear_num_value_heads=4,
        linear_key_head_dim=32,
        linear_value_head_dim=40,
    )
    return from_config(config, seed=0)


def build_hybrid_draft() -> PreTrainedModel:
    """Return an untrained draft: two layers that attend to 16 tokens, and one that does to all."""
    config = Gemma3TextConfig(
        **SPECIAL,
        hidden_size=128,
        num_hidden_layers=3,
        intermediate_size=352,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        query_pre_attn_scalar=32,
        sliding_window=16,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
    )
    return from_config(config, seed=1)


def from_config(config: PreTrainedConfig, seed: int) -> PreTrainedModel:
    torch.manual_seed(seed)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return model


@dataclass(frozen=True)
class Recipe:
    """How a pair is trained.

    Attributes:
        name: of the pair.
        about: what its card says first.
        target, draft: return the untrained models.
        steps: of target and draft.
        documents: that the target writes for the draft.
        tokenizer: a folder with the one to take; None to train one.
        kind: what the command line adds.
    """

    name: str
    about: str
    target: Callable[[], PreTrainedModel]
    draft: Callable[[], PreTrainedModel]
    steps: tuple[int, int]
    documents: int
    tokenizer: Path | None = None
    kind: str = ""


WEIGHTS = Path(sv.__file__).parent / "zoo" / "weights"
EMBEDDED = Recipe(
    "embedded",
    "a deep and narrow target of Llama's kind, and a two-layer draft distilled from it",
    build_target,
    build_draft,
    (3400, 2400),
    6144,
)
HYBRID = Recipe(
    "hybrid",
    "a target of Qwen3.5's kind, whose layers keep states (gated delta nets) or K/V, and a draft "
    "of Gemma 3's kind, whose layers attend to the last 16 tokens or to all",
    build_hybrid_target,
    build_hybrid_draft,
    (1900, 2000),
    2048,
    WEIGHTS / "target",
    " --hybrid",
)


def train_pair(
    out: Path, files: Sequence[SourceFile], recipe: Recipe = EMBEDDED, device: str = "cpu"
) -> Path:
    """Train a pair in `out`, or go on training it. Return the folder of target, draft and card.

    Checkpoints and texts lie in `out/checkpoints`.
    """
    work = make_folder(out / "checkpoints")
    begun = time.monotonic()
    learned = [file for file in files if not file.held_out]
    known = recipe.tokenizer or work / "tokenizer"
    if not known.exists():
        trained = train_tokenizer(file.text for file in learned)
        write_folder(known, trained.save_pretrained)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(known)
    encoded = [(file.is_test, encode_blocks(tokenizer, file)) for file in learned]
    library = [tokens for is_test, tokens in encoded if not is_test]
    tests = [tokens for is_test, tokens in encoded if is_test]

    def train(name: str, model: nn.Module, steps: int, loss: Loss) -> list[dict[str, float]]:
        def windows(stage: Stage) -> Windows:
            return Windows(library, tests, stage.rows, stage.length)

        job = TrainingJob(name, work, steps, torch.device(device))
        return train_on(job, model, loss, partial(stage_batches, windows, steps))

    target = recipe.target().to(device)
    history = {"target": train("target", target, recipe.steps[0], partial(next_token_loss, target))}
    target.eval().requires_grad_(False)

    draft = recipe.draft().to(device)
    blocks = [block for tokens in library for block in split_documents(tokens, BOS_ID)]
    written = continuations(sv.Pair(target, draft, tokenizer), blocks, recipe.documents, work)
    # Training shuffles files. In joined ones a window rarely ends in an unrelated document.
    library += [np.concatenate(written[i : i + JOINED]) for i in range(0, len(written), JOINED)]
    draft.train()

    def loss(tokens: torch.Tensor) -> torch.Tensor:
        return distillation_loss(draft, target, tokens[:, :-1])

    history["draft"] = train("draft", draft, recipe.steps[1], loss)

    weights = make_folder(out / "weights")
    for name, model in (("target", target), ("draft", draft)):

        def fill(folder: Path, model: PreTrainedModel = model) -> None:
            # float16 halves the size, and is finer than bfloat16 for weights of this range.
            model.to(torch.float16).save_pretrained(folder)
            tokenizer.save_pretrained(folder)

        write_folder(weights / name, fill)
    prompts = cut_bundled_prompts(tokenizer, files)
    lines = "".join(json.dumps(prompt) + "\n" for prompt in prompts)
    write(weights / "prompts.jsonl", lines.encode())
    pair = sv.load_pair(weights / "target", weights / "draft", device="cpu", dtype="float32")
    figures = measure_pair(pair, [prompt["text"] for prompt in prompts], files)
    command = (
        f"python figures/make/pair.py --train FOLDER{recipe.kind}, {recipe.steps} steps, "
        f"{recipe.documents} documents"
    )
    facts = circumstances(command, device) | {
        "name": recipe.name,
        "about": recipe.about,
        "hours": (time.monotonic() - begun) / 3600,
    }
    write(weights / "README.md", card(pair, history, figures, facts).encode())
    return weights


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
    for name, part in product(("target", "draft"), ("library", "test suite")):
        of_part = [file for file in held_out if file.is_test == (part == "test suite")]
        label = f"{name}: bits per byte, held-out {part} ({len(of_part)} files)"
        figures[label] = bits_per_byte(getattr(pair, name), pair.tokenizer, of_part)
    run = sv.generate(pair, prompts, num_draft_tokens=5, max_new_tokens=max_new_tokens)
    summary = run.summary.iloc[0]
    lengths = metrics.requests(run)["mean_acceptance_length"]
    figures |= {
        "mean acceptance length (K = 5)": summary["mean_acceptance_length"],
        "draft acceptance rate": summary["draft_acceptance_rate"],
        "share of rounds with full acceptance": summary["full_acceptance_share"],
        "mean acceptance length over prompts, 10th percentile": lengths.quantile(0.1),
        "mean acceptance length over prompts, median": lengths.median(),
        "mean acceptance length over prompts, 90th percentile": lengths.quantile(0.9),
        "share of prompts that end by themselves": np.mean(
            [row[-1] in pair.eos_token_ids for row in run.tokens]
        ),
    }
    return pd.DataFrame({"figure": list(figures), "value": list(figures.values())})


def measure_shipped(
    name: str | None, limit: int | None = None, of_files: int | None = None
) -> Measured:
    """Measure a pair that comes with specviz."""
    pair = sv.load_pair(name, device="cpu", dtype="float32")
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
    facts: Mapping[str, Any],
) -> str:
    """Return the model card."""
    rows = []
    for name, model in (("target", pair.target), ("draft", pair.draft)):
        config, last = model.config, history[name][-1]
        row = {
            "": name,
            "parameters": f"{model.num_parameters() / 1e6:.2f}M",
            "layers x hidden size": f"{config.num_hidden_layers} x {config.hidden_size}",
            "heads (query / key-value)": (
                f"{config.num_attention_heads} / {config.num_key_value_heads}"
            ),
            "steps": last["step"],
            "tokens": f"{last['tokens'] / 1e6:.1f}M",
            "last loss": f"{last['loss']:.3f}",
        }
        rows.append(row)
    values = figures.assign(value=figures["value"].map("{:.3f}".format))
    return CARD.format(sizes=markdown(pd.DataFrame(rows)), figures=markdown(values), **facts)


CARD = """# The {name} pair

Two small models that write Python: {about}. specviz itself trained them, so everything in this
repository runs without a network. They are made to be decoded, measured and studied. They are not
useful programmers.

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

{figures}"""

if __name__ == "__main__":
    if "--train" in sys.argv:
        folder = Path(sys.argv[sys.argv.index("--train") + 1])
        train_pair(folder, read_corpus(), HYBRID if "--hybrid" in sys.argv else EMBEDDED)
    else:
        pairs = {"pair": {"name": None}, "pair-hybrid": {"name": "hybrid"}}
        command(measure_shipped, pairs, {"limit": 2, "of_files": 2})
