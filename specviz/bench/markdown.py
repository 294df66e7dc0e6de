"""A benchmark's table as a short Markdown table for the terminal, docs and notebooks."""

from typing import Any

import pandas as pd

from specviz.bench.equal_work import comparisons
from specviz.bench.marks import footnotes, marks
from specviz.bench.table import check_table, names

# What this table shows of comparisons: speeds, and ratios to autoregressive decoding.
COMPARED = ("tokens_per_s", "ratio_to_autoregressive")


def readable(section: pd.DataFrame) -> str:
    """Return a section as a Markdown table of tokens/s and ratios, method by B.

    A speed or ratio that is not compared at equal work has a mark, which a footnote explains.
    """
    check_table(section, "section")
    found = comparisons(section)
    marked = [marks(found, place) for place in COMPARED]
    sizes = sorted(section["batch_size"].unique())
    texts: dict[str, dict[int, str]] = {}
    for name, entry in zip(names(section), section.itertuples(), strict=True):
        own = [each.get(entry.Index, "") for each in marked]
        texts.setdefault(name, {})[entry.batch_size] = _speed(entry, *own)
    heading = " | ".join(f"B = {size}" for size in sizes)
    lines = [
        f"| tokens/s (ratio to `autoregressive`) | {heading} |",
        "|---" * (len(sizes) + 1) + "|",
    ]
    for name, by_size in texts.items():
        method, comma, rest = name.partition(", ")
        speeds = " | ".join(by_size.get(size, "-") for size in sizes)
        lines.append(f"| `{method}`{comma}{rest} | {speeds} |")
    notes = footnotes(found, COMPARED)
    return "\n".join([*lines, *([""] if notes else []), *notes])


def _speed(entry: Any, mark: str, ratio_mark: str) -> str:
    if pd.isna(entry.tokens_per_s):
        return "failed"
    speed = f"{entry.tokens_per_s:.0f}{mark}"
    if pd.isna(entry.ratio_to_autoregressive):
        return speed
    return f"{speed} ({entry.ratio_to_autoregressive:.2f}{ratio_mark})"
