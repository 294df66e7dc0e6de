"""The draft's own food.

What the target itself writes after prompts from the training files, decoded greedily.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file
from tqdm import tqdm

from specviz.engine.models.pair import Pair
from specviz.generation.generate import generate
from specviz.util.files import replacing

NEW_TOKENS = 128
PROMPT_TOKENS = (8, 256)  # shortest and longest
CHUNK = 512


def cut_prompts(
    blocks: Sequence[np.ndarray], count: int, rng: np.random.Generator
) -> list[list[int]]:
    """`count` prompts.

    Blocks (bos first) drawn at random and cut at a random length, never the whole block.
    """
    usable = [block for block in blocks if len(block) > PROMPT_TOKENS[0] + 1]
    drawn = [usable[i] for i in rng.choice(len(usable), count)]
    return [
        block[: rng.integers(PROMPT_TOKENS[0], min(PROMPT_TOKENS[1], len(block) - 1) + 1)].tolist()
        for block in drawn
    ]


def continuations(
    pair: Pair,
    blocks: Sequence[np.ndarray],
    count: int,
    folder: Path,
    *,
    seed: int = 0,
    progress: bool = True,
) -> list[np.ndarray]:
    """`count` documents (prompt and greedy continuation), made in chunks that are kept in `folder`, so an interrupted run goes on."""
    documents: list[np.ndarray] = []
    for number in tqdm(
        range(0, count, CHUNK), desc="continuations", unit="chunk", disable=not progress
    ):
        path = folder / f"continuations-{number // CHUNK}.safetensors"
        if not path.exists():
            prompts = cut_prompts(
                blocks, min(CHUNK, count - number), np.random.default_rng([seed, number])
            )
            result = generate(
                pair,
                prompts,
                strategy="autoregressive",
                batch_size=64,
                max_new_tokens=NEW_TOKENS,
                progress=False,
            )
            rows = [
                np.array(prompt + new, dtype=np.uint16)
                for prompt, new in zip(prompts, result.tokens, strict=True)
            ]
            with replacing(path, alone=True) as partial:
                save_file(
                    {"tokens": np.concatenate(rows), "offsets": np.cumsum([0, *map(len, rows)])},
                    partial,
                )
        chunk = load_file(path)
        documents += np.split(chunk["tokens"], chunk["offsets"][1:-1])
    return documents


def split_documents(tokens: np.ndarray, bos: int) -> list[np.ndarray]:
    """Cut an encoded file at its bos tokens."""
    return [part for part in np.split(tokens, np.flatnonzero(tokens == bos)) if len(part)]
