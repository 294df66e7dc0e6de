"""The table of a benchmark: made from measurements, read from a file, and shortened to be read."""

import math
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from specviz.bench.log import Measurement, cell_key
from specviz.util.files import is_file
from specviz.util.validate import quoted_path, require_path, short

# Cells that are equal in these columns are compared with each other.
WHERE = ["pair", "device", "dtype", "max_new_tokens", "prompt_tokens"]
WHAT = ["batch_size", "strategy", "drafter", "num_draft_tokens"]
REQUIRED = [*WHERE, *WHAT, "tokens_per_s"]
# What a method uses besides time, by which `check` judges comparisons.
USED = ["verified_a_round", "uncounted_s", "in_flight", "devices", "memory_mb", "training_s"]
VERSIONS = ["specviz", "torch", "transformers", "python"]
_TIMES = ["round_ms", "draft_ms", "sync_share", "recorded_tokens_per_s"]
# Columns of integers, and of other numbers that a file may lack.
_COUNTS = ("max_new_tokens", "batch_size")
_NUMBERS = (
    "prompt_tokens", "exact_match", "near_ties", "mean_acceptance_length", "rounds", "new_tokens",
    "tokens_per_s", "tokens_per_s_low", "tokens_per_s_high", "repetitions",
    "ratio_to_autoregressive", "ratio_to_autoregressive_low", "ratio_to_autoregressive_high",
    "ratio_to_hf_assisted", *_TIMES, "prompts", "threads", *USED,
)  # fmt: skip
_LARGEST = 2.0**53  # up to it a float holds every int


