"""The trace event format, which Perfetto and chrome://tracing draw.

Source: "Trace Event Format", the object form, with complete events "X", names "M" and flows "s" and
"f". Times are microseconds.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from specviz.record.schema import MODELS, PHASES, Table, missing_in

Event = dict[str, Any]
_PHASES, _ROWS = 0, 1  # "processes", as which viewers group tracks
_LEAST_US = 0.001  # a viewer drops events without a length
_ROW = ("round", "row", "request", "drafted", "verified", "accepted", "gained")
_MOVE = ("round", "phase", "model", "from_row", "from_slot", "to_row", "to_slot", "length")


def _track(process: int, name: str, thread: int | None = None) -> Event:
    """Return an event that names a process, or one of its threads."""
    kind = "process_name" if thread is None else "thread_name"
    return {"name": kind, "ph": "M", "pid": process, "tid": thread or 0, "args": {"name": name}}


def _span(
    name: str, kind: str, process: int, thread: int, times: tuple[float, float], args: Event
) -> Event:
    """Return an event that lasts from `times[0]` to `times[1]` on a track."""
    start, stop = times
    what = {"name": name, "cat": kind, "ph": "X", "pid": process, "tid": thread}
    took = round(max(stop - start, _LEAST_US), 3)
    return {**what, "ts": round(start, 3), "dur": took, "args": args}


def to_events(meta: Mapping[str, Any], tables: Mapping[str, Table]) -> dict[str, Any]:
    """Return phases on one track, a track for each row, and copies of K/V as flows.

    Phases follow each other without pauses, because a record keeps durations only. Raise ValueError
    if the record lacks times.
    """
    if "times" in missing_in(meta):
        raise ValueError(
            "trace must have times, got a log without them; "
            "log them with TraceWriter, or record a run of specviz"
        )
    ms = np.stack([tables["rounds"][f"{phase}_ms"] for phase in PHASES], axis=1).astype(np.float64)
    stops = 1e3 * ms.ravel().cumsum().reshape(ms.shape)  # (rounds, 5)
    starts = stops - 1e3 * ms
    moves = tables["moves"]
    rows = sorted({*tables["rows"]["row"].tolist(), *moves["to_row"].tolist()})
    events = [_track(_PHASES, "phases"), _track(_ROWS, "rows")]
    events += [_track(_ROWS, f"row {row}", row) for row in rows]
    for number, phase in np.ndindex(starts.shape):
        times = (float(starts[number, phase]), float(stops[number, phase]))
        events.append(_span(PHASES[phase], "phase", _PHASES, 0, times, {"round": number}))
    for values in zip(*(tables["rows"][name].tolist() for name in _ROW), strict=True):
        fields = dict(zip(_ROW, values, strict=True))
        times = (starts[fields["round"], 0], stops[fields["round"], -1])
        name = f"request {fields['request']}: +{fields['gained']}"
        events.append(_span(name, "row", _ROWS, fields["row"], times, fields))
    for number, values in enumerate(zip(*(moves[name].tolist() for name in _MOVE), strict=True)):
        fields = dict(zip(_MOVE, values, strict=True))
        at = (fields["round"], fields["phase"])
        fields |= {"model": MODELS[fields["model"]], "phase": PHASES[fields["phase"]]}
        name = f"copy K/V of the {fields['model']}: {fields['length']} slots"
        events.append(_span(name, "move", _ROWS, fields["to_row"], (starts[at], stops[at]), fields))
        # A flow goes from the row that is read to the one that is filled.
        flow = {"name": "K/V", "cat": "move", "id": number, "pid": _ROWS}
        flow["ts"] = round(starts[at], 3)
        events.append({**flow, "ph": "s", "tid": fields["from_row"]})
        events.append({**flow, "ph": "f", "bp": "e", "tid": fields["to_row"]})
    return {"traceEvents": events, "displayTimeUnit": "ms"}
