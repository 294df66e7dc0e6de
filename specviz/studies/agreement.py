"""`measure_agreement`: valid strategies at several batch sizes against autoregressive decoding at batch 1, and why they differ.

Runs models through `generate` and `compare` alone. A cell is written to its file as it ends, so that an interrupted run goes on there.
"""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from specviz.checks.compare import compare
from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt, make_requests
from specviz.engine.strategies import STRATEGIES, strategy
from specviz.generation.generate import generate
from specviz.generation.result import Result
from specviz.util.files import conditions, save_measured
from specviz.util.validate import require_bool, require_int

Cell = tuple[bool, int, str]
CELL = ("deterministic", "batch_size", "strategy")
FOUND = (
    "exact_match",
    "partial_match",
    "divergences",
    "near_ties",
    "unexplained",
    "unknown",
    "largest_gap",
    "noise",
)


@dataclass(frozen=True)
class Cells:
    """What is measured: every strategy at every batch size, in one mode or in both.

    Attributes:
        strategies: names; only what promises the target's own text has a place here.
        batch_sizes: B; autoregressive decoding at batch 1 is the reference, and no cell.
        deterministic: (False,), (True,), or both; each mode has its own reference.
        max_prompt_tokens: longer prompts are cut to their last tokens; None: none is cut.

    Raises:
        ValueError: a value cannot be used, or no cell is left.
    """

    strategies: Sequence[str] = (
        "autoregressive",
        "rollback",
        "masking",
        "eqspec",
        "exspec",
        "inplace",
    )
    batch_sizes: Sequence[int] = (1, 4, 8, 16, 32)
    deterministic: Sequence[bool] = (False,)
    num_draft_tokens: int = 5
    max_new_tokens: int = 64
    max_prompt_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("strategies", "batch_sizes", "deterministic"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty; name at least one")
        for i, size in enumerate(self.batch_sizes):
            require_int(f"batch_sizes[{i}]", size)
        for name, value in self.asked.items():
            if name != "max_prompt_tokens" or value is not None:
                require_int(name, value)
        for i, mode in enumerate(self.deterministic):
            require_bool(f"deterministic[{i}]", mode)
        for name in self.strategies:
            if not strategy(name).promises:
                raise ValueError(
                    f"strategies names {name!r}, which does not promise the target's text; survey() shows what it writes"
                )
        if not list(self):
            raise ValueError(
                "autoregressive decoding at batch 1 is the reference itself; add a strategy or a batch size"
            )

    def __iter__(self) -> Iterator[Cell]:
        for mode in self.deterministic:
            for size in self.batch_sizes:
                yield from (
                    (mode, size, name)
                    for name in self.strategies
                    if (size, name) != (1, "autoregressive")
                )

    @property
    def asked(self) -> dict[str, int | None]:
        """What holds for all cells: a measurement is another one under another."""
        return {
            name: getattr(self, name)
            for name in ("num_draft_tokens", "max_new_tokens", "max_prompt_tokens")
        }


def measure_agreement(
    pair: Pair,
    prompts: Sequence[Prompt],
    cells: Cells,
    path: Path | None = None,
    *,
    source: str = "own",
    progress: bool = True,
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Run every cell on `prompts`, greedily, and compare it with autoregressive decoding at batch 1 in the same mode.

    Args:
        path: CSV file that each cell is added to as it ends, beside it a JSON file with the conditions. Cells that it holds already,
            measured under the same conditions (date apart), are not run again; what was measured under others makes way.
        source: whose prompts these are; stands among the conditions.

    Returns:
        (table, conditions). The table has one entry per cell, those that the file held among them: deterministic, batch_size, strategy,
        exact_match, partial_match, divergences, near_ties, unexplained, unknown (why the texts differ, see `compare`), largest_gap and
        noise (log-probabilities, NaN where nothing differs), tokens_per_s (one run; a cell in both modes runs one right after the other).

    Raises:
        ValueError: as `generate`, before anything has run.
    """
    prompts = (
        prompts if cells.max_prompt_tokens is None else cut(pair, prompts, cells.max_prompt_tokens)
    )
    requests = make_requests(pair, prompts, cells.max_new_tokens, cells.num_draft_tokens)
    first = generate(
        pair, [requests[0].prompt], strategy="autoregressive", max_new_tokens=1, progress=False
    )  # also warms up
    counts = {
        "prompts": len(requests),
        "prompt_tokens": sum(len(request.prompt) for request in requests),
    }
    described = conditions(first.meta, source=source, **counts, **cells.asked)
    entries = _resume(path, described)
    missing = sorted(
        set(cells) - {_cell(entry) for entry in entries}, key=lambda cell: (*cell[1:], cell[0])
    )
    if not missing:
        warnings.warn(
            f"{path} holds all of these cells already, so nothing was measured; name another one to measure again",
            stacklevel=2,
        )
    references = {
        mode: _run(pair, prompts, cells, (mode, 1, "autoregressive"), progress)
        for mode in sorted({cell[0] for cell in missing})
    }
    for cell in tqdm(missing, desc="agreement", unit="cell", disable=not progress):
        entries.append(
            _entry(
                cell, _run(pair, prompts, cells, cell, progress=False), references[cell[0]], pair
            )
        )
        entries.sort(
            key=lambda entry: (*_cell(entry)[:2], list(STRATEGIES).index(entry["strategy"]))
        )
        if path is not None:
            save_measured(pd.DataFrame(entries), described, path)
    return pd.DataFrame(entries), described


def cut(pair: Pair, prompts: Sequence[Prompt], max_prompt_tokens: int) -> list[list[int]]:
    """The prompts as token ids, each cut to its last `max_prompt_tokens`.

    Raises:
        ValueError: the number is below 1, or a prompt is text and the pair has no tokenizer.
    """
    last = require_int("max_prompt_tokens", max_prompt_tokens)
    tokenizer: Any = pair.tokenizer
    if tokenizer is None and any(isinstance(prompt, str) for prompt in prompts):
        raise ValueError(
            "prompts are text, but the pair has no tokenizer; pass token ids, or a Pair with a tokenizer"
        )
    return [
        list(tokenizer(prompt)["input_ids"] if isinstance(prompt, str) else prompt)[-last:]
        for prompt in prompts
    ]


def _run(pair: Pair, prompts: Sequence[Prompt], cells: Cells, cell: Cell, progress: bool) -> Result:
    mode, size, name = cell
    return generate(
        pair, prompts, strategy=name, batch_size=size, deterministic=mode, progress=progress,
        num_draft_tokens=cells.num_draft_tokens, max_new_tokens=cells.max_new_tokens,
    )  # fmt: skip


def _entry(cell: Cell, result: Result, reference: Result, pair: Pair) -> dict[str, Any]:
    found = compare(result, reference, pair=pair).summary.iloc[0]
    speed = result.summary["tokens_per_s"].item()
    return (
        dict(zip(CELL, cell, strict=True))
        | {name: found[name] for name in FOUND}
        | {"tokens_per_s": speed}
    )


def _cell(entry: Mapping[str, Any]) -> Cell:
    mode, size, name = (entry[key] for key in CELL)
    return mode, size, name


def _resume(path: Path | None, described: dict[str, object]) -> list[dict[str, Any]]:
    """The cells that `path` holds, if they were measured under the same conditions."""
    if path is None or not path.is_file() or not path.with_suffix(".json").is_file():
        return []
    before = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    same = {**before, "created": ""} == {**described, "created": ""}
    return pd.read_csv(path).to_dict("records") if same else []
