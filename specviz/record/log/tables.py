"""From the events of a log to the tables of a record.

Contract: `to_trace` takes what a `TraceWriter` has and returns a `Trace`. What was not given has
the value that `Trace` names for it, and its name in the header under "missing". Not known here:
how events are checked.

N entries of the table `rows`, F tokens that were fed, K draft tokens.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from specviz.record.chains import DERIVED
from specviz.record.log.events import MOVED, Moves, Placed, RoundEnd
from specviz.record.log.fed import feed_tables
from specviz.record.log.gaps import lacking
from specviz.record.log.header import to_meta
from specviz.record.log.layout import LoggedLayout
from specviz.record.log.requests import Requests
from specviz.record.log.rows import joined, row_columns
from specviz.record.schema import COLUMNS, MODELS, PHASES, Array, Table, TraceError
from specviz.record.trace import Trace
from specviz.record.validation import CELLS_PER_FEED, FREE_CELLS

_PLACES = ("starts", "starts_after", "pending", "pending_after")


def to_trace(
    header: Mapping[str, Any],
    requests: Requests,
    forwards: list[Placed],
    moves: list[Placed],
    rounds: list[RoundEnd],
    texts: Mapping[str, str],
) -> Trace:
    """Return the record of a log. What belongs to a round that has not ended is left out."""
    count, K = len(rounds), header["num_draft_tokens"]
    _check_size(rounds, K)
    forwards = [each for each in forwards if each.round < count]
    moves = [each for each in moves if each.round < count]
    rows = row_columns(header, requests, rounds)
    layout = _layout(rounds, rows, [*forwards, *moves])
    for name in ("start", "start_after", "pending", "pending_after"):
        rows[name] = getattr(layout, name)
    feeds, holes = feed_tables(forwards, rows)
    meta = to_meta(header, max(event.row.size for event in rounds))
    meta["token_texts"] = dict(texts)
    meta["missing"] = lacking(header, requests, forwards, rounds)
    if "budget" not in meta["missing"]:
        meta["status"] = requests.statuses(header["eos_token_ids"])
    tables = {
        "rounds": _round_columns(rounds, rows, layout),
        "rows": rows,
        "feeds": feeds,
        "holes": holes,
        "moves": _move_columns(moves),
        "pool": {},
    }
    made = {name: _as_table(name, columns, K) for name, columns in tables.items()}
    return Trace(meta, requests=requests.table(), **made)


def _check_size(rounds: list[RoundEnd], num_draft_tokens: int) -> None:
    """Refuse a small log that claims huge tables."""
    logged = sum(values.size for event in rounds for values in event.values.values())
    cells = sum(event.row.size for event in rounds) * (num_draft_tokens + 1)
    if cells > FREE_CELLS + CELLS_PER_FEED * logged:
        raise TraceError(
            f"num_draft_tokens={num_draft_tokens} is far more than the logged rounds draft; pass "
            "the most that a row drafts"
        )


def _layout(rounds: list[RoundEnd], rows: Table, events: list[Placed]) -> LoggedLayout:
    of_target = [each for each in events if each.event.model == "target"]
    of_target.sort(key=lambda each: (each.round, PHASES.index(each.event.phase), each.step))
    given = {name: joined(rounds, name, (), -1) for name in _PLACES}
    return LoggedLayout(len(rounds), rows, of_target, given)


def _round_columns(rounds: list[RoundEnd], rows: Table, layout: LoggedLayout) -> Table:
    batch = np.array([event.row.size for event in rounds])
    # Where the forwards do not say it: up to the last draft of the row that ends last.
    ends = np.zeros(len(rounds), np.int64)
    np.maximum.at(ends, rows["round"], rows["pending"] + rows["drafted"] + 1)
    slots = np.where(layout.slots > 0, layout.slots, ends)
    for number, event in enumerate(rounds):
        if event.slots is not None:
            slots[number] = event.slots
    unknown = [np.nan] * len(PHASES)
    ms = np.array([unknown if event.ms is None else event.ms for event in rounds])
    columns = {f"{phase}_ms": ms[:, number] for number, phase in enumerate(PHASES)}
    return {"batch": batch, "slots": slots, **columns}


def _move_columns(moves: list[Placed]) -> Table:
    columns: dict[str, list[int]] = {
        name: [] for name in ("round", "step", "phase", "model", *MOVED)
    }
    for placed in moves:
        event = placed.event
        assert isinstance(event, Moves)
        for block in event.blocks.tolist():
            place = (placed.round, placed.step, PHASES.index(event.phase))
            values = (*place, MODELS.index(event.model), *block)
            for name, value in zip(columns, values, strict=True):
                columns[name].append(value)
    return {name: np.array(values, np.int64) for name, values in columns.items()}


def _as_table(name: str, columns: Mapping[str, Array], num_draft_tokens: int) -> Table:
    """Return a table with dtypes as in the schema; a column that is not given is zero."""
    size = max((len(values) for values in columns.values()), default=0)
    sizes = {"N": size, "K": num_draft_tokens, "K+1": num_draft_tokens + 1}
    sizes |= {
        letter: columns[f"{model}_top_ids"].shape[2]
        for letter, model in zip("kj", MODELS, strict=True)
        if name == "rows"
    }
    table: Table = {}
    for column, form in COLUMNS[name].items():
        if column in columns:
            table[column] = columns[column].astype(form.dtype)
        elif column not in DERIVED.get(name, ()):
            table[column] = np.zeros([sizes[letter] for letter in form.shape], form.dtype)
    return table
