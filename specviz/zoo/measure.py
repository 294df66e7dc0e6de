"""What the embedded pair reaches on files that it has not seen: bits per byte, and acceptance on
the bundled prompts.

`specviz evaluate` prints what `measure_pair` returns.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from specviz import metrics
from specviz.engine.models.pair import Pair
from specviz.generation.generate import generate
from specviz.zoo.corpus import SourceFile, read_corpus
from specviz.zoo.data import encode_blocks, held_out_windows

WINDOW = 512


@torch.inference_mode()
def bits_per_byte(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, files: Sequence[SourceFile]
) -> float:
    """Mean bits that `model` needs for a byte of the files' blocks, read in windows of 512 tokens
    without overlap.

    Every token counts but the first of a window, the ends of blocks included; bytes are those of
    the blocks.
    """
    nats = 0.0
    for window in held_out_windows((encode_blocks(tokenizer, file) for file in files), WINDOW):
        tokens = torch.from_numpy(window).to(model.device)
        logits = model(tokens[:, :-1]).logits.float()
        nats += F.cross_entropy(logits[0], tokens[0, 1:], reduction="sum").item()
    return nats / np.log(2) / sum(len(block.encode()) for file in files for block in file.blocks)


def measure_pair(
    pair: Pair, prompts: Sequence[str], *, num_draft_tokens: int = 5, max_new_tokens: int = 128
) -> pd.DataFrame:
    """One row per figure.

    Bits per byte of both models on held-out files, and acceptance on `prompts`.
    """
    held_out = [file for file in read_corpus() if file.held_out]
    library, tests = (
        [file for file in held_out if file.is_test == is_test] for is_test in (False, True)
    )
    figures: dict[str, float] = {}
    for name, model in (("target", pair.target), ("draft", pair.draft)):
        for part, files in (("library", library), ("test suite", tests)):
            if files:
                figures[f"{name}: bits per byte, held-out {part} ({len(files)} files)"] = (
                    bits_per_byte(model, pair.tokenizer, files)
                )
    run = generate(
        pair,
        prompts,
        num_draft_tokens=num_draft_tokens,
        max_new_tokens=max_new_tokens,
        progress=False,
    )
    summary, per_row = run.summary.iloc[0], metrics.requests(run)["mean_acceptance_length"]
    figures[f"mean acceptance length (K = {num_draft_tokens})"] = summary["mean_acceptance_length"]
    figures["draft acceptance rate"] = summary["draft_acceptance_rate"]
    figures["share of rounds with full acceptance"] = summary["full_acceptance_share"]
    for quantile, name in ((0.1, "10th percentile"), (0.5, "median"), (0.9, "90th percentile")):
        figures[f"mean acceptance length over prompts, {name}"] = float(per_row.quantile(quantile))
    figures["share of prompts that end by themselves"] = float(
        np.mean([row[-1] in pair.eos_token_ids for row in run.tokens])
    )
    return pd.DataFrame({"figure": list(figures), "value": list(figures.values())})
