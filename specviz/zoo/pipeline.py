"""`specviz train`.

From the standard library's sources to the folders that `load_pair()` reads, stage by stage.
"""

import platform
import time
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import PreTrainedTokenizerFast

from specviz.engine.models.pair import Pair, load_pair
from specviz.util.files import make_folder, write_folder
from specviz.zoo.bundled import cut_bundled_prompts, read_prompts, write_prompts
from specviz.zoo.card import write_card
from specviz.zoo.corpus import SourceFile, read_corpus
from specviz.zoo.data import Windows, encode_blocks, train_tokenizer
from specviz.zoo.distil import continuations, split_documents
from specviz.zoo.measure import measure_pair
from specviz.zoo.train import (
    Job,
    Stage,
    build_draft,
    build_target,
    distillation_loss,
    export,
    next_token_loss,
    train,
)


@dataclass(frozen=True)
class Budget:
    """How long to train.

    Optimiser steps of target and draft, and documents that the target writes for the draft.
    """

    target_steps: int = 3400
    draft_steps: int = 2400
    continuations: int = 6144


@dataclass(frozen=True)
class _Corpus:
    """Encoded training files, uint16 arrays."""

    library: list[np.ndarray]
    tests: list[np.ndarray]

    def windows(self, stage: Stage) -> Windows:
        return Windows(self.library, self.tests, stage.rows, stage.length)


def train_pair(
    out: Path, budget: Budget, *, device: str = "cpu", compile: bool = False, progress: bool = True
) -> Path:
    """Train, or go on training, the pair in `out`; returns the folder `out/weights` with target,
    draft and model card.

    Checkpoints and intermediate results lie in `out/checkpoints`; a second call with the same
    budget goes on where the first stopped. Raises WriteError where the disk is full: the last
    checkpoint is still whole.
    """
    work = out / "checkpoints"
    make_folder(work)
    begun = time.monotonic()
    files = [file for file in read_corpus() if not file.held_out]
    tokenizer = _tokenizer(files, work)
    corpus = _encode(files, tokenizer, work)
    where = torch.device(device)
    job = partial(Job, folder=work, device=where, compile=compile, progress=progress)
    target = build_target().to(where)
    history = {
        "target": train(
            job("target", steps=budget.target_steps),
            target,
            partial(next_token_loss, target),
            corpus.windows,
        )
    }
    target.eval().requires_grad_(False)
    draft = build_draft().to(where)
    blocks = [
        block
        for tokens in corpus.library
        for block in split_documents(tokens, tokenizer.bos_token_id)
    ]
    written = continuations(
        Pair(target, draft, tokenizer), blocks, budget.continuations, work, progress=progress
    )
    food = _Corpus(corpus.library + _interleave(written), corpus.tests)
    draft.train()
    history["draft"] = train(
        job("draft", steps=budget.draft_steps),
        draft,
        partial(distillation_loss, draft, target),
        food.windows,
    )
    weights = out / "weights"
    export(target, tokenizer, weights / "target")
    export(draft, tokenizer, weights / "draft")
    write_prompts(weights / "prompts.jsonl", cut_bundled_prompts(tokenizer, read_corpus()))
    pair = load_pair(weights / "target", weights / "draft", device="cpu", dtype="float32")
    facts = {
        "date": str(date.today()),
        "device": f"{device} ({platform.machine()}, {torch.get_num_threads()} threads)",
    }
    facts["command"] = (
        f"specviz train{' --compile' * compile} --target-steps {budget.target_steps} --draft-steps {budget.draft_steps}"
        f" --continuations {budget.continuations}"
    )
    facts |= {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }
    figures = measure_pair(pair, read_prompts(weights / "prompts.jsonl"))
    write_card(weights / "README.md", pair, history, figures, facts, time.monotonic() - begun)
    return weights


def _tokenizer(files: list[SourceFile], work: Path) -> PreTrainedTokenizerFast:
    folder = work / "tokenizer"
    if not folder.exists():
        write_folder(folder, train_tokenizer(file.text for file in files).save_pretrained)
    return PreTrainedTokenizerFast.from_pretrained(folder)


def _encode(files: list[SourceFile], tokenizer: PreTrainedTokenizerFast, work: Path) -> _Corpus:
    encoded = [encode_blocks(tokenizer, file) for file in files]
    parts = [
        [tokens for tokens, file in zip(encoded, files, strict=True) if file.is_test == is_test]
        for is_test in (False, True)
    ]
    return _Corpus(parts[0], parts[1])


def _interleave(documents: list[np.ndarray], size: int = 64) -> list[np.ndarray]:
    """Documents joined into files of `size`, so that windows rarely cross what belongs together."""
    return [np.concatenate(documents[i : i + size]) for i in range(0, len(documents), size)]
