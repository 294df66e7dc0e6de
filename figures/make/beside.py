"""Measure the speed of this checkout beside that of an older one, in turns on one thread.

    git worktree add ../older 0eff9f6
    python figures/make/beside.py ../older

Each checkout runs in a process of its own, and only one of them works at a time: in each turn both
decode the same prompts, one after the other, and the order changes from turn to turn. Times are
CPU seconds of `sv.generate`, recording off. The table goes to figures/data/speed-beside.csv, or to
the file that --out names.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pandas as pd
from measure import DATA, FIGURES, measured_on

import specviz as sv
from specviz.util.files import save_measured

HERE = FIGURES.parent
CASES = product(["autoregressive", "inplace", "eqspec"], [1, 8])  # strategy, B
PROMPTS, NEW_TOKENS = 8, 64

# Only names that both checkouts know.
WORKER = f"""
import json, sys, time
import torch
torch.set_num_threads(1)
import specviz as sv
pair = sv.load_pair(device="cpu")
prompts = sv.load_prompts(limit={PROMPTS})
for line in sys.stdin:
    strategy, rows = json.loads(line)
    before = time.process_time()
    result = sv.generate(
        pair, prompts, strategy=strategy, batch_size=rows,
        max_new_tokens={NEW_TOKENS}, num_draft_tokens=5, progress=False,
    )
    print(json.dumps([time.process_time() - before, result.tokens]), flush=True)
"""


def start(folder: Path) -> subprocess.Popen[str]:
    """Return a process that decodes with the code of one checkout."""
    return subprocess.Popen(
        [sys.executable, "-c", WORKER], cwd=folder, text=True,
        env=os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip


def decode(checkout: Any, strategy: str, rows: int) -> tuple[float, list[list[int]]]:
    """Return the CPU seconds of one run, and its texts."""
    print(json.dumps([strategy, rows]), file=checkout.stdin, flush=True)
    seconds, texts = json.loads(checkout.stdout.readline())
    return seconds, texts


def compare(checkouts: Sequence[Any], strategy: str, rows: int, turns: int) -> dict[str, object]:
    """Return one line of the table; the older checkout is the first."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for turn in range(-1, turns):  # the first one warms up
        texts = []
        for place in (0, 1) if turn % 2 else (1, 0):
            took, text = decode(checkouts[place], strategy, rows)
            texts.append(text)
            if turn >= 0:
                seconds[place].append(took)
        assert texts[0] == texts[1], f"{strategy} at B = {rows} writes another text"
    ratios = [old / new for old, new in zip(*seconds, strict=True)]
    low, _, high = quantiles(ratios, n=4)
    line = {"strategy": strategy, "B": rows, "older_s": median(seconds[0])}
    line |= {"newer_s": median(seconds[1]), "speed_ratio": median(ratios)}
    return line | {"lower_quartile": low, "upper_quartile": high, "turns": turns}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("older", type=Path, help="folder of the older checkout")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--out", type=Path, default=DATA / "speed-beside.csv", help="the table")
    arguments = parser.parse_args()
    folder = arguments.older.resolve()
    revision = subprocess.check_output(
        ["git", "-C", folder, "rev-parse", "--short", "HEAD"], text=True
    ).strip()
    checkouts = start(folder), start(HERE)
    lines = []
    for case in CASES:
        lines.append(compare(checkouts, *case, arguments.turns))
        sys.stdout.write(f"{lines[-1]}\n")
    for checkout in checkouts:
        checkout.communicate()
    settings = {"older": revision, "prompts": PROMPTS, "max_new_tokens": NEW_TOKENS}
    about = measured_on(sv.load_pair(device="cpu"), **settings) | {"threads": 1}
    about = {"script": "figures/make/beside.py", **about}
    save_measured(pd.DataFrame(lines), about, arguments.out)


if __name__ == "__main__":
    main()
