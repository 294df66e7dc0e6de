"""`measure_losses`: what each loss of the published EQSPEC and EXSPEC costs, alone and with all others.

Runs models through `generate` alone: once recorded, for what is done in vain, and several times unrecorded, for the speed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from specviz.analysis.waste import waste
from specviz.engine.drafters import Drafter, drafter
from specviz.engine.pair import Pair
from specviz.engine.requests import Prompt, whole
from specviz.engine.strategies import Strategy, strategy
from specviz.generation import generate
from specviz.measured import conditions
from specviz.result import Result

NOTHING_LOST = "none"
LOSSES: dict[str, tuple[dict[str, Any], ...]] = {
    "eqspec": ({"refill": False}, {"bonus": False}, {"shrink_to_budget": True}, {"keep_cache": False}, {"as_published": True}),
    "exspec": (
        {"bonus": False}, {"shrink_to_budget": True}, {"keep_cache": False}, {"drop_cache": True}, {"group_by": "padded"},
        {"as_published": True},
    ),
}  # fmt: skip


@dataclass
class _Cell:
    """One row of the table; the speeds are tokens a second."""

    batch_size: int
    strategy: Strategy
    drafter: str | Drafter = "model"
    loss: str = NOTHING_LOST
    speeds: list[float] = field(default_factory=list)


def measure_losses(
    pair: Pair,
    prompts: Sequence[Prompt],
    batch_sizes: Sequence[int] = (1, 4, 8, 16),
    *,
    num_draft_tokens: int = 5,
    max_new_tokens: int = 64,
    window: int = 32,
    repetitions: int = 3,
    progress: bool = True,
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Run EQSPEC and EXSPEC greedily with no loss, with each one alone, and as published; repetitions interleaved.

    Returns:
        (table, conditions). One entry per batch size, strategy and loss: exact_match (share of prompts whose tokens equal autoregressive
        decoding at batch 1), what `specviz.analysis.waste` counts, grouping_rate, tokens_per_s (median over repetitions), tokens_per_s_low
        and _high (their range), ratio_to_none (of medians: the same strategy without a loss) and ratio_to_autoregressive.

    Raises:
        ValueError: as `generate`, or a list is empty; nothing has run.
    """
    if not batch_sizes:
        raise ValueError("batch_sizes is empty; name at least one")
    for i, size in enumerate(batch_sizes):
        whole(f"batch_sizes[{i}]", size)
    whole("repetitions", repetitions)
    cells = [cell for size in batch_sizes for cell in _cells(size, window)]

    def run(cell: _Cell, record: bool) -> Result:
        return generate(
            pair, prompts, strategy=cell.strategy, drafter=cell.drafter, batch_size=cell.batch_size, record=record, progress=False,
            num_draft_tokens=num_draft_tokens, max_new_tokens=max_new_tokens,
        )  # fmt: skip

    reference = run(_Cell(1, strategy("autoregressive")), record=False)  # also warms up
    runs = [(repetition, cell) for repetition in range(repetitions + 1) for cell in cells]
    entries = []
    for repetition, cell in tqdm(runs, desc="losses", unit="run", disable=not progress):
        result = run(cell, record=repetition == 0)
        if repetition == 0:
            entries.append(_entry(cell, result, reference))
        else:
            cell.speeds.append(result.summary["tokens_per_s"].item())
    table = pd.DataFrame(entries).join(pd.DataFrame([_speeds(cell) for cell in cells]))
    asked = {"num_draft_tokens": num_draft_tokens, "max_new_tokens": max_new_tokens, "window": window, "repetitions": repetitions}
    return _with_ratios(table), conditions(reference.meta, prompts=len(prompts), **asked)


def _cells(batch_size: int, window: int) -> list[_Cell]:
    cells = [_Cell(batch_size, strategy("autoregressive"))]
    for name, losses in LOSSES.items():
        given = {"window": max(window, batch_size)} if name == "exspec" else {}
        cells.append(_Cell(batch_size, strategy(name, **given)))
        for loss in losses:
            words = ", ".join(f"{option}={value!r}" for option, value in loss.items())
            if "keep_cache" in loss:
                cells.append(_Cell(batch_size, strategy(name, **given), drafter("model", **loss), words))
            else:
                cells.append(_Cell(batch_size, strategy(name, **given, **loss), loss=words))
    return cells


def _entry(cell: _Cell, result: Result, reference: Result) -> dict[str, object]:
    assert result.trace is not None
    same = [ours == theirs for ours, theirs in zip(result.tokens, reference.tokens, strict=True)]
    head = {"batch_size": cell.batch_size, "strategy": cell.strategy.name, "loss": cell.loss, "exact_match": sum(same) / len(same)}
    return head | waste(result.trace).iloc[0].to_dict() | {"grouping_rate": result.summary["grouping_rate"].item()}


def _speeds(cell: _Cell) -> dict[str, float]:
    speeds = pd.Series(cell.speeds)
    return {"tokens_per_s": speeds.median(), "tokens_per_s_low": speeds.min(), "tokens_per_s_high": speeds.max()}


def _with_ratios(table: pd.DataFrame) -> pd.DataFrame:
    counts = ["rounds", "verified_rows", "idle_rows", "discarded_tokens"]
    whole_ones = table[table["loss"] == NOTHING_LOST].set_index(["batch_size", "strategy"])["tokens_per_s"]
    own = pd.Index(zip(table["batch_size"], table["strategy"], strict=True))
    plain = pd.Index([(size, "autoregressive") for size in table["batch_size"]])
    return table.astype(dict.fromkeys(counts, int)).assign(
        ratio_to_none=table["tokens_per_s"].to_numpy() / whole_ones.loc[own].to_numpy(),
        ratio_to_autoregressive=table["tokens_per_s"].to_numpy() / whole_ones.loc[plain].to_numpy(),
    )
