"""Write the records of many runs, and compare two such folders table by table.

    python -m same_records write FOLDER          # with this checkout
    python -m same_records compare FOLDER OTHER  # of two checkouts; ends with 1 if any differ

A change of the engine's inside must leave every record as it was, times aside.
"""

import copy
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import tiny_models
import torch

import specviz as sv

# What says when and how fast a run went, and in which release.
TIMES = {"schedule_ms", "draft_ms", "verify_ms", "accept_ms", "synchronise_ms"}
UNSTABLE = {"created", "versions"}
PROMPTS = [
    "def add(a, b):\n    return",
    "class Stack:\n    def __init__(self):\n        self.items = []\n",
    "import os\n",
    "for i in range(10):\n    print(",
    "x",
    "def read(path):\n    with open(path) as file:\n        return file.read()\n\n\ndef write",
    "try:\n    value = int(text)\nexcept",
]
VALID = ["autoregressive", "rollback", "masking", "eqspec", "exspec", "inplace"]
SPECULATIVE = VALID[1:]
HEADS = ["medusa", "clover", "eagle3"]
FAMILIES = ["lfm2", "qwen3_next", "jamba", "gemma3_text"]  # windows, convolutions, recurrences
TINY_PROMPTS = [[5, 9, 3, 7, 7, 1, 20, 4], [5], [7, 8], [31, 2, 2, 9], [9], list(range(2, 40, 3))]
FAULTS = ["positions", "mask", "kv", "bonus"]


def configurations() -> Iterator[dict[str, Any]]:
    """Yield the arguments of `generate` for each run, besides the prompts."""
    samplings = [
        None,
        sv.SamplingParams(temperature=0.8, top_p=0.9),
        sv.SamplingParams(temperature=1.0, coupling="gumbel"),
    ]
    for strategy, sampling in product(VALID, samplings):
        yield {"strategy": strategy, "sampling": sampling}
    for strategy, sampling in product(SPECULATIVE, samplings):
        yield {"strategy": strategy, "drafter": "lookup", "sampling": sampling}
        yield {"strategy": strategy, "drafter": "eagle3", "sampling": sampling}
    for strategy, head in product(["inplace", "eqspec"], HEADS):
        yield {"strategy": strategy, "drafter": head}
    for strategy, selector in product(["inplace", "eqspec", "exspec"], ["tetris", "threshold"]):
        for drafter in ("model", "eagle3"):
            yield {"strategy": strategy, "selector": selector, "drafter": drafter}
    for drafter, sampling in product(["tree", "static_tree"], samplings):
        for strategy in ("inplace", "eqspec", "masking"):
            yield {"strategy": strategy, "drafter": drafter, "sampling": sampling}
    for strategy, fault in product(["inplace", "eqspec", "masking"], FAULTS):
        yield {"strategy": sv.strategy(strategy, break_invariant=fault)}
    for fallback in ("partial", "wait"):
        yield {"strategy": sv.strategy("exspec", window=5, fallback=fallback)}
    yield {"strategy": sv.strategy("masking", positions="column")}
    yield {"strategy": "repadding"}
    yield {"strategy": "repadding", "drafter": "lookup"}
    for strategy in ("inplace", "eqspec"):
        yield {"strategy": strategy, "deterministic": True}
        yield {"strategy": strategy, "max_new_tokens": [3, 20, 1, 9, 30, 2, 17]}
        yield {"strategy": strategy, "batch_size": 1}
        yield {"strategy": strategy, "drafter": sv.drafter("synthetic", rates=[0.9, 0.7, 0.6, 0.5])}


def tiny_pair(family: str) -> sv.Pair:
    """Return a small model of a family with random weights, drafted for by a noisy copy."""
    config = tiny_models.make_config(tiny_models.families()[family], tie_word_embeddings=False)
    target = tiny_models.build(family, config, "sdpa")
    draft = copy.deepcopy(target)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in draft.parameters():
            weight += 0.02 * torch.randn(weight.shape, generator=generator)
    return sv.Pair(target, draft)


def write(folder: Path) -> None:
    """Write a record for each configuration of the embedded pair, and for pairs with states."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    pair = sv.load_pair(device="cpu")
    common = {"num_draft_tokens": 4, "batch_size": 3, "max_new_tokens": 24}
    common |= {"record": True, "progress": False, "num_threads": 1}
    for number, arguments in enumerate(configurations()):
        result = sv.generate(pair, PROMPTS, **common | arguments)
        result.trace.save(folder / f"{number:03}.safetensors")
    for family, strategy in product(FAMILIES, SPECULATIVE):
        result = sv.generate(tiny_pair(family), TINY_PROMPTS, **common | {"strategy": strategy})
        result.trace.save(folder / f"{family}_{strategy}.safetensors")


def differences(before: sv.Trace, after: sv.Trace) -> list[str]:
    """Return the names of what differs."""
    found = [
        f"meta.{name}"
        for name in sorted(before.meta.keys() | after.meta.keys())
        if name not in UNSTABLE and not same_facts(before.meta.get(name), after.meta.get(name))
    ]
    for name, table in before.tables.items():
        for column, values in table.items():
            other = after.tables[name][column]
            equal = values.shape == other.shape and values.dtype == other.dtype
            if column not in TIMES and not (equal and _same(values, other)):
                found.append(f"{name}.{column}")
    return found


def same_facts(before: Any, after: Any) -> bool:
    """Return whether two values of a header agree. Options may have gone."""
    if isinstance(before, dict) and isinstance(after, dict):
        return all(before[name] == after[name] for name in before.keys() & after.keys())
    return bool(before == after)


def _same(values: np.ndarray, other: np.ndarray) -> bool:
    # Log-probabilities may differ by rounding where a sum is taken in another order.
    if values.dtype.kind == "f":
        return bool(np.allclose(values, other, rtol=0, atol=1e-4, equal_nan=True))
    return np.array_equal(values, other)


def compare(before: Path, after: Path) -> int:
    """Print what differs between the records of two folders; return 1 if anything does."""
    names = sorted({path.name for folder in (before, after) for path in folder.iterdir()})
    differ = 0
    for name in names:
        if not ((before / name).exists() and (after / name).exists()):
            found = ["in one folder only"]
        else:
            found = differences(sv.Trace.load(before / name), sv.Trace.load(after / name))
        differ += bool(found)
        if found:
            sys.stdout.write(f"{name} {found}\n")
    sys.stdout.write(f"{len(names)} records, {differ} differ\n")
    return int(differ > 0)


if __name__ == "__main__":
    action, *folders = sys.argv[1:]
    paths = [Path(folder) for folder in folders]
    sys.exit(compare(*paths) if action == "compare" else write(*paths))
