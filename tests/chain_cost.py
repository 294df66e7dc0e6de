"""What a run gains from drafting in chains: the same compiled run with and without, in turns.

`OMP_NUM_THREADS=1 PYTHONPATH=tests python -m chain_cost` prints the median milliseconds of a draft
phase both ways, and the run's time with chains over that without, for the embedded pair at B = 1.
The first runs compile, which takes minutes.
"""

import sys
from statistics import median
from typing import Any
from unittest.mock import patch

import specviz as sv
from specviz.engine.run import Run

TURNS = 7
PROMPTS = 16
CASES: dict[str, dict[str, Any]] = {
    "model, K = 3": {"drafter": "model", "num_draft_tokens": 3},
    "eagle3, K = 4": {"drafter": "eagle3", "num_draft_tokens": 4},
}
OPTIONS: dict[str, Any] = {"batch_size": 1, "max_new_tokens": 64, "compile": True}


def measure(pair: sv.Pair, options: dict[str, Any]) -> tuple[float, float]:
    """Return the time of all rounds and the median time of a draft phase, in ms."""
    prompts = sv.load_prompts(limit=PROMPTS)
    stages = sv.generate(pair, prompts, progress=False, **OPTIONS, **options).stages
    return stages["total_ms"].sum(), stages["draft_ms"].median()


def main() -> None:
    """Measure and print."""
    pair = sv.load_pair()
    alone = patch.object(Run, "chain_length", None)
    for name, options in CASES.items():
        ratios = []
        drafts: dict[str, list[float]] = {"alone": [], "chained": []}
        for turn in range(TURNS + 1):
            with alone:
                total_alone, draft_alone = measure(pair, options)
            total, draft = measure(pair, options)
            if turn:  # the first ones compile
                ratios.append(total / total_alone)
                drafts["alone"].append(draft_alone)
                drafts["chained"].append(draft)
        before, after = median(drafts["alone"]), median(drafts["chained"])
        low, high = min(ratios), max(ratios)
        sys.stdout.write(
            f"{name}: drafting {before:.2f} to {after:.2f} ms a round, "
            f"time of a run {median(ratios):.3f} ({low:.3f} to {high:.3f})\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
