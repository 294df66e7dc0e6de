"""Read the table of a benchmark from a CSV file, also from one that specviz did not write."""

import math
import os

import pandas as pd

from specviz.bench.table import USED, WHAT, WHERE
from specviz.util.files import is_file
from specviz.util.validate import quoted_path, require_path, short

REQUIRED = [*WHERE, *WHAT, "tokens_per_s"]
_LARGEST = 2.0**53  # up to it a float holds every int
_COUNTS = ("max_new_tokens", "batch_size")
# Numbers, where a file has them.
_RATIO = "ratio_to_autoregressive"
_NUMBERS = (
    "prompt_tokens", "exact_match", "near_ties", "mean_acceptance_length", "rounds", "new_tokens",
    "tokens_per_s", "tokens_per_s_low", "tokens_per_s_high", "repetitions",
    _RATIO, f"{_RATIO}_low", f"{_RATIO}_high", "ratio_to_hf_assisted",
    "round_ms", "draft_ms", "sync_share", "recorded_tokens_per_s", "prompts", "threads", *USED,
)  # fmt: skip


def read_table(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the table in a CSV file that `specviz bench` wrote, or one with the same columns.

    Columns beside the pair's, the cell's and tokens_per_s may be missing.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a column is missing, or a value is not one of its column's kind.
    """
    place = require_path("path", path)
    if not is_file(place):
        raise FileNotFoundError(
            f"path={quoted_path(place)} is not a file; pass the bench.csv of a benchmark"
        )
    try:
        # As text first: pandas would guess another type for each file.
        table = pd.read_csv(place, dtype=str, keep_default_na=False)
    except ValueError as error:  # pandas' own errors are among them
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{quoted_path(place)} cannot be read as CSV ({reason}); "
            "pass the bench.csv of a benchmark"
        ) from None
    missing = [name for name in REQUIRED if name not in table]
    if missing:
        raise ValueError(
            f"{quoted_path(place)} must be the table of a benchmark, but it has no column "
            f"{missing[0]}; pass the bench.csv of a benchmark"
        )
    for name in (*_COUNTS, *_NUMBERS):
        if name in table:
            table[name] = [
                _number(name, text, line) for line, text in enumerate(table[name], start=2)
            ]
    for name in _COUNTS:
        table[name] = table[name].astype(int)
    table["prompt_tokens"] = table["prompt_tokens"].astype("Int64")
    # An empty text of another column stands for a value that is not known.
    known = {*REQUIRED, "failure"}
    for name in table.columns.difference([*known, *_NUMBERS]):
        table[name] = table[name].replace("", None)
    return table


def _number(name: str, text: str, line: int) -> float:
    """Return the number in a cell, NaN where it is empty."""
    if not text and name not in _COUNTS:
        return math.nan
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    whole = name in (*_COUNTS, "prompt_tokens")
    least = 1 if whole else 0
    fits = math.isfinite(value) and least <= value <= _LARGEST
    if not fits or (whole and not value.is_integer()):
        kind = "an int >= 1" if whole else "a number >= 0"
        raise ValueError(
            f"line {line}: {name} must be {kind}, got {short(text)}; "
            "write the benchmark's table again"
        )
    return value
