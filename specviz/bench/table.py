"""The table of a benchmark: made from measurements, read from a file, and shortened to be read."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from specviz.util.files import is_file
from specviz.util.validate import quoted_path, short

Measurement = dict[str, Any]  # the cell, the repetition, and the outcome of one run
# Cells that are equal in these columns are compared with each other.
WHERE = ["pair", "device", "dtype", "max_new_tokens", "prompt_tokens"]
WHAT = ["batch_size", "strategy", "drafter", "num_draft_tokens"]
REQUIRED = [*WHERE, *WHAT, "tokens_per_s"]
# What a method uses besides time, by which `check` judges comparisons.
USED = ["verified_a_round", "uncounted_s", "in_flight", "devices", "memory_mb", "training_s"]
VERSIONS = ["specviz", "torch", "transformers", "python"]
_RATIO = "ratio_to_autoregressive"
_TIMES = ["round_ms", "draft_ms", "sync_share", "recorded_tokens_per_s"]
# Column: what it is of, and how the runs of a cell are put together. A cell that failed is not
# repeated, so its last run is the one that did.
_COLUMNS = {
    **{name: (name, "first") for name in (*WHERE, *WHAT)},
    "exact_match": ("exact_match", "min"),
    "near_ties": ("near_ties", "max"),
    **{name: (name, "last") for name in ("mean_acceptance_length", "rounds", "new_tokens")},
    "tokens_per_s": ("speed", "median"),
    "tokens_per_s_low": ("speed", "min"),
    "tokens_per_s_high": ("speed", "max"),
    "repetitions": ("speed", "count"),
    _RATIO: ("ratio", "median"),
    f"{_RATIO}_low": ("ratio", "min"),
    f"{_RATIO}_high": ("ratio", "max"),
    "ratio_to_hf_assisted": ("assisted", "median"),
    **{name: (name, "median") for name in (*_TIMES, *USED)},
    **{name: (name, "last") for name in ("failure", "prompts", "threads", *VERSIONS, "created")},
}
_TEXTS = [
    "pair",
    "device",
    "dtype",
    "strategy",
    "drafter",
    "num_draft_tokens",
    "failure",
    "created",
]
_NUMBERS = [name for name in _COLUMNS if name not in (*_TEXTS, *VERSIONS)]
_COUNTS = ["max_new_tokens", "batch_size"]  # numbers that a file must have
_LARGEST = 2.0**53  # up to it a float holds every int


def cell_key(cell: Mapping[str, object]) -> str:
    """Return a cell's plain values as text, which are the same in memory and read from a log."""
    return json.dumps(cell, sort_keys=True)


def make_table(measurements: Sequence[Measurement]) -> pd.DataFrame:
    """Return one entry for each cell, in the order in which cells first occur.

    The columns are those in docs/compare.md. device is its name. exact_match is the lowest of the
    repetitions, near_ties the most. Speeds in tokens/s, ratios, times in milliseconds and what a
    run used are medians, with the range as _low and _high. A ratio is taken within a repetition,
    that to HF assisted generation with the fastest of it at B = 1. recorded_tokens_per_s is there
    only where it was measured. created is the date of the last repetition.
    """
    runs = pd.DataFrame([each["cell"] | each for each in measurements])
    runs["key"] = [cell_key(each["cell"]) for each in measurements]
    columns = [name for name in _COLUMNS if name != _TIMES[-1] or name in runs]
    for name in ("exact_match", "near_ties", "tokens_per_s", *_TIMES, *USED):
        runs[name] = runs.get(name, pd.Series(index=runs.index)).astype(float)
    by_cell = runs.groupby("key", sort=False)
    runs["device"] = by_cell["device_name"].transform("last")
    runs["dtype"] = by_cell["dtype"].transform("last")
    runs["where"] = runs.groupby(WHERE, dropna=False).ngroup()
    broken = runs["failure"].ne("").groupby(runs["key"]).transform("any")
    runs["speed"] = runs["tokens_per_s"].mask(broken)  # a cell that failed once has no speed
    runs[_TIMES] = runs[_TIMES].mask(broken)

    # By repetition, so that a machine that slows down for a while leaves the ratio as it is. Of a
    # repetition that one of the two lacks there is none.
    plain = runs[runs["strategy"] == "autoregressive"]
    runs["ratio"] = runs["speed"] / _speeds_of(plain, runs, ["where", "batch_size", "repetition"])
    assisted = runs[runs["strategy"].str.startswith("hf_assisted") & ~broken]
    medians = assisted.groupby("key")["speed"].transform("median")
    fastest = medians.groupby(assisted["where"]).transform("max")
    assisted = assisted[medians == fastest]
    runs["assisted"] = runs["speed"] / _speeds_of(assisted, runs, ["where", "repetition"])

    aggregated = {name: _COLUMNS[name] for name in columns}
    table = runs.groupby("key", sort=False).agg(**aggregated)
    return table.reset_index(drop=True).astype({"prompt_tokens": "Int64"})


def _speeds_of(others: pd.DataFrame, runs: pd.DataFrame, on: list[str]) -> pd.Series:
    """Return for each run the speed of the one among `others` that is equal in columns `on`."""
    speeds = others.drop_duplicates(on)[[*on, "speed"]]
    return runs[on].merge(speeds, "left", on).set_index(runs.index)["speed"]


