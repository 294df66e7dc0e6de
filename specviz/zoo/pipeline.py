"""Train the embedded pair, from the standard library's sources to folders for `load_pair`.

This is what `specviz train` runs, stage by stage.
"""

import time
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from specviz.engine.models.pair import Pair, load_pair
from specviz.engine.models.places import find_device
from specviz.util.files import check_writable, make_folder, write_folder
from specviz.util.validate import require_bool, require_int, require_kind, require_path
from specviz.zoo.bundled import cut_bundled_prompts, read_prompts, write_prompts
from specviz.zoo.card import circumstances, write_card
from specviz.zoo.corpus import SourceFile, read_corpus
from specviz.zoo.data import Windows, encode_blocks, train_tokenizer
from specviz.zoo.distil import continuations, split_documents
from specviz.zoo.measure import measure_pair
from specviz.zoo.models import build_draft, build_target
from specviz.zoo.train import (
    Stage,
    TrainingJob,
    distillation_loss,
    export,
    next_token_loss,
    train,
)


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

    def __post_init__(self) -> None:
        for item in fields(self):
            require_int(item.name, getattr(self, item.name))


@dataclass(frozen=True)
class _Corpus:
    """Encoded training files, uint16 arrays."""

    library: list[np.ndarray]
    tests: list[np.ndarray]

    def windows(self, stage: Stage) -> Windows:
        return Windows(self.library, self.tests, stage.rows, stage.length)

    def library_blocks(self, bos: int) -> list[np.ndarray]:
        blocks = []
        for tokens in self.library:
            blocks += split_documents(tokens, bos)
        return blocks


def train_pair(
    out: str | Path,
    budget: Budget,
    *,
    device: str = "cpu",
    compile: bool = False,
    progress: bool = True,
) -> Path:
    """Train the pair in `out`, or resume training it.

    Checkpoints and intermediate results lie in `out/checkpoints`. A second call with the same
    budget resumes where the first stopped.

    Returns the folder `out/weights` with target, draft and model card.

    Raises:
        ValueError: an argument cannot be used; nothing has run.
        WriteError: the folder cannot be written, or the disk is full. The last checkpoint is still
            whole.
    """
    torch_device = _checked(budget, device, compile=compile, progress=progress)
    out = training_folder(out)
    work = out / "checkpoints"
    begun = time.monotonic()
    files = [file for file in read_corpus() if not file.held_out]
    tokenizer = _tokenizer(files, work)
    corpus = _encode(files, tokenizer)
    job = partial(TrainingJob, folder=work, device=torch_device, compile=compile, progress=progress)
    history = {}

    target = build_target().to(torch_device)
    target_job = job("target", steps=budget.target_steps)
    target_loss = partial(next_token_loss, target)
    history["target"] = train(target_job, target, target_loss, corpus.windows)
    target.eval().requires_grad_(False)

    draft = build_draft().to(torch_device)
    pair = Pair(target, draft, tokenizer)
    blocks = corpus.library_blocks(tokenizer.bos_token_id)
    written = continuations(pair, blocks, budget.continuations, work, progress=progress)
    draft_corpus = _Corpus(corpus.library + _join(written), corpus.tests)
    draft_job = job("draft", steps=budget.draft_steps)
    draft_loss = partial(distillation_loss, draft, target)
    draft.train()
    history["draft"] = train(draft_job, draft, draft_loss, draft_corpus.windows)

    weights = out / "weights"
    export(target, tokenizer, weights / "target")
    export(draft, tokenizer, weights / "draft")
    write_prompts(weights / "prompts.jsonl", cut_bundled_prompts(tokenizer, read_corpus()))
    pair = load_pair(weights / "target", weights / "draft", device="cpu", dtype="float32")
    figures = measure_pair(pair, read_prompts(weights / "prompts.jsonl"), progress=progress)
    facts = circumstances(_command(budget, compile), device)
    write_card(weights / "README.md", pair, history, figures, facts, time.monotonic() - begun)
    return weights


def _checked(budget: object, device: str, **flags: object) -> torch.device:
    """Check the arguments and return the device. Raise ValueError."""
    require_kind("budget", budget, Budget, "pass Budget()")
    for name, flag in flags.items():
        require_bool(name, flag)
    return find_device(device)


def training_folder(out: object) -> Path:
    """Return the folder, with one for checkpoints in it. Raise ValueError or WriteError."""
    folder = require_path("out", out)
    check_writable(folder, folder=True)
    make_folder(folder / "checkpoints")
    return folder


def _command(budget: Budget, compile: bool) -> str:
    """Return the command that trains with this budget."""
    parts = [
        "specviz train",
        *(["--compile"] if compile else []),
        f"--target-steps {budget.target_steps}",
        f"--draft-steps {budget.draft_steps}",
        f"--continuations {budget.continuations}",
    ]
    return " ".join(parts)


def _tokenizer(files: list[SourceFile], work: Path) -> PreTrainedTokenizerFast:
    folder = work / "tokenizer"
    if not folder.exists():
        write_folder(folder, train_tokenizer(file.text for file in files).save_pretrained)
    return PreTrainedTokenizerFast.from_pretrained(folder)


def _encode(files: list[SourceFile], tokenizer: PreTrainedTokenizerFast) -> _Corpus:
    encoded = [encode_blocks(tokenizer, file) for file in files]
    library: list[np.ndarray] = []
    tests: list[np.ndarray] = []
    for tokens, file in zip(encoded, files, strict=True):
        if file.is_test:
            tests.append(tokens)
        else:
            library.append(tokens)
    return _Corpus(library, tests)


def _join(documents: list[np.ndarray], size: int = 64) -> list[np.ndarray]:
    """Join documents into files of `size`.

    Training shuffles files, so in joined ones a window rarely ends in an unrelated document.
    """
    return [np.concatenate(documents[i : i + size]) for i in range(0, len(documents), size)]
