"""From measurements to the table of a benchmark, and to short tables to read. Runs nothing."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from specviz.bench.log import Measurement, cell_key
from specviz.util.validate import short

# Cells that are equal in these columns are compared with each other.
WHERE = ["pair", "device", "dtype", "max_new_tokens", "prompt_tokens"]
WHAT = ["batch_size", "strategy", "drafter", "num_draft_tokens"]
# What a method uses besides time, by which `equal_work` judges comparisons.
USED = ["verified_a_round", "uncounted_s", "in_flight", "devices", "memory_mb", "training_s"]
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
    B = 1); round_ms, draft_ms and sync_share (medians over rounds of full batches without
    prompts; draft_ms is the phase draft, in milliseconds);
    recorded_tokens_per_s where it was measured; the columns of USED (medians; see
    `specviz.bench.resources`); failure (why a cell has no speed); prompts; threads; versions;
    created (the last repetition's date).
    """
    cells: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        cells.setdefault(cell_key(measurement["cell"]), []).append(measurement)
    autoregressive: dict[object, pd.Series] = {}
    assisted: dict[object, list[pd.Series]] = {}  # at any B
    for runs in cells.values():
        cell = runs[0]["cell"]
        where = _where(runs)
        speeds = _speeds(runs)
        if cell["strategy"] == "autoregressive":
            autoregressive[where, cell["batch_size"]] = speeds
        if cell["strategy"].startswith("hf_assisted") and len(speeds):
            assisted.setdefault(where, []).append(speeds)
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
    cell = runs[0]["cell"]
    last = runs[-1]
    failures = [run for run in runs if run["failure"]]
    shown = failures[0] if failures else last
    speeds = _speeds(runs)
    # By repetition, so that a machine that slows down for a while leaves the ratio as it is. Of a
    # repetition that one of the two lacks there is none.
    ratios = speeds / autoregressive
    entry = dict(zip(WHERE, _where(runs), strict=True))
    entry |= {name: cell[name] for name in WHAT}
    entry |= {
        "exact_match": _known(runs, "exact_match").min(),
        "near_ties": _known(runs, "near_ties").max(),
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
    for name in ("round_ms", "draft_ms", "sync_share", "recorded_tokens_per_s"):
        if name in last:
            entry[name] = float("nan") if failures else _known(runs, name).median()
    for name in USED:
        entry[name] = _known(runs, name).median()
    entry["failure"] = shown["failure"]
    return entry | {name: last[name] for name in ("prompts", "threads", *VERSIONS, "created")}


def _known(measurements: Sequence[Measurement], name: str) -> pd.Series:
    values = [each[name] for each in measurements if each.get(name) is not None]
    return pd.Series(values, dtype=float)


def conditions(measurements: Sequence[Measurement], **settings: object) -> dict[str, object]:
    """Return what was measured on and with: one value if all agree, else a list, and `settings`."""
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
    """Return a heading and the entries of each pair, device, dtype and length.

    Raises ValueError if `table` is not that of a benchmark.
    """
    check_table(table)
    return _sections(table)


def _sections(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for _, section in table.groupby(WHERE, sort=False, dropna=False):
        first = section.iloc[0]
        heading = (
            f"{first['pair']}, {first['device']}, {first['dtype']}, "
            f"{first['max_new_tokens']} new tokens"
        )
        if not pd.isna(first["prompt_tokens"]):
            heading += f", prompts of at most {first['prompt_tokens']} tokens"
        yield heading, section


def check_table(table: object, name: str = "table") -> None:
    """Raise ValueError unless this is a table of `make_table`, or a part of one."""
    if not isinstance(table, pd.DataFrame) or not {*WHERE, "tokens_per_s"} <= set(table.columns):
        raise ValueError(
            f"{name} must be a table of a benchmark, got {short(table)}; "
            "pass what run_bench returned, or a section of it"
        )


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


def failures(table: pd.DataFrame) -> list[str]:
    """Return a sentence for each cell that has no speed."""
    found = []
    for heading, section in sections(table):
        for name, entry in zip(names(section), section.itertuples(), strict=True):
            if entry.failure:
                found.append(f"{name}, B = {entry.batch_size} ({heading}): {entry.failure}")
    return found