def conditions(measurements: Sequence[Measurement], **settings: object) -> dict[str, object]:
    """Return what was measured on and with: one value if all agree, else a list, and `settings`."""

    def common(entries: Sequence[Mapping[str, Any]], name: str) -> object:
        different = list(dict.fromkeys(entry[name] for entry in entries))
        return different[0] if len(different) == 1 else different or None

    found: dict[str, object] = {"device": common(measurements, "device_name")}
    for name in ("dtype", "target", "draft", "prompts", "threads"):
        found[name] = common(measurements, name)
    found["versions"] = {name: common(measurements, name) for name in VERSIONS}
    found["created"] = max(measurement["created"] for measurement in measurements)
    cells = [measurement["cell"] for measurement in measurements]
    for name in ("num_draft_tokens", "max_new_tokens", "batch_size"):
        # K = 0: the method does not draft.
        found[name] = common([cell for cell in cells if cell[name] != 0], name)
    found["repetitions"] = max(measurement["repetition"] for measurement in measurements) + 1
    return found | settings


def sections(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return a heading and the entries of each pair, device, dtype and length."""
    found = []
    for where, section in table.groupby(WHERE, sort=False, dropna=False):
        pair, device, dtype, new_tokens, prompt_tokens = where
        heading = f"{pair}, {device}, {dtype}, {new_tokens} new tokens"
        if not pd.isna(prompt_tokens):
            heading += f", prompts of at most {prompt_tokens} tokens"
        found.append((heading, section))
    return found


def names(section: pd.DataFrame) -> pd.Series:
    """Return the names of the entries of a section.

    A name is the strategy, with K and the drafter where they are not the section's first.
    """
    k, drafter = section["num_draft_tokens"], section["drafter"]
    drafts = drafter != "none"
    other_k = drafts & (k != next(iter(k[drafts]), None))
    other_drafter = drafts & (drafter != next(iter(drafter[drafts]), None))
    found = section["strategy"] + (", K = " + k.astype(str)).where(other_k, "")
    return found + (", " + drafter.str.replace(":.*", "", regex=True)).where(other_drafter, "")


def failures(table: pd.DataFrame) -> list[str]:
    """Return a sentence for each cell that has no speed."""
    found = []
    for heading, section in sections(table):
        for entry in section.assign(name=names).query("failure != ''").itertuples():
            found.append(f"{entry.name}, B = {entry.batch_size} ({heading}): {entry.failure}")
    return found


def readable(section: pd.DataFrame) -> str:
    """Return a section as a Markdown table of tokens/s and ratios, method by B."""
    speeds = section["tokens_per_s"].map("{:.0f}".format).replace("nan", "failed")
    ratios = section[_RATIO].map(" ({:.2f})".format).replace(" (nan)", "")
    method = names(section).str.replace(r"^(.*?)(, .*|$)", r"`\1`\2", n=1, regex=True)
    cells = section.assign(method=method, text=speeds + ratios)
    wide = cells.pivot_table("text", "method", "batch_size", aggfunc="last", sort=False)
    wide = wide.reindex(columns=sorted(wide)).fillna("-")
    rows = [["tokens/s (ratio to `autoregressive`)", *(f"B = {size}" for size in wide)]]
    rows += [list(row) for row in wide.itertuples()]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def read_table(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the table in a CSV file that `specviz bench` wrote, or one with the same columns.

    Columns beside the pair's, the cell's and tokens_per_s may be missing.

    Args:
        path: the file, or a folder with a bench.csv.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a column is missing, or a value is not one of its column's kind.
    """
    place = Path(path)
    place = place / "bench.csv" if is_file(place / "bench.csv") else place
    remedy = "pass the bench.csv of a benchmark"
    if not is_file(place):
        raise FileNotFoundError(
            f"path={quoted_path(place)} must be a file, or a folder with a bench.csv; {remedy}"
        )
    try:
        # As text first: pandas would guess another type for each file.
        table = pd.read_csv(place, dtype=str, keep_default_na=False)
    except ValueError as error:  # pandas' own errors are among them
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{quoted_path(place)} cannot be read as CSV ({reason}); {remedy}"
        ) from None
    for name in REQUIRED:
        if name not in table:
            raise ValueError(
                f"{quoted_path(place)} must be the table of a benchmark, but it has no column "
                f"{name}; {remedy}"
            )
    for name in table.columns.intersection(_NUMBERS):
        table[name] = _numeric(table[name])
    # An empty text of another column stands for a value that is not known.
    for name in table.columns.difference([*REQUIRED, *_NUMBERS, "failure"]):
        table[name] = table[name].replace("", None)
    return table.astype(dict.fromkeys(_COUNTS, "int64") | {"prompt_tokens": "Int64"})


def _numeric(texts: pd.Series) -> pd.Series:
    """Return the numbers of a column, NaN where it is empty."""
    name = str(texts.name)
    whole = name in (*_COUNTS, "prompt_tokens")
    values = pd.to_numeric(texts, errors="coerce").astype(float)
    fits = values.between(1 if whole else 0, _LARGEST) & (not whole or values % 1 == 0)
    fits |= (texts == "") & (name not in _COUNTS)
    if not fits.all():
        line = int(fits.argmin())
        kind = "an int >= 1" if whole else "a number >= 0"
        raise ValueError(
            f"line {line + 2}: {name} must be {kind}, got {short(texts[line])}; "
            "write the benchmark's table again"
        )
    return values
