"""`specviz bench`: the strategies on equal work, interleaved in one run, every speed beside its exact match with batch 1.

Runs models through `generate` alone; draws nothing.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from tqdm.auto import tqdm

from specviz.engine.pair import Pair
from specviz.engine.requests import whole
from specviz.generation import generate
from specviz.measured import conditions
from specviz.result import Result


@dataclass(frozen=True)
class Grid:
    """What is measured: every strategy at every batch size, `repetitions` times, after one run that warms up and is not counted."""

    strategies: Sequence[str] = ("autoregressive", "eqspec", "inplace")
    batch_sizes: Sequence[int] = (1, 4, 8, 16)
    num_draft_tokens: int = 5
    max_new_tokens: int = 64
    repetitions: int = 3

    def __post_init__(self) -> None:
        for name in ("strategies", "batch_sizes"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty; name at least one")
        for i, size in enumerate(self.batch_sizes):
            whole(f"batch_sizes[{i}]", size)
        whole("repetitions", self.repetitions)


def run_bench(pair: Pair, prompts: Sequence[str], grid: Grid, *, progress: bool = True) -> tuple[pd.DataFrame, dict[str, object]]:
    """Measure the grid; returns one row per (batch_size, strategy), and what it was measured on.

    Columns: exact_match (share of prompts whose tokens equal autoregressive decoding at batch 1), mean_acceptance_length, tokens_per_s
    (median over repetitions), tokens_per_s_low and _high (their range), ratio_to_autoregressive (of medians, same batch size).
    """
    reference = _run(pair, prompts, "autoregressive", 1, grid)  # also the warm-up
    cells = [(size, name) for size in grid.batch_sizes for name in grid.strategies]
    speeds: dict[tuple[int, str], list[float]] = {cell: [] for cell in cells}
    last: dict[tuple[int, str], Result] = {}
    order = [(repetition, cell) for repetition in range(grid.repetitions) for cell in cells]
    for _, cell in tqdm(order, desc="bench", unit="run", disable=not progress):
        last[cell] = _run(pair, prompts, cell[1], cell[0], grid)
        speeds[cell].append(last[cell].summary["tokens_per_s"].item())
    table = pd.DataFrame([_row(cell, last[cell], reference, pd.Series(speeds[cell])) for cell in cells])
    plain = table[table["strategy"] == "autoregressive"].set_index("batch_size")["tokens_per_s"]
    table["ratio_to_autoregressive"] = table["tokens_per_s"] / table["batch_size"].map(plain)
    return table, _conditions(reference, grid, len(prompts))


def _run(pair: Pair, prompts: Sequence[str], strategy: str, batch_size: int, grid: Grid) -> Result:
    return generate(
        pair, prompts, strategy=strategy, batch_size=batch_size, num_draft_tokens=grid.num_draft_tokens,
        max_new_tokens=grid.max_new_tokens, progress=False,
    )  # fmt: skip


def _row(cell: tuple[int, str], result: Result, reference: Result, speeds: pd.Series) -> dict[str, object]:
    same = [ours == theirs for ours, theirs in zip(result.tokens, reference.tokens, strict=True)]
    return {
        "batch_size": cell[0],
        "strategy": cell[1],
        "exact_match": sum(same) / len(same),
        "mean_acceptance_length": result.summary["mean_acceptance_length"].item(),
        "rounds": len(result.rounds["batch"]),
        "tokens_per_s": speeds.median(),
        "tokens_per_s_low": speeds.min(),
        "tokens_per_s_high": speeds.max(),
    }


def _conditions(reference: Result, grid: Grid, prompts: int) -> dict[str, object]:
    asked = {"num_draft_tokens": grid.num_draft_tokens, "max_new_tokens": grid.max_new_tokens, "repetitions": grid.repetitions}
    return conditions(reference.meta, **asked, prompts=prompts, cpu_count=os.cpu_count())