def make_table(measurements: Sequence[Measurement]) -> pd.DataFrame:
    """Return one entry for each cell, in the order in which cells first occur.

    Columns: pair; device (its name); dtype; max_new_tokens; prompt_tokens (NA: uncut); batch_size;
    strategy; drafter; num_draft_tokens; exact_match (share of prompts whose tokens equal decoding
    alone; the lowest of the repetitions); near_ties (texts that differ where rounding explains it;
    the most); mean_acceptance_length; rounds; new_tokens; tokens_per_s (median over repetitions),
    tokens_per_s_low and _high (their range); repetitions (that have a speed);
    ratio_to_autoregressive (to its speed at the same B within the same repetition; median), _low
    and _high (range); ratio_to_hf_assisted (likewise, to the fastest HF assisted generation at
    B = 1); round_ms, draft_ms and sync_share (medians over rounds of full batches without
    prompts; draft_ms is the phase draft, in milliseconds);
    recorded_tokens_per_s where it was measured; the columns of USED (medians; see
    `specviz.bench.resources`); failure (why a cell has no speed); prompts; threads; versions;
    created (the last repetition's date).
    """
    cells: dict[str, list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        cells[cell_key(measurement["cell"])].append(measurement)
    autoregressive: dict[object, pd.Series] = {}
    assisted: dict[object, list[pd.Series]] = defaultdict(list)  # at any B
    for runs in cells.values():
        cell = runs[0]["cell"]
        speeds = _speeds(runs)
        if cell["strategy"] == "autoregressive":
            autoregressive[_where(runs), cell["batch_size"]] = speeds
        if cell["strategy"].startswith("hf_assisted") and len(speeds):
            assisted[_where(runs)].append(speeds)
    nothing = pd.Series(dtype=float)
    entries = []
    for runs in cells.values():
        where = _where(runs)
        plain = autoregressive.get((where, runs[0]["cell"]["batch_size"]), nothing)
        fastest = max(assisted.get(where, [nothing]), key=pd.Series.median)
        entries.append(_entry(runs, plain, fastest))
    return pd.DataFrame(entries).astype({"prompt_tokens": "Int64"})


def _where(runs: Sequence[Measurement]) -> tuple[object, ...]:
    """Return the values of WHERE, which cells that are compared have in common."""
    cell = runs[0]["cell"]
    last = runs[-1]
    lengths = (cell["max_new_tokens"], cell["prompt_tokens"])
    return cell["pair"], last["device_name"], last["dtype"], *lengths


def _speeds(runs: Sequence[Measurement]) -> pd.Series:
    """Return tokens/s of one cell by repetition. A cell that failed once has no speed."""
    if any(run["failure"] for run in runs):
        return pd.Series(dtype=float)
    return pd.Series({run["repetition"]: run["tokens_per_s"] for run in runs}, dtype=float)


def _entry(
    runs: Sequence[Measurement], autoregressive: pd.Series, assisted: pd.Series
) -> dict[str, Any]:
    """Make one cell's entry. `autoregressive`, `assisted`: speeds by repetition to divide by."""
    last = runs[-1]
    shown = next((run for run in runs if run["failure"]), last)
    known = pd.DataFrame(runs)
    speeds = _speeds(runs)
    # By repetition, so that a machine that slows down for a while leaves the ratio as it is. Of a
    # repetition that one of the two lacks there is none.
    ratios = speeds / autoregressive
    entry = dict(zip(WHERE, _where(runs), strict=True))
    entry |= {name: runs[0]["cell"][name] for name in WHAT}
    entry |= {
        "exact_match": _numbers(known, "exact_match").min(),
        "near_ties": _numbers(known, "near_ties").max(),
        "mean_acceptance_length": shown["mean_acceptance_length"],
        "rounds": shown["rounds"],
        "new_tokens": shown["new_tokens"],
        "tokens_per_s": speeds.median(),
        "tokens_per_s_low": speeds.min(),
        "tokens_per_s_high": speeds.max(),
        "repetitions": len(speeds),
        "ratio_to_autoregressive": ratios.median(),
        "ratio_to_autoregressive_low": ratios.min(),
        "ratio_to_autoregressive_high": ratios.max(),
        "ratio_to_hf_assisted": (speeds / assisted).median(),
    }
    for name in _TIMES:
        if name in last:
            entry[name] = math.nan if shown["failure"] else _numbers(known, name).median()
    entry |= {name: _numbers(known, name).median() for name in USED}
    entry["failure"] = shown["failure"]
    return entry | {name: last[name] for name in ("prompts", "threads", *VERSIONS, "created")}


def _numbers(known: pd.DataFrame, name: str) -> pd.Series:
    return known[name].astype(float) if name in known else pd.Series(dtype=float)


def conditions(measurements: Sequence[Measurement], **settings: object) -> dict[str, object]:
    """Return what was measured on and with: one value if all agree, else a list, and `settings`."""
    found: dict[str, object] = {"device": _common(measurements, "device_name")}
    for name in ("dtype", "target", "draft", "prompts", "threads"):
        found[name] = _common(measurements, name)
    found["versions"] = {name: _common(measurements, name) for name in VERSIONS}
    found["created"] = max(measurement["created"] for measurement in measurements)
    cells = [measurement["cell"] for measurement in measurements]
    for name in ("num_draft_tokens", "max_new_tokens", "batch_size"):
        used = [cell for cell in cells if cell[name] != 0]  # K = 0: the method does not draft
        found[name] = _common(used, name)
    found["repetitions"] = max(measurement["repetition"] for measurement in measurements) + 1
    return found | settings


def _common(entries: Sequence[Mapping[str, Any]], name: str) -> object:
    different = list(dict.fromkeys(entry[name] for entry in entries))
    return different[0] if len(different) == 1 else different or None


def check_table(table: object, name: str = "table") -> None:
    """Raise ValueError unless this is a table of `make_table`, or a part of one."""
    if not isinstance(table, pd.DataFrame) or not set(REQUIRED) <= set(table.columns):
        raise ValueError(
            f"{name} must be a table of a benchmark, got {short(table)}; "
            "pass what run_bench returned, or a section of it"
        )


def sections(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return a heading and the entries of each pair, device, dtype and length.

    Raises ValueError if `table` is not that of a benchmark.
    """
    check_table(table)
    found = []
    for _, section in table.groupby(WHERE, sort=False, dropna=False):
        first = section.iloc[0]
        heading = (
            f"{first['pair']}, {first['device']}, {first['dtype']}, "
            f"{first['max_new_tokens']} new tokens"
        )
        if not pd.isna(first["prompt_tokens"]):
            heading += f", prompts of at most {first['prompt_tokens']} tokens"
        found.append((heading, section))
    return found


def names(section: pd.DataFrame) -> pd.Series:
    """Return the names of the entries of a section.

    A name is the strategy, with K and the drafter where they are not the section's first.
    """
    drafting = section[section["drafter"] != "none"]
    usual_k = next(iter(drafting["num_draft_tokens"]), None)
    usual_drafter = next(iter(drafting["drafter"]), None)
    found = []
    for entry in section.itertuples():
        name = str(entry.strategy)
        if entry.drafter != "none" and entry.num_draft_tokens != usual_k:
            name += f", K = {entry.num_draft_tokens}"
        if entry.drafter not in ("none", usual_drafter):
            name += f", {str(entry.drafter).partition(':')[0]}"
        found.append(name)
    return pd.Series(found, index=section.index)


def failures(table: pd.DataFrame) -> list[str]:
    """Return a sentence for each cell that has no speed."""
    found = []
    for heading, section in sections(table):
        for name, entry in zip(names(section), section.itertuples(), strict=True):
            if entry.failure:
                found.append(f"{name}, B = {entry.batch_size} ({heading}): {entry.failure}")
    return found


def readable(section: pd.DataFrame) -> str:
    """Return a section as a Markdown table of tokens/s and ratios, method by B."""
    check_table(section, "section")
    sizes = sorted(section["batch_size"].unique())
    speeds: dict[str, dict[int, str]] = defaultdict(dict)
    for name, entry in zip(names(section), section.itertuples(), strict=True):
        speed = "failed" if pd.isna(entry.tokens_per_s) else f"{entry.tokens_per_s:.0f}"
        if not pd.isna(entry.ratio_to_autoregressive):
            speed += f" ({entry.ratio_to_autoregressive:.2f})"
        speeds[name][entry.batch_size] = speed
    heading = " | ".join(f"B = {size}" for size in sizes)
    lines = [f"| tokens/s (ratio to `autoregressive`) | {heading} |"]
    lines.append("|---" * (len(sizes) + 1) + "|")
    for name, by_size in speeds.items():
        method, comma, rest = name.partition(", ")
        cells = " | ".join(by_size.get(size, "-") for size in sizes)
        lines.append(f"| `{method}`{comma}{rest} | {cells} |")
    return "\n".join(lines)


def read_table(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the table in a CSV file that `specviz bench` wrote, or one with the same columns.

    Columns beside the pair's, the cell's and tokens_per_s may be missing.

    Args:
        path: the file, or a folder with a bench.csv.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a column is missing, or a value is not one of its column's kind.
    """
    place = require_path("path", path)
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
    missing = [name for name in REQUIRED if name not in table]
    if missing:
        raise ValueError(
            f"{quoted_path(place)} must be the table of a benchmark, but it has no column "
            f"{missing[0]}; {remedy}"
        )
    for name in table.columns.intersection([*_COUNTS, *_NUMBERS]):
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
