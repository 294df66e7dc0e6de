"""A record as trace events: phases on one track, a track for each row, copies of K/V as flows.

Contract: a record's header and tables go in, JSON of the trace event format comes out ("Trace Event
Format", the object form: complete events "X", names "M", flows "s" and "f"). Times are microseconds
from the run's first phase; phases follow each other without pauses, because a record keeps
durations only. Not known here: files.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from specviz.record.missing import missing_in
from specviz.record.schema import MODELS, PHASES, Table

Event = dict[str, Any]
_PHASES, _ROWS = 0, 1  # "processes", as which viewers group tracks
_LEAST_US = 0.001  # a viewer drops events without a length


def trace_events(meta: Mapping[str, Any], tables: Mapping[str, Table]) -> dict[str, Any]:
    """Return the record as JSON. Raise ValueError if it lacks times."""
    if "times" in missing_in(meta):
        raise ValueError(
            "trace must have times, got a log without them; "
            "log them with TraceWriter, or record a run of specviz"
        )
    ms = np.stack([tables["rounds"][f"{phase}_ms"] for phase in PHASES], axis=1).astype(np.float64)
    stops = 1e3 * ms.ravel().cumsum().reshape(ms.shape)  # (rounds, 5)
    starts = stops - 1e3 * ms
    rows = sorted({*tables["rows"]["row"].tolist(), *tables["moves"]["to_row"].tolist()})
    events = [_named("process_name", _PHASES, 0, "phases")]
    events += [_named("process_name", _ROWS, 0, "rows")]
    events += [_named("thread_name", _ROWS, row, f"row {row}") for row in rows]
    events += _phase_events(starts, stops)
    events += _row_events(tables["rows"], starts, stops)
    events += _move_events(tables["moves"], starts, stops)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _named(kind: str, process: int, thread: int, name: str) -> Event:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _complete(
    name: str, kind: str, process: int, thread: int, span: tuple[float, float], args: Event
) -> Event:
    start, stop = span
    return {
        "name": name,
        "cat": kind,
        "ph": "X",
        "pid": process,
        "tid": thread,
        "ts": round(start, 3),
        "dur": round(max(stop - start, _LEAST_US), 3),
        "args": args,
    }


def _phase_events(starts: np.ndarray, stops: np.ndarray) -> list[Event]:
    events = []
    for number, phase in np.ndindex(starts.shape):
        span = (float(starts[number, phase]), float(stops[number, phase]))
        args = {"round": number}
        events.append(_complete(PHASES[phase], "phase", _PHASES, 0, span, args))
    return events


def _row_events(rows: Table, starts: np.ndarray, stops: np.ndarray) -> list[Event]:
    """Return what each row gained in each round, over the time of the round."""
    names = ("round", "row", "request", "drafted", "verified", "accepted", "gained")
    events = []
    for values in zip(*(rows[name].tolist() for name in names), strict=True):
        fields = dict(zip(names, values, strict=True))
        span = (starts[fields["round"], 0], stops[fields["round"], -1])
        name = f"request {fields['request']}: +{fields['gained']}"
        events.append(_complete(name, "row", _ROWS, fields["row"], span, fields))
    return events


def _move_events(moves: Table, starts: np.ndarray, stops: np.ndarray) -> list[Event]:
    """Return a flow for each copy of K/V, from the row that it is read from to the one it fills."""
    names = ("round", "phase", "model", "from_row", "from_slot", "to_row", "to_slot", "length")
    events = []
    columns = (moves[name].tolist() for name in names)
    for number, values in enumerate(zip(*columns, strict=True)):
        fields = dict(zip(names, values, strict=True))
        at = (fields["round"], fields["phase"])
        fields["model"] = MODELS[fields["model"]]
        fields["phase"] = PHASES[fields["phase"]]
        copied = f"copy K/V of the {fields['model']}: {fields['length']} slots"
        span = (starts[at], stops[at])
        events.append(_complete(copied, "move", _ROWS, fields["to_row"], span, fields))
        flow = {"name": "K/V", "cat": "move", "id": number, "pid": _ROWS}
        events.append({**flow, "ph": "s", "tid": fields["from_row"], "ts": round(span[0], 3)})
        end = {**flow, "ph": "f", "bp": "e", "tid": fields["to_row"], "ts": round(span[0], 3)}
        events.append(end)
    return events
