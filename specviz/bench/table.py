"""From measured rows to the table of a benchmark, and to the small tables that people read. Runs nothing."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

WHERE = [
    "pair",
    "device",
    "dtype",
    "max_new_tokens",
    "prompt_tokens",
]  # cells with the same are compared with each other
WHAT = ["batch_size", "strategy", "drafter", "num_draft_tokens"]
VERSIONS = ["specviz", "torch", "transformers", "python"]


def make_table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """One entry for each cell of the rows, in the order in which cells first occur.

    Columns: pair, device (its name), dtype, max_new_tokens, prompt_tokens (NA: prompts as they are), batch_size, strategy, drafter,
    num_draft_tokens, exact_match (share of prompts whose tokens equal decoding alone; the lowest of the repetitions), near_ties (texts
    that differ and rounding explains it; the most), mean_acceptance_length, rounds, new_tokens, tokens_per_s (median over repetitions),
    tokens_per_s_low and _high (their range), repetitions (that have a speed), ratio_to_autoregressive (to its speed at the same B within
    the same repetition; median), ratio_to_autoregressive_low and _high (range), ratio_to_hf_assisted (likewise, to the fastest HF assisted
    generation at B = 1), round_ms and sync_share (medians; of rounds of full batches, no prompt in them), recorded_tokens_per_s where it
    was measured, failure (why a cell has no speed), prompts, threads, versions, and created, the last repetition's date.
    """
    cells: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        cells.setdefault(json.dumps(row["cell"], sort_keys=True), []).append(row)
    table = pd.DataFrame([_entry(found) for found in cells.values()])
    table["prompt_tokens"] = table["prompt_tokens"].astype("Int64")
    speeds, places = (
        [_speeds(found) for found in cells.values()],
        [_place(entry) for entry in table.itertuples()],
    )
    plain: dict[tuple[Any, ...], pd.Series] = {}
    assisted: dict[tuple[Any, ...], pd.Series] = {}
    none, nothing = pd.Series(dtype=float), pd.Series([0.0])
    for strategy, place, speed in zip(table["strategy"], places, speeds, strict=True):
        if strategy == "autoregressive":
            plain[place] = speed
        if (
            strategy.startswith("hf_assisted")
            and speed.median() > assisted.get(place[:-1], nothing).median()
        ):
            assisted[place[:-1]] = speed
    at = table.columns.get_loc("repetitions") + 1
    to_plain = [
        speed / plain.get(place, none) for place, speed in zip(places, speeds, strict=True)
    ]  # NaN where one of the two is missing
    to_assisted = [
        speed / assisted.get(place[:-1], none) for place, speed in zip(places, speeds, strict=True)
    ]
    table.insert(at, "ratio_to_autoregressive", [ratios.median() for ratios in to_plain])
    table.insert(at + 1, "ratio_to_autoregressive_low", [ratios.min() for ratios in to_plain])
    table.insert(at + 2, "ratio_to_autoregressive_high", [ratios.max() for ratios in to_plain])
    table.insert(at + 3, "ratio_to_hf_assisted", [ratios.median() for ratios in to_assisted])
    return table


def _place(entry: Any) -> tuple[Any, ...]:
    """Where it was measured, and at which B; what is missing is None, which equals itself."""
    values = [getattr(entry, name) for name in (*WHERE, "batch_size")]
    return tuple(None if pd.isna(value) else value for value in values)


def _speeds(rows: Sequence[Mapping[str, Any]]) -> pd.Series:
    """tokens/s of one cell by repetition; a cell that failed once has no speed."""
    measured = (
        {}
        if any(row["failure"] for row in rows)
        else {row["repetition"]: row["tokens_per_s"] for row in rows}
    )
    return pd.Series(measured, dtype=float)


def _entry(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One cell's entry."""
    cell, last = rows[0]["cell"], rows[-1]
    failures = [row["failure"] for row in rows if row["failure"]]
    speeds = _speeds(rows)
    told = next((row for row in rows if row["failure"]), last)
    entry = {"pair": cell["pair"], "device": last["device_name"], "dtype": last["dtype"]}
    entry |= {name: cell[name] for name in ("max_new_tokens", "prompt_tokens", *WHAT)}
    entry |= {
        "exact_match": _known(rows, "exact_match").min(),
        "near_ties": _known(rows, "near_ties").max(),
    }
    entry |= {name: told[name] for name in ("mean_acceptance_length", "rounds", "new_tokens")}
    entry |= {
        "tokens_per_s": speeds.median(),
        "tokens_per_s_low": speeds.min(),
        "tokens_per_s_high": speeds.max(),
    }
    entry["repetitions"] = len(speeds)
    for name in ("round_ms", "sync_share", "recorded_tokens_per_s"):
        if name in last:
            entry[name] = float("nan") if failures else _known(rows, name).median()
    entry["failure"] = failures[0] if failures else ""
    return entry | {name: last[name] for name in ("prompts", "threads", *VERSIONS, "created")}


