"""`measure_losses`: what each loss of the published EQSPEC and EXSPEC costs, alone and with all others.

Runs models through `generate`: once recorded, for what is done in vain, and several times unrecorded, for the speed; all methods of
a batch size side by side.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from specviz.engine.drafters import Drafter, drafter
from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt
from specviz.engine.strategies import Strategy, strategy
from specviz.generation.generate import generate, generate_interleaved
from specviz.generation.result import Result
from specviz.metrics import waste
from specviz.util.files import conditions
from specviz.util.validate import require_int

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
    """Run EQSPEC and EXSPEC greedily with no loss, with each one alone, and as published.

    On a CPU those of a batch size take turns in each repetition, a sixtieth of their texts at a time; on a GPU they follow one another.

    Returns:
        (table, conditions). One entry per batch size, strategy and loss: exact_match (share of prompts whose tokens equal autoregressive
        decoding at batch 1), what `specviz.waste` counts, grouping_rate, tokens_per_s (median over repetitions), tokens_per_s_low
        and _high (their range), ratio_to_none (to the same strategy without a loss) and ratio_to_autoregressive: medians of the ratios
        within a repetition. A cell that did not write the recorded texts each time has no speed.

    Raises:
        ValueError: as `generate`, or a list is empty; nothing has run.
        MemoryError: a batch size does not fit; it is not halved, since it would be measured as another.
    """
    if not batch_sizes:
        raise ValueError("batch_sizes is empty; name at least one")
    for i, size in enumerate(batch_sizes):
        require_int(f"batch_sizes[{i}]", size)
    require_int("repetitions", repetitions)
    sizes = list(dict.fromkeys(batch_sizes))
    cells = [cell for size in sizes for cell in _cells(size, window)]

    def asked_of(cell: _Cell) -> dict[str, Any]:
        given = {"strategy": cell.strategy, "drafter": cell.drafter, "batch_size": cell.batch_size}
        return given | {"num_draft_tokens": num_draft_tokens, "max_new_tokens": max_new_tokens}

    reference = generate(
        pair, prompts, progress=False, **asked_of(_Cell(1, strategy("autoregressive")))
    )  # also warms up
    entries, texts = [], {}
    with tqdm(
        desc="losses", total=len(cells) * (repetitions + 1), unit="run", disable=not progress
    ) as bar:
        for place, cell in enumerate(cells):
            recorded = generate(pair, prompts, record=True, progress=False, **asked_of(cell))
            entries.append(_entry(cell, recorded, reference))
            texts[place] = recorded.tokens
            bar.update()
        for _, size in product(range(repetitions), sizes):
            together = [place for place, cell in enumerate(cells) if cell.batch_size == size]
            for i, result in generate_interleaved(
                pair, [{"prompts": prompts, **asked_of(cells[place])} for place in together]
            ):
                same = result.tokens == texts[together[i]]
                cells[together[i]].speeds.append(
                    result.summary["tokens_per_s"].item() if same else float("nan")
                )
                bar.update()
    table = pd.DataFrame(entries).join(pd.DataFrame(_speeds(cells)))
    asked = {
        "num_draft_tokens": num_draft_tokens,
        "max_new_tokens": max_new_tokens,
        "window": window,
        "repetitions": repetitions,
    }
    return table, conditions(reference.meta, prompts=len(prompts), **asked)


def _cells(batch_size: int, window: int) -> list[_Cell]:
    cells = [_Cell(batch_size, strategy("autoregressive"))]
    for name, losses in LOSSES.items():
        given = {"window": max(window, batch_size)} if name == "exspec" else {}
        cells.append(_Cell(batch_size, strategy(name, **given)))
        for loss in losses:
            words = ", ".join(f"{option}={value!r}" for option, value in loss.items())
            if "keep_cache" in loss:
                cells.append(
                    _Cell(batch_size, strategy(name, **given), drafter("model", **loss), words)
                )
            else:
                cells.append(_Cell(batch_size, strategy(name, **given, **loss), loss=words))
    return cells


def _entry(cell: _Cell, result: Result, reference: Result) -> dict[str, object]:
    assert result.trace is not None
    same = [ours == theirs for ours, theirs in zip(result.tokens, reference.tokens, strict=True)]
    head = {
        "batch_size": cell.batch_size,
        "strategy": cell.strategy.name,
        "loss": cell.loss,
        "exact_match": sum(same) / len(same),
    }
    done = waste(result.trace).iloc[0].to_dict()
    counts = {
        name: int(done[name])
        for name in ("rounds", "verified_rows", "idle_rows", "discarded_tokens")
    }
    return head | done | counts | {"grouping_rate": result.summary["grouping_rate"].item()}


def _speeds(cells: Sequence[_Cell]) -> Iterator[dict[str, float]]:
    """Median and range of each cell's speeds, and its ratios to those that lose nothing."""
    whole_ones = {
        (cell.batch_size, cell.strategy.name): pd.Series(cell.speeds)
        for cell in cells
        if cell.loss == NOTHING_LOST
    }
    for cell in cells:
        speeds = pd.Series(cell.speeds)
        yield {
            "tokens_per_s": speeds.median(skipna=False), "tokens_per_s_low": speeds.min(skipna=False),
            "tokens_per_s_high": speeds.max(skipna=False),
            "ratio_to_none": (speeds / whole_ones[cell.batch_size, cell.strategy.name]).median(skipna=False),
            "ratio_to_autoregressive": (speeds / whole_ones[cell.batch_size, "autoregressive"]).median(skipna=False),
        }  # fmt: skip
