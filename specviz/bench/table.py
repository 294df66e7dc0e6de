"""From measurements to the table of a benchmark, and to short tables to read. Runs nothing."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from specviz.bench.log import Measurement

# Cells that are equal in these columns are compared with each other.
WHERE = ["pair", "device", "dtype", "max_new_tokens", "prompt_tokens"]
WHAT = ["batch_size", "strategy", "drafter", "num_draft_tokens"]
VERSIONS = ["specviz", "torch", "transformers", "python"]


def make_table(measurements: Sequence[Measurement]) -> pd.DataFrame:
    """Return one entry for each cell, in the order in which cells first occur.

    Columns: pair; device (its name); dtype; max_new_tokens; prompt_tokens (NA: uncut); batch_size;
    strategy; drafter; num_draft_tokens; exact_match (share of prompts whose tokens equal decoding
    alone; the lowest of the repetitions); near_ties (texts that differ where rounding explains it;
    the most); mean_acceptance_length; rounds; new_tokens; tokens_per_s (median over repetitions),
    tokens_per_s_low and _high (their range); repetitions (that have a speed);
    ratio_to_autoregressive (to its speed at the same B within the same repetition; median), _low
    and _high (range); ratio_to_hf_assisted (likewise, to the fastest HF assisted generation at
    B = 1); round_ms and sync_share (medians over rounds of full batches without prompts);
    recorded_tokens_per_s where it was measured; failure (why a cell has no speed); prompts;
    threads; versions; created (the last repetition's date).
    """
    cells: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        key = json.dumps(measurement["cell"], sort_keys=True)
        cells.setdefault(key, []).append(measurement)
    table = pd.DataFrame([_entry(found) for found in cells.values()])
    table["prompt_tokens"] = table["prompt_tokens"].astype("Int64")
    speeds = [_speeds(found) for found in cells.values()]
    to_autoregressive, to_assisted = _ratios(table, speeds)
    at = table.columns.get_loc("repetitions") + 1
    columns = {
        "ratio_to_autoregressive": [ratios.median() for ratios in to_autoregressive],
        "ratio_to_autoregressive_low": [ratios.min() for ratios in to_autoregressive],
        "ratio_to_autoregressive_high": [ratios.max() for ratios in to_autoregressive],
        "ratio_to_hf_assisted": [ratios.median() for ratios in to_assisted],
    }
    for i, (name, values) in enumerate(columns.items()):
        table.insert(at + i, name, values)
    return table


def _ratios(
    table: pd.DataFrame, speeds: Sequence[pd.Series]
) -> tuple[list[pd.Series], list[pd.Series]]:
    """Ratios by repetition, to autoregressive decoding and to HF assisted generation.

    They are NaN or absent if one of the two speeds is missing.
    """
    nothing = pd.Series(dtype=float)
    places = [_place(entry) for entry in table.itertuples()]
    autoregressive: dict[tuple[Any, ...], pd.Series] = {}
    assisted: dict[tuple[Any, ...], pd.Series] = {}  # the fastest, at any B
    for strategy, place, speed in zip(table["strategy"], places, speeds, strict=True):
        *where, _ = place
        if strategy == "autoregressive":
            autoregressive[place] = speed
        if strategy.startswith("hf_assisted") and len(speed):
            fastest = assisted.get(tuple(where))
            if fastest is None or speed.median() > fastest.median():
                assisted[tuple(where)] = speed
    to_autoregressive = []
    to_assisted = []
    for place, speed in zip(places, speeds, strict=True):
        to_autoregressive.append(speed / autoregressive.get(place, nothing))
        to_assisted.append(speed / assisted.get(place[:-1], nothing))
    return to_autoregressive, to_assisted


def _place(entry: Any) -> tuple[Any, ...]:
    """Where an entry was measured, and at which B, with None for a missing value: NA != NA."""
    values = [getattr(entry, name) for name in (*WHERE, "batch_size")]
    return tuple(None if pd.isna(value) else value for value in values)


def _speeds(measurements: Sequence[Measurement]) -> pd.Series:
    """tokens/s of one cell by repetition. A cell that failed once has no speed."""
    if any(measurement["failure"] for measurement in measurements):
        return pd.Series(dtype=float)
    speeds = {each["repetition"]: each["tokens_per_s"] for each in measurements}
    return pd.Series(speeds, dtype=float)


def _entry(measurements: Sequence[Measurement]) -> dict[str, Any]:
    """One cell's entry."""
    cell = measurements[0]["cell"]
    last = measurements[-1]
    failures = [measurement for measurement in measurements if measurement["failure"]]
    shown = failures[0] if failures else last
    speeds = _speeds(measurements)
    entry = {"pair": cell["pair"], "device": last["device_name"], "dtype": last["dtype"]}
    for name in ("max_new_tokens", "prompt_tokens", *WHAT):
        entry[name] = cell[name]
    entry["exact_match"] = _known(measurements, "exact_match").min()
    entry["near_ties"] = _known(measurements, "near_ties").max()
    for name in ("mean_acceptance_length", "rounds", "new_tokens"):
        entry[name] = shown[name]
    entry["tokens_per_s"] = speeds.median()
    entry["tokens_per_s_low"] = speeds.min()
    entry["tokens_per_s_high"] = speeds.max()
    entry["repetitions"] = len(speeds)
    for name in ("round_ms", "sync_share", "recorded_tokens_per_s"):
        if name in last:
            entry[name] = float("nan") if failures else _known(measurements, name).median()
    entry["failure"] = shown["failure"]
    for name in ("prompts", "threads", *VERSIONS, "created"):
        entry[name] = last[name]
    return entry


def _known(measurements: Sequence[Measurement], name: str) -> pd.Series:
    values = [each[name] for each in measurements if each.get(name) is not None]
    return pd.Series(values, dtype=float)


def conditions(measurements: Sequence[Measurement], **settings: object) -> dict[str, object]:
    """What was measured on and with: one value if all agree, else a list, and `settings`."""
    cells = [measurement["cell"] for measurement in measurements]
    found: dict[str, object] = {"device": _common(measurements, "device_name")}
    for name in ("dtype", "target", "draft", "prompts", "threads"):
        found[name] = _common(measurements, name)
    found["versions"] = {name: _common(measurements, name) for name in VERSIONS}
    found["created"] = max(measurement["created"] for measurement in measurements)
    for name in ("num_draft_tokens", "max_new_tokens", "batch_size"):
        used = [cell for cell in cells if cell[name] != 0]  # K = 0: the method does not draft
        found[name] = _common(used, name)
    found["repetitions"] = max(measurement["repetition"] for measurement in measurements) + 1
    return found | settings


def _common(entries: Sequence[Mapping[str, Any]], name: str) -> object:
    different = list(dict.fromkeys(entry[name] for entry in entries))
    return different[0] if len(different) == 1 else different or None


def sections(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield a heading and the entries of each pair, device, dtype and length."""
    for _, section in table.groupby(WHERE, sort=False, dropna=False):
        first = section.iloc[0]
        heading = (
            f"{first['pair']}, {first['device']}, {first['dtype']}, "
            f"{first['max_new_tokens']} new tokens"
        )
        if not pd.isna(first["prompt_tokens"]):
            heading += f", prompts of at most {first['prompt_tokens']} tokens"
        yield heading, section


def names(section: pd.DataFrame) -> pd.Series:
    """Return the names of the entries of a section.

    A name is the strategy, with K and the drafter where they are not the section's first.
    """
    usual_k: object = 0
    usual_drafter = "none"
    drafting = section[section["drafter"] != "none"]
    if len(drafting):
        usual_k = drafting["num_draft_tokens"].iloc[0]
        usual_drafter = drafting["drafter"].iloc[0]

    found = []
    for entry in section.itertuples():
        name = str(entry.strategy)
        if entry.drafter != "none" and entry.num_draft_tokens != usual_k:
            name += f", K = {entry.num_draft_tokens}"
        if entry.drafter not in ("none", usual_drafter):
            name += f", {str(entry.drafter).partition(':')[0]}"
        found.append(name)
    return pd.Series(found, index=section.index)


def readable(section: pd.DataFrame) -> str:
    """Return a section as a Markdown table of tokens/s and ratios, method by B."""
    sizes = sorted(section["batch_size"].unique())
    texts: dict[str, dict[int, str]] = {}
    for name, entry in zip(names(section), section.itertuples(), strict=True):
        texts.setdefault(name, {})[entry.batch_size] = _speed(entry)
    heading = " | ".join(f"B = {size}" for size in sizes)
    lines = [
        f"| tokens/s (ratio to `autoregressive`) | {heading} |",
        "|---" * (len(sizes) + 1) + "|",
    ]
    for name, by_size in texts.items():
        method, comma, rest = name.partition(", ")
        speeds = " | ".join(by_size.get(size, "-") for size in sizes)
        lines.append(f"| `{method}`{comma}{rest} | {speeds} |")
    return "\n".join(lines)


def _speed(entry: Any) -> str:
    if pd.isna(entry.tokens_per_s):
        return "failed"
    speed = f"{entry.tokens_per_s:.0f}"
    if pd.isna(entry.ratio_to_autoregressive):
        return speed
    return f"{speed} ({entry.ratio_to_autoregressive:.2f})"


def failures(table: pd.DataFrame) -> list[str]:
    """Return a sentence for each cell that has no speed."""
    found = []
    for heading, section in sections(table):
        for name, entry in zip(names(section), section.itertuples(), strict=True):
            if entry.failure:
                found.append(f"{name}, B = {entry.batch_size} ({heading}): {entry.failure}")
    return found
