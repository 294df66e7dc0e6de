"""Ways to make a correct record wrong: their kinds, and what they may ask of a record.

The tables are in `mutations_rows`, `mutations_cache`, `mutations_run` and `mutations_deep`.
"""

import functools
from collections import Counter
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

Mask = Callable[[Trace], np.ndarray]  # which entries of a table
Change = Callable[[Trace, int], Trace]
Row = dict[str, Any]  # the values of an entry of `rows`, and the size of the vocabulary


@dataclass(frozen=True)
class Mutation:
    """One way to make a record wrong.

    Attributes:
        name: what is wrong.
        change: returns the record with this entry changed.
        rules: those that may find it.
        where: the entries that can be changed; no entry, and it does not apply to the record.
    """

    name: str
    change: Change
    rules: tuple[str, ...]
    where: Mask

    def entry(self, trace: Trace) -> int | None:
        """Return the middle one of the entries that can be changed, None without any."""
        entries = np.flatnonzero(self.where(trace))
        return int(entries[(entries.size - 1) // 2]) if entries.size else None


def edited(trace: Trace, table: str, which: Any, **columns: Any) -> Trace:
    """`trace` with other values in some entries of a table."""
    changed = {name: values.copy() for name, values in getattr(trace, table).items()}
    for name, value in columns.items():
        changed[name][which] = value
    return replace(trace, **{table: changed})


def edited_at(trace: Trace, column: str, entry: int, j: int, value: Any) -> Trace:
    """`trace` with another value at place j of an entry of `rows`."""
    values = trace.rows[column][entry].copy()
    values[j] = value
    return edited(trace, "rows", entry, **{column: values})


def without(trace: Trace, table: str, which: Any) -> Trace:
    """`trace` without some entries of a table."""
    kept = {k: np.delete(values, which, 0) for k, values in getattr(trace, table).items()}
    if table != "feeds":
        return replace(trace, **{table: kept})
    # The holes of that feed go with it, and those of later feeds count down.
    holes = {name: values[trace.holes["feed"] != which] for name, values in trace.holes.items()}
    holes["feed"] = (holes["feed"] - (holes["feed"] > which)).astype(np.int32)
    # So do the states that it left, and those of later feeds.
    states = dict(trace.states)
    left = states["feed"]
    states["feed"] = np.where(left == which, -1, left - (left > which)).astype(np.int32)
    return replace(trace, feeds=kept, holes=holes, states=states)


def headed(trace: Trace, **values: Any) -> Trace:
    """`trace` with other values in its header."""
    return replace(trace, meta=trace.meta | values)


# The kinds of mutations. `where` is a pandas query over the table, or a mask.


def whole(name: str, change: Change, rules: str, table: str, where: str | Mask) -> Mutation:
    """Return the mutation by any change."""
    mask = functools.partial(queried, table, where) if isinstance(where, str) else where
    return Mutation(name, change, tuple(rules.split()), mask)


def value(column: str, new: Any, rules: str, where: str | Mask, note: str = "") -> Mutation:
    """Return the mutation of a value of "table.column".

    `new` is what is added to it, or a function of the record and the entry that returns another.
    """
    table, _, name = column.partition(".")

    def change(trace: Trace, entry: int) -> Trace:
        old = int(getattr(trace, table)[name][entry])
        other = new(trace, entry) if callable(new) else old + new
        return edited(trace, table, entry, **{name: other})

    by = "" if callable(new) else f" {new:+d}"
    return whole(f"{column}{by}" + (note and f" {note}"), change, rules, table, where)


def to(constant: Any) -> Callable[[Trace, int], Any]:
    return lambda trace, entry: constant


def place(
    column: str, j: int | str | Callable[[Row], int], new: Any, rules: str, where: str | Mask,
    note: str,
) -> Mutation:  # fmt: skip
    """Return the mutation of one place of a column of `rows` that has several.

    `j` is the place, a column that has it, or a function of the row; `new` is the other value, or a
    function of the row and the old value.
    """

    def change(trace: Trace, entry: int) -> Trace:
        row = {name: values[entry] for name, values in trace.rows.items()}
        row["vocabulary"] = trace.meta["vocabulary_size"]
        at = int(row[j]) if isinstance(j, str) else j(row) if callable(j) else j
        other = new(row, row[column][at].copy()) if callable(new) else new
        return edited_at(trace, column, entry, at, other)

    return whole(f"rows.{column} {note}", change, rules, "rows", where)


def lost(table: str, rules: str, where: str | Mask, note: str = "") -> Mutation:
    """Return the mutation that leaves an entry out."""
    name = f"{table} lost" + (note and f" {note}")
    return whole(name, lambda trace, entry: without(trace, table, entry), rules, table, where)


def header(name: str, rules: str, applies: Callable[[Trace], Any], **values: Any) -> Mutation:
    """Return the mutation that sets values of the header, or what functions make of the record."""

    def change(trace: Trace, entry: int) -> Trace:
        made = {key: v(trace) if callable(v) else v for key, v in values.items()}
        return headed(trace, **made)

    def where(trace: Trace) -> np.ndarray:
        return np.array([bool(applies(trace))])

    return Mutation(name, change, tuple(rules.split()), where)


def uses(coupling: str) -> Callable[[Trace], bool]:
    """Return whether a record was sampled so."""
    return lambda trace: (trace.meta["sampling"] or {}).get("coupling") == coupling


def sampling(**values: Any) -> Callable[[Trace], dict[str, Any]]:
    return lambda trace: trace.meta["sampling"] | values


def queried(table: str, query: str, trace: Trace) -> np.ndarray:
    """Which entries fit a query over the columns of a table and those derived from the record."""
    frame = asked(trace, table)
    return np.array(frame.eval(query), bool) if len(frame) else np.zeros(0, bool)


@functools.cache
def asked(trace: Trace, table: str) -> pd.DataFrame:
    """Return what queries over a table may ask."""
    scalars = {k: v for k, v in getattr(trace, table).items() if v.ndim == 1}
    frame = pd.DataFrame(scalars).astype(np.int64)
    return frame.assign(**DERIVED[table](trace)) if table in DERIVED else frame


def of_rows(trace: Trace) -> dict[str, Any]:
    """left: how many tokens of the request come later."""
    rows, requests, options = trace.rows, trace.requests, trace.meta["sampling"]
    request = pd.Series(rows["request"])
    text = np.diff(requests["prompt_offsets"]) + np.diff(requests["output_offsets"])
    return {
        "is_first": ~request.duplicated(),
        "is_last": ~request.duplicated(keep="last"),
        "ends_with_eos": np.array(trace.meta["status"])[request] == "eos",
        "left": text[request] - rows["length"] - rows["gained"],
        "greedy": options is None,
        "by_coins": uses("rejection")(trace),
        "by_model": trace.meta["drafter"] == "model",
        "by_lookup": trace.meta["drafter"] == "lookup",
    }


def of_feeds(trace: Trace) -> dict[str, Any]:
    """Some columns of the row's entry in `rows`, -1 without one; and of the feed:

    ahead: how far its index lies behind the pending token's.
    is_leaf: whether it is a draft of a tree that no proposed draft follows.
    hidden: the number of its holes.
    """
    feeds, branches, entry = trace.feeds, Branches(trace), trace.index.feed_rows
    found = {k: np.append(trace.rows[k], -1)[entry] for k in ("length", "drafted", "gained")}
    row, j = np.nonzero(np.arange(branches.parents.shape[1]) < branches.drafted)
    parents = set(zip(row, branches.parents[row, j], strict=True))
    nodes = zip(entry, feeds["node"], strict=True)
    return found | {
        "ahead": feeds["index"] - (found["length"] - 1),
        "is_leaf": [branches.any and node > 0 and (i, node) not in parents for i, node in nodes],
        "is_tree": np.append(branches.is_tree, False)[entry],
        "hidden": np.bincount(trace.holes["feed"], minlength=feeds["slot"].size),
        "rounds_left": trace.num_rounds - 1 - feeds["round"],
    }


def of_moves(trace: Trace) -> dict[str, Any]:
    """goes_on: whether the row decodes on with what was moved.

    ends_with_kv: whether the last slot of the block was fed a token that the row has.
    """
    rows, moves, feeds = trace.rows, trace.moves, trace.feeds
    number = moves["round"].astype(int)
    later = number + (moves["phase"] == SYNCHRONISE)
    now, then = (trace.index.find_rows(each, moves["to_row"]) for each in (number, later))
    request = rows["request"]
    is_read = (feeds["index"] == 0) & (feeds["phase"] == SCHEDULE)
    read = set(zip(*(feeds[k][is_read] for k in ("request", "model", "round")), strict=True))
    again = [key in read for key in zip(request[then], moves["model"], number, strict=True)]
    goes_on = (now >= 0) & (then >= 0) & (rows["gained"][then] > 0) & ~np.array(again, bool)
    goes_on &= request[now] == request[then]
    ends_with_kv = np.zeros(number.size, bool)
    for k in np.flatnonzero(goes_on):
        index = rows["length"][then[k]] - 2
        fed = (feeds["request"] == request[then[k]]) & (feeds["model"] == moves["model"][k])
        fed &= feeds["slot"] == moves["from_slot"][k] + moves["length"][k] - 1
        fed &= (feeds["row"] == moves["from_row"][k]) & (feeds["round"] < later[k])
        tokens = feeds["token"][fed & (feeds["index"] == index)]
        text = trace.prompt(request[then[k]]) + trace.output(request[then[k]])
        ends_with_kv[k] = tokens.size and tokens[-1] == text[index]
    return {
        "goes_on": goes_on,
        "is_finished": np.append(rows["finished"], 1)[now],
        "ends_with_kv": ends_with_kv,
        "rounds_left": trace.num_rounds - 1 - number,
    }


def of_states(trace: Trace) -> dict[str, Any]:
    """rounds_left, and fed: how many tokens the model was fed in the forward."""
    states, feeds = trace.states, trace.feeds
    names = ("round", "phase", "step", "model")
    fed = Counter(zip(*(feeds[name].tolist() for name in names), strict=True))
    forwards = zip(*(states[name].tolist() for name in names), strict=True)
    return {
        "rounds_left": trace.num_rounds - 1 - states["round"],
        "fed": [fed[each] for each in forwards],
    }


DERIVED = {"rows": of_rows, "feeds": of_feeds, "moves": of_moves, "states": of_states}