def _known(rows: Sequence[Mapping[str, Any]], name: str) -> pd.Series:
    return pd.Series([row[name] for row in rows if row.get(name) is not None], dtype=float)


def conditions(rows: Sequence[Mapping[str, Any]], **asked: object) -> dict[str, object]:
    """What all rows were measured on and with: one value where they agree, a list where they do not."""
    found: dict[str, object] = {"device": _common(row["device_name"] for row in rows)}
    found |= {
        name: _common(row[name] for row in rows)
        for name in ("dtype", "target", "draft", "prompts", "threads")
    }
    found["versions"] = {name: _common(row[name] for row in rows) for name in VERSIONS}
    found["created"] = max(row["created"] for row in rows)
    for name in ("num_draft_tokens", "max_new_tokens", "batch_size"):
        found[name] = _common(row["cell"][name] for row in rows if row["cell"][name] != 0)
    return found | {"repetitions": max(row["repetition"] for row in rows) + 1} | asked


def _common(values: Iterator[Any]) -> object:
    different = list(dict.fromkeys(values))
    return different[0] if len(different) == 1 else different or None


def sections(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """What can be compared: a heading and the entries of one pair, device, dtype and T, in the order of the table."""
    for _, part in table.groupby(WHERE, sort=False, dropna=False):
        first = part.iloc[0]
        prompts = (
            ""
            if pd.isna(first["prompt_tokens"])
            else f", prompts of at most {first['prompt_tokens']} tokens"
        )
        yield (
            f"{first['pair']}, {first['device']}, {first['dtype']}, {first['max_new_tokens']} new tokens{prompts}",
            part,
        )


def names(part: pd.DataFrame) -> pd.Series:
    """What an entry is called among those of its section: the strategy, with K and drafter where others have other ones."""
    drafting = part[part["drafter"] != "none"]
    usual = (
        (drafting["num_draft_tokens"].iloc[0], drafting["drafter"].iloc[0])
        if len(drafting)
        else (0, "none")
    )

    def name(entry: Any) -> str:
        if entry.drafter == "none":
            return str(entry.strategy)
        k = "" if entry.num_draft_tokens == usual[0] else f", K = {entry.num_draft_tokens}"
        return (
            str(entry.strategy)
            + k
            + ("" if entry.drafter == usual[1] else f", {str(entry.drafter).partition(':')[0]}")
        )

    return pd.Series([name(entry) for entry in part.itertuples()], index=part.index)


def readable(part: pd.DataFrame) -> str:
    """A section as a Markdown table: tokens/s and, in brackets, the ratio to autoregressive decoding, method by B."""
    sizes = sorted(part["batch_size"].unique())
    shown = part.assign(name=names(part), cell=[_cell(entry) for entry in part.itertuples()])
    texts = {(entry.name, entry.batch_size): entry.cell for entry in shown.itertuples(index=False)}
    lines = [
        "| tokens/s (ratio to `autoregressive`) | "
        + " | ".join(f"B = {size}" for size in sizes)
        + " |",
        "|---" * (len(sizes) + 1) + "|",
    ]
    for name in dict.fromkeys(shown["name"]):
        method, comma, rest = name.partition(", ")
        lines.append(
            f"| `{method}`{comma}{rest} | "
            + " | ".join(texts.get((name, size), "-") for size in sizes)
            + " |"
        )
    return "\n".join(lines)


def _cell(entry: Any) -> str:
    if pd.isna(entry.tokens_per_s):
        return "failed"
    ratio = (
        "" if pd.isna(entry.ratio_to_autoregressive) else f" ({entry.ratio_to_autoregressive:.2f})"
    )
    return f"{entry.tokens_per_s:.0f}{ratio}"


def failures(table: pd.DataFrame) -> list[str]:
    """A sentence for each cell that has no speed."""
    found = []
    for heading, part in sections(table):
        for name, entry in zip(names(part), part.itertuples(), strict=True):
            if entry.failure:
                found.append(f"{name}, B = {entry.batch_size} ({heading}): {entry.failure}")
    return found
