"""Ways to make a correct record wrong.

A `Mutation` changes one thing in a record: a value in one
entry of a table, an entry of a tensor, or a value of the header. It says which rules may find it,
and what a record must have for it to make sense. `ALL` in `test_mutations.py` gathers the tables.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from specviz.checks.branches import Branches
from specviz.record.schema import MODELS, PHASES
from specviz.record.trace import Trace

SCHEDULE, DRAFT, VERIFY, ACCEPT, SYNCHRONISE = range(len(PHASES))
TARGET, DRAFTER = range(len(MODELS))

Where = Callable[[Trace], np.ndarray]  # a mask over the entries of a table
Change = Callable[[Trace, int], Trace]


@dataclass(frozen=True)
class Mutation:
    """One way to make a record wrong.

    Attributes:
        name: what is wrong.
        change: returns the record with this entry changed.
        rules: those that may find it.
        where: the entries that can be changed; no entry, and it does not apply to the record.
        needs: what a record has to have, as the reason why it does not apply to another.
        deep: whether only `deep=True` finds it.
    """

    name: str
    change: Change
    rules: tuple[str, ...]
    where: Where
    needs: str
    deep: bool = False

    def entry(self, trace: Trace, share: float = 0.5) -> int | None:
        """Return an entry that can be changed, by default the middle one; None without any."""
        entries = np.flatnonzero(self.where(trace))
        if entries.size == 0:
            return None
        return int(entries[int(share * (entries.size - 1))])


def edited(trace: Trace, table: str, which: Any, **columns: Any) -> Trace:
    """`trace` with other values in some entries of a table."""
    changed = {name: values.copy() for name, values in getattr(trace, table).items()}
    for name, value in columns.items():
        changed[name][which] = value
    return replace(trace, **{table: changed})


def without(trace: Trace, table: str, which: Any) -> Trace:
    """`trace` without some entries of a table."""
    kept = {k: np.delete(values, which, 0) for k, values in getattr(trace, table).items()}
    if table != "feeds":
        return replace(trace, **{table: kept})
    # The holes of that feed go with it, and those of later feeds count down.
    holes = {name: values[trace.holes["feed"] != which] for name, values in trace.holes.items()}
    holes["feed"] = (holes["feed"] - (holes["feed"] > which)).astype(np.int32)
    return replace(trace, feeds=kept, holes=holes)


def doubled(trace: Trace, table: str, which: int) -> Trace:
    """`trace` with one entry of a table a second time, behind all others."""
    columns = getattr(trace, table).items()
    return replace(
        trace, **{table: {k: np.append(v, v[which : which + 1], axis=0) for k, v in columns}}
    )


def headed(trace: Trace, **values: Any) -> Trace:
    """`trace` with other values in its header."""
    return replace(trace, meta=trace.meta | values)


def shifted(table: str, column: str, by: int) -> Change:
    """Return a change that adds to a value of a column."""

    def change(trace: Trace, entry: int) -> Trace:
        value = int(getattr(trace, table)[column][entry]) + by
        return edited(trace, table, entry, **{column: value})

    return change


def entries(table: str, query: str) -> Where:
    """Return the mask of a pandas query over the columns of a table, and those of `derived`."""

    def where(trace: Trace) -> np.ndarray:
        frame = asked(trace, table)
        found = frame.eval(query).to_numpy(bool) if len(frame) else np.zeros(0, bool)
        return np.array(found)

    return where


@functools.cache
def asked(trace: Trace, table: str) -> pd.DataFrame:
    """Return what queries over a table may ask: its columns and those derived from the record."""
    scalars = {k: v for k, v in getattr(trace, table).items() if v.ndim == 1}
    frame = pd.DataFrame(scalars).astype(np.int64)
    return frame.assign(**DERIVED[table](trace)) if table in DERIVED else frame


@functools.cache
def of_rows(trace: Trace) -> dict[str, np.ndarray]:
    """What queries over `rows` may ask beside its columns."""
    rows = trace.rows
    request = pd.Series(rows["request"])
    prompt = np.diff(trace.requests["prompt_offsets"])[rows["request"]]
    ends = np.array([status == "eos" for status in trace.meta["status"]])
    return {
        "is_first": (~request.duplicated()).to_numpy(),
        "is_last": (~request.duplicated(keep="last")).to_numpy(),
        "ends_with_eos": ends[rows["request"]],
        "room": trace.requests["budget"][rows["request"]] - (rows["length"] - prompt),
        "left": prompt
        + np.diff(trace.requests["output_offsets"])[rows["request"]]
        - (rows["length"] + rows["gained"]),
        "is_left_alone": is_left_alone(trace),
        "is_kept": is_kept(trace),
        **of_run(trace, len(request)),
    }


def is_kept(trace: Trace) -> np.ndarray:
    """Which entries of `rows` have another one of their request, which is not read again for it."""
    rows, feeds = trace.rows, trace.feeds
    is_first = (feeds["index"] == 0) & (feeds["model"] == TARGET)
    found = np.zeros(rows["round"].size, bool)
    for entry in range(found.size):
        same = rows["request"] == rows["request"][entry]
        later = rows["round"][same & (rows["round"] > rows["round"][entry])]
        read = feeds["round"][is_first & (feeds["request"] == rows["request"][entry])]
        found[entry] = later.size > 0 and later[0] not in read
    return found


def is_left_alone(trace: Trace) -> np.ndarray:
    """Which entries of `rows` have another one of their request, with nothing happening between."""
    rows, moves = trace.rows, trace.moves
    firsts = {int(rows["round"][rows["request"] == r].min()) for r in set(rows["request"].tolist())}
    found = np.zeros(rows["round"].size, bool)
    for entry in range(found.size):
        later = np.flatnonzero(
            (rows["request"] == rows["request"][entry]) & (rows["round"] > rows["round"][entry])
        )
        if later.size == 0 or rows["row"][later[0]] != rows["row"][entry]:
            continue
        first, last = int(rows["round"][entry]), int(rows["round"][later[0]])
        stage = moves["round"].astype(int) * len(PHASES) + moves["phase"]
        moved = (
            (stage > first * 5 + SYNCHRONISE)
            & (stage <= last * 5)
            & (moves["to_row"] == rows["row"][entry])
        )
        found[entry] = not moved.any() and not firsts & set(range(first + 1, last + 1))
    return found


def of_feeds(trace: Trace) -> dict[str, np.ndarray]:
    """What queries over `feeds` may ask beside its columns: columns of the row's entry in `rows`.

    ahead: how far its index lies behind the pending token's. They are -1 for a feed of no entry.
    is_leaf: whether it is a draft of a tree that no proposed draft follows.
    """
    rows, feeds = trace.rows, trace.feeds
    entry = trace.index.feed_rows
    found = {}
    for name in ("length", "drafted", "gained", "accepted", "finished"):
        found[name] = np.where(entry >= 0, rows[name][entry], -1)
    last = of_rows(trace)["is_last"]
    node = feeds["node"] if Branches(trace).any else np.zeros_like(feeds["node"])
    holes = np.bincount(trace.holes["feed"], minlength=feeds["slot"].size)
    return found | {
        "ahead": np.where(entry >= 0, feeds["index"] - (found["length"] - 1), -99),
        "is_last": (entry >= 0) & last[entry],
        "is_leaf": (entry >= 0) & (node > 0) & ~has_children(trace)[entry, node],
        "hidden": holes,
        "rounds_left": trace.num_rounds - 1 - feeds["round"],
        **of_run(trace, feeds["slot"].size),
    }


def has_children(trace: Trace) -> np.ndarray:
    """Which columns of each entry of `rows` a draft follows; the last column stands for others."""
    branches = Branches(trace)
    n, k = branches.parents.shape
    most = max(int(trace.feeds["node"].max(initial=0)), k) + 1
    found = np.zeros((n, most), bool)
    entry, j = np.nonzero(np.arange(k) < branches.drafted)
    found[entry, branches.parents[entry, j]] = True
    return found


def of_run(trace: Trace, size: int) -> dict[str, np.ndarray]:
    """What any query may ask of the run."""
    sampling = trace.meta["sampling"]
    coupling = "" if sampling is None else sampling["coupling"]
    return {
        "greedy": np.full(size, sampling is None),
        "gumbel": np.full(size, coupling == "gumbel"),
        "by_model": np.full(size, trace.meta["drafter"] == "model"),
        "by_lookup": np.full(size, trace.meta["drafter"] == "lookup"),
    }


def of_moves(trace: Trace) -> dict[str, np.ndarray]:
    """What queries over `moves` may ask beside its columns.

    goes_on: whether the row decodes on with what was moved. ends_with_kv: whether the last slot of
    the block was fed a token that the row has.
    """
    rows, moves = trace.rows, trace.moves
    goes_on = np.zeros(moves["round"].size, bool)
    ends_with_kv = goes_on.copy()
    for k in range(goes_on.size):
        number = int(moves["round"][k])
        is_late = moves["phase"][k] == SYNCHRONISE
        in_row = rows["row"] == moves["to_row"][k]
        now = np.flatnonzero(in_row & (rows["round"] == number))
        then = np.flatnonzero(in_row & (rows["round"] == number + is_late) & (rows["gained"] > 0))
        if now.size == 0 or then.size == 0 or rows["request"][now[0]] != rows["request"][then[0]]:
            continue
        request = rows["request"][then[0]]
        feeds = trace.feeds
        mine = (feeds["request"] == request) & (feeds["model"] == moves["model"][k])
        again = mine & (feeds["round"] == number) & (feeds["index"] == 0) & (feeds["phase"] == 0)
        goes_on[k] = not again.any()
        last = moves["from_slot"][k] + moves["length"][k] - 1
        at = mine & (feeds["slot"] == last) & (feeds["row"] == moves["from_row"][k])
        at &= (feeds["round"] < number + is_late) & (feeds["index"] == rows["length"][then[0]] - 2)
        text = trace.prompt(request) + trace.output(request)
        fed = np.flatnonzero(at)
        ends_with_kv[k] = fed.size and feeds["token"][fed[-1]] == text[feeds["index"][fed[-1]]]
    return {
        "goes_on": goes_on,
        "ends_with_kv": ends_with_kv,
        "rounds_left": trace.num_rounds - 1 - moves["round"],
    }


DERIVED = {"rows": of_rows, "feeds": of_feeds, "moves": of_moves}
