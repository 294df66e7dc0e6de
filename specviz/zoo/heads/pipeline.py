"""Train heads for the embedded target, from the standard library's sources to folders of weights.

This is what `specviz train --heads` runs, stage by stage.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from specviz.engine.heads.settings import KINDS
from specviz.engine.models.pair import Pair, load_pair
from specviz.engine.models.places import find_device
from specviz.prompts import load_prompts
from specviz.util.validate import (
    require_bool,
    require_choice,
    require_int,
    require_ints,
    require_list,
    short,
)
from specviz.zoo.card import circumstances
from specviz.zoo.checkpoint import check_steps
from specviz.zoo.corpus import read_corpus
from specviz.zoo.data import encode_blocks
from specviz.zoo.distil import continuations as written_by
from specviz.zoo.distil import split_documents
from specviz.zoo.heads.card import write_heads_card
from specviz.zoo.heads.export import export_head
from specviz.zoo.heads.measure import greedy_texts, measure_head
from specviz.zoo.heads.mix import mix_windows
from specviz.zoo.heads.training import HeadPlan, TrainedHead, checkpoint_of, kept_layers, train_head
from specviz.zoo.pipeline import training_folder

LENGTH = 512  # tokens in a window
CONTINUATIONS = 4096
# Steps of 2048 tokens: five to thirty minutes a head on one CPU core.
STEPS = {"medusa": 1500, "clover": 2400, "eagle3": 3000, "eagle1": 3000, "parallel": 1000}


def train_heads(
    kinds: Sequence[str],
    out: str | Path,
    *,
    steps: Sequence[int] | None = None,
    continuations: int = CONTINUATIONS,
    device: str = "cpu",
    progress: bool = True,
) -> Path:
    """Train heads for the embedded target in `out`, or resume training them.

    Texts of the target, its features and checkpoints lie in `out/checkpoints`. A second call with
    the same arguments resumes where the first stopped.

    Args:
        kinds: which heads, of KINDS; each once.
        out: the folder.
        steps: optimiser steps, one number for all heads or one for each; None for STEPS.
        continuations: greedy documents that the target writes; sampled ones are half as many.
        device: "cpu", "cuda", "cuda:1" or "mps".
        progress: whether to show progress bars.

    Returns the folder `out/weights/heads`, with a folder for each head and a model card.

    Raises:
        ValueError: an argument cannot be used, or `out` holds a training with other steps; nothing
            has run.
        WriteError: the folder cannot be written, or the disk is full. The last checkpoint is still
            whole.
    """
    require_bool("progress", progress)
    by_kind = checked_steps(kinds, steps)
    require_int("continuations", continuations)
    find_device(device)
    out = training_folder(out)
    work = out / "checkpoints"
    for kind, count in by_kind.items():
        check_steps(checkpoint_of(kind, work), count)
    pair = load_pair(device=device, dtype="float32")
    windows = training_windows(pair, continuations, work, progress=progress)
    texts = greedy_texts(pair, load_prompts(), kept_layers(pair.target))

    weights = out / "weights" / "heads"
    trained: dict[str, TrainedHead] = {}
    figures: dict[str, dict[str, float]] = {}
    for kind, count in by_kind.items():
        plan = HeadPlan(steps=count)
        found = train_head(
            kind, pair.target, windows, work, plan=plan, texts=texts, progress=progress
        )
        found.head.training_s = sum(entry["seconds"] for entry in found.history)
        export_head(found.head, weights / kind)
        trained[kind] = found
        figures[kind] = measure_head(found.head, texts)  # of the stored, rounded weights
    facts = circumstances(_command(by_kind, continuations), device)
    write_heads_card(weights / "README.md", trained, figures, windows.size, facts)
    return weights


def checked_steps(kinds: object, steps: object) -> dict[str, int]:
    """Return the steps by kind. Raise ValueError if `kinds` or `steps` cannot be used."""
    require_list("kinds", kinds)
    assert isinstance(kinds, Sequence)
    for i, kind in enumerate(kinds):
        require_choice(f"kinds[{i}]", kind, KINDS)
    if len(set(kinds)) < len(kinds):
        raise ValueError(f"kinds must be different, got {short(kinds)}; name each once")
    if steps is None:
        return {kind: STEPS[kind] for kind in kinds}
    require_ints("steps", steps)
    assert isinstance(steps, Sequence)
    if len(steps) not in (1, len(kinds)):
        raise ValueError(
            f"steps must be one number or {len(kinds)}, one for each head, got {short(steps)}; "
            "pass one"
        )
    counts = list(steps) * len(kinds) if len(steps) == 1 else steps
    return {kind: int(count) for kind, count in zip(kinds, counts, strict=True)}


def training_windows(pair: Pair, count: int, work: Path, *, progress: bool = True) -> np.ndarray:
    """Return the windows (n, LENGTH) of the mix: texts of the target and of the corpus.

    count: greedy documents of the target; sampled ones are half as many.
    """
    library, blocks = library_of(pair)
    half = max(count // 2, 1)
    sources = {
        "greedy": written_by(pair, blocks, count, work, progress=progress),
        "sampled": written_by(pair, blocks, half, work, sampled=True, progress=progress),
        "corpus": library,
    }
    windows, _ = mix_windows(sources, LENGTH)
    return windows


def library_of(pair: Pair) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the library files that are not held out, encoded, and their blocks."""
    assert pair.tokenizer is not None
    library = []
    for file in read_corpus():
        if not file.held_out and not file.is_test:
            library.append(encode_blocks(pair.tokenizer, file))
    blocks: list[np.ndarray] = []
    for tokens in library:
        blocks += split_documents(tokens, pair.tokenizer.bos_token_id)
    return library, blocks


def _command(steps: dict[str, int], continuations: int) -> str:
    """Return the command that trains these heads."""
    parts = ["specviz train"]
    parts += [f"--heads {kind}" for kind in steps]
    parts += [f"--head-steps {count}" for count in steps.values()]
    return " ".join([*parts, f"--continuations {continuations}"])
