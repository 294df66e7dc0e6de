"""Training text for the draft and for heads: what the target writes after prompts of the corpus."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from tqdm import tqdm

from specviz.engine.models.pair import Pair
from specviz.engine.sampling import SamplingParams
from specviz.generation.generate import generate
from specviz.util.files import replacing

NEW_TOKENS = 128
PROMPT_TOKENS = (8, 256)  # shortest and longest
CHUNK = 512  # documents in a file
TEMPERATURE = 0.8  # of sampled continuations


def cut_prompts(
    blocks: Sequence[np.ndarray], count: int, rng: np.random.Generator
) -> list[list[int]]:
    """Return `count` prompts: blocks (bos first) drawn and cut at random, never the whole block."""
    shortest, longest = PROMPT_TOKENS
    usable = [block for block in blocks if len(block) > shortest + 1]
    drawn = [usable[i] for i in rng.choice(len(usable), count)]
    prompts = []
    for block in drawn:
        length = rng.integers(shortest, min(longest, len(block) - 1) + 1)
        prompts.append(block[:length].tolist())
    return prompts


def continuations(
    pair: Pair,
    blocks: Sequence[np.ndarray],
    count: int,
    folder: Path,
    *,
    sampled: bool = False,
    progress: bool = True,
) -> list[np.ndarray]:
    """Return `count` documents: prompts with their continuations, greedy or sampled.

    They are made in chunks, which are kept in `folder`, so an interrupted run resumes. A chunk of
    another target or of other prompts is written again. Greedy and sampled ones have different
    prompts.
    """
    weights = _digest(tensor.numpy(force=True) for tensor in pair.target.state_dict().values())
    documents: list[np.ndarray] = []
    starts = range(0, count, CHUNK)
    name = "sampled" if sampled else "continuations"
    for start in tqdm(starts, desc=name, unit="chunk", disable=not progress):
        path = folder / f"{name}-{start // CHUNK}.safetensors"
        rng = np.random.default_rng([int(sampled), start])
        prompts = cut_prompts(blocks, min(CHUNK, count - start), rng)
        origin = {"target": weights, "prompts": _digest(map(np.array, prompts))}
        if _origin(path) != origin:
            sampling = SamplingParams(TEMPERATURE) if sampled else None
            _write_chunk(path, _continue(pair, prompts, sampling, seed=start), origin)
        chunk = load_file(path)
        documents += np.split(chunk["tokens"], chunk["offsets"][1:-1])
    return documents


def _continue(
    pair: Pair, prompts: list[list[int]], sampling: SamplingParams | None, seed: int
) -> list[np.ndarray]:
    """Return the prompts with what the target writes after them."""
    result = generate(
        pair,
        prompts,
        strategy="autoregressive",
        batch_size=64,
        max_new_tokens=NEW_TOKENS,
        sampling=sampling,
        seed=seed,
        progress=False,
    )
    documents = []
    for prompt, new in zip(prompts, result.tokens, strict=True):
        documents.append(np.array(prompt + new, dtype=np.uint16))
    return documents


def _write_chunk(path: Path, documents: list[np.ndarray], origin: dict[str, str]) -> None:
    tables = {
        "tokens": np.concatenate(documents),
        "offsets": np.cumsum([0, *map(len, documents)]),
    }
    with replacing(path, alone=True) as partial:
        save_file(tables, partial, metadata=origin)


def _origin(path: Path) -> dict[str, str] | None:
    """Return what a chunk was made of; None if there is no chunk."""
    if not path.exists():
        return None
    with safe_open(path, "numpy") as chunk:
        return chunk.metadata()


def _digest(arrays: Iterable[np.ndarray]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(array.tobytes())
    return digest.hexdigest()


def split_documents(tokens: np.ndarray, bos: int) -> list[np.ndarray]:
    """Cut an encoded file at its bos tokens."""
    return [part for part in np.split(tokens, np.flatnonzero(tokens == bos)) if len(part)]
