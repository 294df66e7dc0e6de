"""When each phase of a run began and ended, on one clock for all lanes.

Contract: arrays of milliseconds in, tables out. Not known here: models and records.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from specviz.record.schema import PHASES


def timeline(spans_ms: Sequence[np.ndarray]) -> pd.DataFrame:
    """Return lane, round, phase, start_ms and stop_ms of every phase, by start.

    spans_ms: for each lane (rounds, 5, 2), begin and end of each phase.
    """
    parts = []
    for lane, spans in enumerate(spans_ms):
        rounds = len(spans)
        columns = {
            "lane": np.full(rounds * len(PHASES), lane),
            "round": np.repeat(np.arange(rounds), len(PHASES)),
            "phase": list(PHASES) * rounds,
            "start_ms": spans[..., 0].ravel(),
            "stop_ms": spans[..., 1].ravel(),
        }
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts).sort_values("start_ms", kind="stable", ignore_index=True)


def trace_events(table: pd.DataFrame) -> dict[str, Any]:
    """Return a timeline as JSON in the trace event format, each lane as a thread of one process.

    Times are microseconds from the first phase on. Source of the format: "Trace Event Format",
    the object form with complete events ("X") and names of threads ("M").
    """
    lanes = sorted(int(lane) for lane in table["lane"].unique())
    events: list[dict[str, Any]] = [_named("process_name", 0, "specviz")]
    events += [_named("thread_name", lane, f"lane {lane}") for lane in lanes]
    first_ms = float(table["start_ms"].min()) if len(table) else 0.0
    for entry in table.itertuples(index=False):
        events.append(
            {
                "name": entry.phase,
                "cat": "phase",
                "ph": "X",
                "pid": 0,
                "tid": int(entry.lane),
                "ts": round(1e3 * (entry.start_ms - first_ms), 3),
                "dur": round(1e3 * (entry.stop_ms - entry.start_ms), 3),
                "args": {"round": int(entry.round)},
            }
        )
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _named(kind: str, lane: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": 0, "tid": lane, "args": {"name": name}}


def bubbles(table: pd.DataFrame) -> pd.DataFrame:
    """Return the pauses of each lane of a timeline that is not empty: lane, start_ms and stop_ms.

    A lane that has ended, while another goes on, pauses to the end of the timeline.
    """
    pauses = []
    end_ms = table["stop_ms"].max()
    first_ms = table["start_ms"].min()
    for lane, phases in table.groupby("lane"):
        ordered = phases.sort_values("start_ms")
        stops = np.append(first_ms, ordered["stop_ms"])
        starts = np.append(ordered["start_ms"], end_ms)
        waits = starts > stops
        pauses.append(
            pd.DataFrame({"lane": lane, "start_ms": stops[waits], "stop_ms": starts[waits]})
        )
    return pd.concat(pauses, ignore_index=True)


def bubble_share(table: pd.DataFrame) -> float:
    """Return the share of the lanes' time in which they pause; NaN without phases."""
    if not len(table):
        return float("nan")
    pauses = bubbles(table)
    elapsed_ms = table["stop_ms"].max() - table["start_ms"].min()
    paused_ms = (pauses["stop_ms"] - pauses["start_ms"]).sum()
    return float(paused_ms / (elapsed_ms * table["lane"].nunique()))
