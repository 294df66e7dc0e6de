"""Tokens a second against memory: `specviz study memory`.

Speculative decoding gets a share of the memory that it takes without a budget. Autoregressive
decoding gets the same budget, of which it needs nothing for a draft: more rows fit. That baseline
decides whether speculation pays where memory is short (SpecMemo's question).
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from specviz.costs.memory import peak_of
from specviz.engine.models.pair import Pair
from specviz.engine.options import Options
from specviz.engine.requests import Prompt
from specviz.engine.run import check_pair
from specviz.generation.generate import generate_interleaved
from specviz.generation.plan import make_search, plan
from specviz.generation.plan_search import Candidate, weight_bytes
from specviz.generation.result import Result
from specviz.util.files import conditions
from specviz.util.levers import NONE
from specviz.util.validate import require_bool, require_int, require_ints

METHODS = {"speculative": "inplace", "autoregressive": "autoregressive"}
MAX_PERCENT = 1000
MAX_REPETITIONS = 1000


@dataclass(frozen=True)
class _Cell:
    """A run to measure: a method under a budget, or without one.

    Attributes:
        percent, budget_bytes: None without a budget.
        generation_bytes: what it takes at most beside the weights.
        draft_kv: what is kept of the draft's K/V.
        options: of the run.
    """

    method: str
    percent: int | None
    budget_bytes: int | None
    generation_bytes: int
    draft_kv: str
    options: dict[str, Any]


def compare_budgets(
    pair: Pair,
    prompts: Sequence[Prompt],
    percents: Sequence[int] = (100, 80, 60, 50, 40, 35, 30),
    *,
    batch_size: int = 8,
    num_draft_tokens: int = 5,
    max_new_tokens: int = 64,
    repetitions: int = 3,
    progress: bool = True,
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Measure speculative and autoregressive decoding under the same budgets.

    Args:
        prompts: also how many rows either method may decode at a time, if they fit.
        percents: budgets, each as a share of the generation memory (all but weights) that
            speculative decoding takes at B = `batch_size` without levers.
        repetitions: of all runs, which are interleaved.

    Returns:
        (table, conditions). The first entry is speculative decoding without a budget. Each has
        method, percent of its budget, budget_mb, the plan's batch_size, num_draft_tokens, draft_kv
        and prefill_tokens, generation_mb and saved_percent of it, tokens_per_s (the median over
        repetitions, with low and high), retained_percent of the first entry's, and same_text. Where
        no plan fits, the speeds are missing.

    Raises:
        ValueError: an argument cannot be used; nothing has run.
    """
    check_pair(pair)
    require_ints("percents", percents, maximum=MAX_PERCENT)
    require_int("batch_size", batch_size)
    require_int("num_draft_tokens", num_draft_tokens)
    require_int("max_new_tokens", max_new_tokens)
    require_int("repetitions", repetitions, maximum=MAX_REPETITIONS)
    require_bool("progress", progress)
    run = {"num_draft_tokens": num_draft_tokens, "max_new_tokens": max_new_tokens}
    free, weights = _unlimited(pair, prompts, batch_size, run)
    cells = [free]
    missing = []
    for percent in percents:
        budget = weights + free.generation_bytes * percent // 100
        for method in METHODS:
            try:
                cells.append(_planned(pair, prompts, method, percent, budget, run))
            except ValueError:  # less than one row needs
                missing.append({"method": method, "percent": percent, "budget_mb": budget / 1e6})
    results = _measure(pair, prompts, cells, repetitions, progress)
    entries = [
        _entry(cell, own, cells[0], results[0]) for cell, own in zip(cells, results, strict=True)
    ]
    given = run | {"prompts": len(prompts), "batch_size": batch_size, "repetitions": repetitions}
    return pd.DataFrame(entries + missing), conditions(results[0][0].meta, **given)


def _unlimited(
    pair: Pair, prompts: Sequence[Prompt], batch_size: int, run: dict[str, Any]
) -> tuple[_Cell, int]:
    """Return speculative decoding as it is without a budget, and the bytes of its weights."""
    run = run | {"strategy": METHODS["speculative"], "batch_size": batch_size}
    search = make_search(pair, prompts, Options.from_keywords(run))
    parts = search.parts(Candidate(search.batch_size, search.num_draft_tokens, NONE, True))
    weights = weight_bytes(parts)
    return _Cell("speculative", None, None, peak_of(parts) - weights, "all", run), weights


def _planned(
    pair: Pair,
    prompts: Sequence[Prompt],
    method: str,
    percent: int,
    budget: int,
    run: dict[str, Any],
) -> _Cell:
    """Return a method with the options that its plan chooses."""
    run = run | {"strategy": METHODS[method], "batch_size": len(prompts)}
    found = plan(budget, pair, prompts, **run)
    generation = found.peak_bytes - found.weight_bytes
    kept = str(found.table["draft_kv"][0])
    return _Cell(method, percent, budget, generation, kept, run | found.options)


def _measure(
    pair: Pair,
    prompts: Sequence[Prompt],
    cells: Sequence[_Cell],
    repetitions: int,
    progress: bool,
) -> list[list[Result]]:
    """Return the results of each cell, one for each repetition."""
    runs = [{"prompts": prompts, **cell.options} for cell in cells]
    results: list[list[Result]] = [[] for _ in cells]
    # The first repetition warms up, so that every method runs with loaded libraries.
    for repetition in tqdm(range(repetitions + 1), unit="repetition", disable=not progress):
        for place, result in generate_interleaved(pair, runs):
            if repetition > 0:
                results[place].append(result)
    return results


def _entry(
    cell: _Cell, results: Sequence[Result], first: _Cell, first_results: Sequence[Result]
) -> dict[str, object]:
    speeds = [result.summary["tokens_per_s"].item() for result in results]
    whole = statistics.median(result.summary["tokens_per_s"].item() for result in first_results)
    levers = cell.options.get("levers", NONE)
    budget = None if cell.budget_bytes is None else cell.budget_bytes / 1e6
    return {
        "method": cell.method,
        "percent": cell.percent,
        "budget_mb": budget,
        "batch_size": cell.options["batch_size"],
        "num_draft_tokens": cell.options["num_draft_tokens"] * (cell.method == "speculative"),
        "draft_kv": cell.draft_kv,
        "prefill_tokens": levers.prefill_tokens,
        "generation_mb": cell.generation_bytes / 1e6,
        "saved_percent": 100 * (1 - cell.generation_bytes / first.generation_bytes),
        "tokens_per_s": statistics.median(speeds),
        "low": min(speeds),
        "high": max(speeds),
        "retained_percent": 100 * statistics.median(speeds) / whole,
        "same_text": all(result.tokens == first_results[0].tokens for result in results),
    }
