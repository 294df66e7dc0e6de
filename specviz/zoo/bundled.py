"""How the bundled prompts are cut.

Beginnings of held-out functions and classes, at the end of a line, 10 to 300 tokens long.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase

from specviz.util.files import write
from specviz.zoo.corpus import SourceFile

COUNT, SHORTEST, LONGEST = 32, 10, 300
LEFT = 40  # tokens of the block that a prompt leaves to be written, at least


def cut_bundled_prompts(
    tokenizer: PreTrainedTokenizerBase, files: Sequence[SourceFile], seed: int = 0
) -> list[dict[str, str | int]]:
    """COUNT prompts from held-out library files, lengths spread evenly over the logarithm.

    Source, tokens (bos included) and text.
    """
    rng = np.random.default_rng(seed)
    held_out = [file for file in files if file.held_out and not file.is_test]
    blocks = [
        (file.path, block)
        for file in held_out
        for block in file.blocks
        if block.startswith(("def ", "class "))
    ]
    lengths = np.geomspace(SHORTEST, LONGEST, COUNT).round().astype(int)
    prompts: list[dict[str, str | int]] = []
    used: set[str] = set()
    for wanted in lengths[::-1]:
        for i in rng.permutation(len(blocks)):
            path, block = blocks[i]
            text = _cut(tokenizer, block, int(wanted))
            if (
                text is not None
                and sum(prompt["source"] == path for prompt in prompts) < 2
                and block not in used
            ):
                used.add(block)
                prompts.append(
                    {"source": path, "tokens": len(tokenizer(text)["input_ids"]), "text": text}
                )
                break
    return prompts[::-1]


def _cut(tokenizer: PreTrainedTokenizerBase, block: str, wanted: int) -> str | None:
    """The block's first lines, the end of a line nearest to `wanted` tokens.

    None if that is further than a tenth away.
    """
    ids = tokenizer(block)["input_ids"]
    ends = [
        i
        for i in range(SHORTEST, min(LONGEST, len(ids) - LEFT) + 1)
        if tokenizer.decode(ids[i : i + 1]).startswith("\n")
    ]
    nearest = min(ends, key=lambda i: abs(i - wanted), default=None)
    if nearest is None or abs(nearest - wanted) > max(1, wanted // 10):
        return None
    text = tokenizer.decode(ids[1:nearest])
    return text if tokenizer(text)["input_ids"] == ids[:nearest] else None


def write_prompts(path: Path, prompts: Sequence[dict[str, str | int]]) -> None:
    """One JSON object a line."""
    write(path, "".join(json.dumps(prompt) + "\n" for prompt in prompts).encode())


def read_prompts(path: Path) -> list[str]:
    """The texts that `write_prompts` wrote."""
    return [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()]
