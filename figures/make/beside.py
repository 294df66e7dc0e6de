"""Measure the speed of this checkout beside that of an older one, in turns on one thread.

    git worktree add ../older 0eff9f6
    python figures/make/beside.py ../older

Each checkout runs in a process of its own, and only one of them works at a time: in each turn both
decode the same prompts, one after the other, and the order changes from turn to turn. Times are
CPU seconds of `sv.generate`, recording off. The table goes to figures/data/speed-beside.csv, or to
the file that --out names. Without an older checkout, --small measures this one beside itself.
"""

import argparse
import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from statistics import median, quantiles

import pandas as pd

import specviz as sv
from specviz.util.files import conditions, save_measured

HERE = Path(__file__).parents[1]
OUT = HERE / "figures" / "data" / "speed-beside.csv"
CASES = list(product(["autoregressive", "inplace", "eqspec"], [1, 8]))  # strategy, B
PROMPTS, NEW_TOKENS = 8, 64

# Only names that both checkouts know.
WORKER = """
import json, sys, time
import torch
torch.set_num_threads(1)
import specviz as sv
pair = sv.load_pair(device="cpu")
prompts = sv.load_prompts(limit={prompts})
for line in sys.stdin:
    strategy, rows = json.loads(line)
    before = time.process_time()
    result = sv.generate(
        pair, prompts, strategy=strategy, batch_size=rows,
        max_new_tokens={new_tokens}, num_draft_tokens=5, progress=False,
    )
    seconds = time.process_time() - before
    print(json.dumps([seconds, result.tokens]), flush=True)
"""


class Checkout:
    """A process that decodes with the code of one checkout."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER.format(prompts=PROMPTS, new_tokens=NEW_TOKENS)],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def decode(self, strategy: str, rows: int) -> tuple[float, list[list[int]]]:
        """Return the CPU seconds of one run, and its texts."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([strategy, rows]) + "\n")
        self.process.stdin.flush()
        seconds, texts = json.loads(self.process.stdout.readline())
        return seconds, texts

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def compare(
    older: Checkout, newer: Checkout, strategy: str, rows: int, turns: int
) -> dict[str, object]:
    """Return one line of the table."""
    seconds: dict[Checkout, list[float]] = {older: [], newer: []}
    for turn in range(-1, turns):  # the first one warms up
        order = (older, newer) if turn % 2 else (newer, older)
        texts = []
        for checkout in order:
            took, text = checkout.decode(strategy, rows)
            texts.append(text)
            if turn >= 0:
                seconds[checkout].append(took)
        assert texts[0] == texts[1], f"{strategy} at B = {rows} writes another text"
    ratios = [old / new for old, new in zip(seconds[older], seconds[newer], strict=True)]
    low, _, high = quantiles(ratios, n=4)
    return {
        "strategy": strategy,
        "B": rows,
        "older_s": median(seconds[older]),
        "newer_s": median(seconds[newer]),
        "speed_ratio": median(ratios),
        "lower_quartile": low,
        "upper_quartile": high,
        "turns": turns,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("older", type=Path, help="folder of the older checkout")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--out", type=Path, default=OUT, help="the table")
    arguments = parser.parse_args()
    folder = arguments.older.resolve()
    if not (folder / "specviz" / "__init__.py").is_file():
        parser.error(f"older must be a checkout of specviz, got {folder}; see `git worktree add`")
    revision = subprocess.run(
        ["git", "-C", folder, "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    checkouts = Checkout(folder), Checkout(HERE)
    lines = []
    for case in CASES:
        lines.append(compare(*checkouts, *case, arguments.turns))
        sys.stdout.write(f"{lines[-1]}\n")
    for checkout in checkouts:
        checkout.close()
    run = sv.generate(sv.load_pair(device="cpu"), ["x"], max_new_tokens=1, record=True)
    assert run.trace is not None
    where = conditions(
        run.trace.meta,
        older=revision,
        threads=1,
        prompts=PROMPTS,
        max_new_tokens=NEW_TOKENS,
        measured=__doc__,
    )
    save_measured(pd.DataFrame(lines), where, arguments.out)


if __name__ == "__main__":
    main()
