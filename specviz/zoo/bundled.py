"""Cut the bundled prompts: beginnings of held-out functions and classes, 10 to 300 tokens long.

Each prompt ends at the end of a line.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase

from specviz.util.files import write
from specviz.zoo.corpus import SourceFile

COUNT = 32
SHORTEST = 10  # tokens
LONGEST = 300
LEFT = 40  # tokens of the block, at least, that a prompt leaves for the model to write


def cut_bundled_prompts(
    tokenizer: PreTrainedTokenizerBase, files: Sequence[SourceFile], seed: int = 0
) -> list[dict[str, str | int]]:
    """Return COUNT prompts from held-out library files, as source, tokens and text.

    Lengths are spread evenly over the logarithm. `tokens` includes bos. A file gives at most two
    prompts, a block at most one.
    """
    rng = np.random.default_rng(seed)
    blocks = []
    for file in files:
        if file.held_out and not file.is_test:
            blocks += [(file.path, block) for block in file.blocks if _is_definition(block)]
    prompts: list[dict[str, str | int]] = []
    used: set[str] = set()
    lengths = np.geomspace(SHORTEST, LONGEST, COUNT).round().astype(int)
    for length in lengths[::-1]:
        for i in rng.permutation(len(blocks)):
            path, block = blocks[i]
            of_this_file = sum(prompt["source"] == path for prompt in prompts)
            if of_this_file >= 2 or block in used:
                continue
            text = _cut(tokenizer, block, int(length))
            if text is not None:
                used.add(block)
                num_tokens = len(tokenizer(text)["input_ids"])
                prompts.append({"source": path, "tokens": num_tokens, "text": text})
                break
    return prompts[::-1]


def _is_definition(block: str) -> bool:
    return block.startswith(("def ", "class "))


def _cut(tokenizer: PreTrainedTokenizerBase, block: str, wanted: int) -> str | None:
    """Return the block's first lines, up to the end of a line nearest to `wanted` tokens.

    None if the nearest one is further than a tenth away.
    """
    ids = tokenizer(block)["input_ids"]
    ends = []
    for i in range(SHORTEST, min(LONGEST, len(ids) - LEFT) + 1):
        if tokenizer.decode(ids[i : i + 1]).startswith("\n"):
            ends.append(i)
    nearest = min(ends, key=lambda i: abs(i - wanted), default=None)
    if nearest is None or abs(nearest - wanted) > max(1, wanted // 10):
        return None
    text = tokenizer.decode(ids[1:nearest])
    same_tokens = tokenizer(text)["input_ids"] == ids[:nearest]
    return text if same_tokens else None


def write_prompts(path: Path, prompts: Sequence[dict[str, str | int]]) -> None:
    """Write one JSON object a line."""
    write(path, "".join(json.dumps(prompt) + "\n" for prompt in prompts).encode())


def read_prompts(path: Path) -> list[str]:
    """Return the texts that `write_prompts` wrote."""
    return [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()]
