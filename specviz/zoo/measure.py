"""Measure the embedded pair: bits per byte on held-out files, and acceptance on prompts.

`specviz evaluate` prints what `measure_pair` returns.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from specviz import metrics
from specviz.engine.models.pair import Pair
from specviz.generation.generate import generate
from specviz.zoo.corpus import SourceFile, read_corpus
from specviz.zoo.data import encode_blocks, held_out_windows

WINDOW = 512


@torch.inference_mode()
def bits_per_byte(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    files: Sequence[SourceFile],
    *,
    progress: bool = False,
) -> float:
    """Return the mean bits that `model` needs for a byte of the files' blocks.

    A file is read in windows of 512 targets. A target sees only its own window. Every token but the
    first of a file is a target, the ends of blocks included. Bytes are those of the blocks.
    """
    nats = 0.0
    bar = tqdm(files, desc="bits per byte", unit="file", disable=not progress)
    encoded = (encode_blocks(tokenizer, file) for file in bar)
    for window in held_out_windows(encoded, WINDOW):
        tokens = torch.from_numpy(window).to(model.device)
        logits = model(tokens[:, :-1]).logits.float()
        nats += F.cross_entropy(logits[0], tokens[0, 1:], reduction="sum").item()
    num_bytes = sum(len(block.encode()) for file in files for block in file.blocks)
    return nats / np.log(2) / num_bytes


def measure_pair(
    pair: Pair,
    prompts: Sequence[str],
    *,
    num_draft_tokens: int = 5,
    max_new_tokens: int = 128,
    progress: bool = True,
) -> pd.DataFrame:
    """Return a frame with one row per figure: columns figure and value.

    The figures are bits per byte of both models on held-out files, and acceptance on `prompts`.
    """
    run = generate(
        pair,
        prompts,
        num_draft_tokens=num_draft_tokens,
        max_new_tokens=max_new_tokens,
        progress=progress,
    )
    summary = run.summary.iloc[0]
    per_prompt = metrics.requests(run)["mean_acceptance_length"]
    ended = [row[-1] in pair.eos_token_ids for row in run.tokens]

    figures = _held_out_figures(pair, progress)
    figures[f"mean acceptance length (K = {num_draft_tokens})"] = summary["mean_acceptance_length"]
    figures["draft acceptance rate"] = summary["draft_acceptance_rate"]
    figures["share of rounds with full acceptance"] = summary["full_acceptance_share"]
    for quantile, name in ((0.1, "10th percentile"), (0.5, "median"), (0.9, "90th percentile")):
        value = float(per_prompt.quantile(quantile))
        figures[f"mean acceptance length over prompts, {name}"] = value
    figures["share of prompts that end by themselves"] = float(np.mean(ended))
    return pd.DataFrame({"figure": list(figures), "value": list(figures.values())})


def _held_out_figures(pair: Pair, progress: bool) -> dict[str, float]:
    """Return bits per byte of both models, on library files and on test suites."""
    held_out = [file for file in read_corpus() if file.held_out]
    parts = {
        "library": [file for file in held_out if not file.is_test],
        "test suite": [file for file in held_out if file.is_test],
    }
    figures = {}
    for name, model in (("target", pair.target), ("draft", pair.draft)):
        for part, files in parts.items():
            if files:
                label = f"{name}: bits per byte, held-out {part} ({len(files)} files)"
                figures[label] = bits_per_byte(model, pair.tokenizer, files, progress=progress)
    return figures
