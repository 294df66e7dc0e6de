"""The lines of a log: an event as a JSON object, and the file that they stand in.

Contract: `read_lines` yields the lines that a file holds, with their numbers; an event's line has
the names of the arguments that it was given with. docs/log.schema.json describes them. Not known
here: whether a line fits those before it.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from specviz.record.log.events import MOVED, Forward, Moves, RoundEnd
from specviz.record.log.header import VERSION
from specviz.record.log.sight import Sight
from specviz.record.schema import PHASES, Array, TraceError
from specviz.util.files import as_write_error, write
from specviz.util.validate import require_path, short

Line = dict[str, Any]
_PADDED = ("drafts", "emitted", "choices", "path")


def header_line(header: Line) -> Line:
    """Return the first line of a log."""
    return {"kind": "header", "version": VERSION, **header}


def request_line(prompt: Array, budget: int | None) -> Line:
    """Return the line of a request."""
    line = {"kind": "request", "prompt": prompt.tolist()}
    return line if budget is None else line | {"budget": budget}


def texts_line(texts: dict[str, str]) -> Line:
    """Return a line with the texts of tokens."""
    return {"kind": "texts", "texts": texts}


def event_line(event: Forward | Moves | RoundEnd) -> Line:
    """Return the line of an event."""
    if isinstance(event, Forward):
        return _forward_line(event)
    if isinstance(event, Moves):
        columns = dict(zip(MOVED, event.blocks.T.tolist(), strict=True))
        return {"kind": "move", "model": event.model, "phase": event.phase, **columns}
    return _round_line(event)


def _forward_line(event: Forward) -> Line:
    """Return a forward as packed columns: one entry a token, padding left out."""
    columns = {
        "rows": event.row,
        "requests": event.request,
        "tokens": event.token,
        "indices": event.index,
        "positions": event.position,
        "slots": event.slot,
        "nodes": event.node,
    }
    line: Line = {"kind": "forward", "model": event.model, "phase": event.phase}
    line |= {name: values.tolist() for name, values in columns.items() if values is not None}
    if event.sight is not None:
        line["visible"] = _visible(event.sight)
    return line


def _visible(sight: Sight) -> list[list[list[int]]]:
    """Return for each query the ranges of slots that it saw."""
    holes: dict[int, list[list[int]]] = {}
    for query, start, stop in sight.holes.tolist():
        holes.setdefault(query, []).append([start, stop])
    found = []
    for query, (start, stop) in enumerate(
        zip(sight.start.tolist(), sight.stop.tolist(), strict=True)
    ):
        ranges = []
        for hole_start, hole_stop in holes.get(query, ()):
            ranges.append([start, hole_start])
            start = hole_stop
        found.append([*ranges, [start, stop]])
    return found


def _round_line(event: RoundEnd) -> Line:
    line: Line = {"kind": "round", "rows": event.row.tolist(), "requests": event.request.tolist()}
    values = dict(event.values)
    for model in ("target", "draft"):
        ids, logprobs = (values.pop(f"{model}_top_{part}", None) for part in ("ids", "logprobs"))
        if ids is not None and logprobs is not None:
            line[f"{model}_top"] = [ids.tolist(), _numbers(logprobs.tolist())]
    for name, array in values.items():
        lists = array.tolist()
        if name in _PADDED:
            lists = [_cut(each) for each in lists]
        line[name] = _numbers(lists) if array.dtype.kind == "f" else lists
    if event.ms is not None:
        known = zip(PHASES, event.ms, strict=True)
        line["ms"] = {phase: round(ms, 6) for phase, ms in known if not np.isnan(ms)}
    if event.slots is not None:
        line["slots"] = event.slots
    return line


def _cut(values: list[int]) -> list[int]:
    """Return a row without the -1 behind it."""
    while values and values[-1] < 0:
        values = values[:-1]
    return values


def _numbers(values: Any) -> Any:
    """Return nested lists of floats as JSON has them: null for NaN, "-inf" for minus infinity."""
    if isinstance(values, list):
        return [_numbers(each) for each in values]
    if np.isnan(values):
        return None
    return "-inf" if np.isinf(values) else values


def as_bytes(line: Line) -> bytes:
    """Return a line of the file, with its line end."""
    text = json.dumps(line, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode() + b"\n"


class LogFile:
    """A log that grows: each line is in the file once `append` returns."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = require_path("path", path)
        write(self._path, b"")

    def append(self, line: Line) -> None:
        """Append a line. Raises WriteError where the file cannot be written."""
        # Opened for each line: so nothing has to be closed, and a crash loses no line.
        with as_write_error(self._path), self._path.open("ab") as file:
            file.write(as_bytes(line))


def read_lines(path: Path) -> Iterator[tuple[int, Line]]:
    """Yield the lines of a log with their numbers, from 1. Empty lines are left out.

    A last line without an end is left out as well: the process that wrote it was stopped.

    Raises TraceError where the file cannot be read, or a line is not a JSON object with a kind.
    """
    with path.open("rb") as file:
        for number, content in enumerate(file, 1):
            if not content.strip():
                continue
            line = _parsed(content)
            if line is None and not content.endswith(b"\n"):
                return
            if not isinstance(line, dict) or not isinstance(line.get("kind"), str):
                raise TraceError(
                    f"line {number} must be a JSON object with a kind, got "
                    f"{short(content.decode(errors='replace').rstrip())}; "
                    "write one object a line, as docs/debug.md says"
                )
            yield number, line


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(name: str) -> None:
    raise ValueError(name)  # NaN and Infinity are not JSON
