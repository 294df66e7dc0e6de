"""The lines of a log's file: events as JSON objects, each with the names of a call's arguments.

docs/log.schema.json describes them.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from specviz.record.builder import Seen
from specviz.record.schema import Array, TraceError
from specviz.util.files import as_write_error, write
from specviz.util.validate import require_path, short

Line = dict[str, Any]  # entries as arrays, until they are written
_PADDED = ("drafts", "emitted", "choices", "path")  # lists that end before their first -1


def as_bytes(line: Line) -> bytes:
    """Return a line of the file, with its line end."""
    entries = {name: _json(name, value) for name, value in line.items()}
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode() + b"\n"


def _json(name: str, value: Any) -> Any:
    """Return an entry as JSON has it: null for NaN, "-inf" for minus infinity."""
    if isinstance(value, Seen):
        return _ranges(value)
    if isinstance(value, tuple):
        return [_json("", each) for each in value]
    if name == "ms":
        return {phase: round(ms, 6) for phase, ms in value.items()}
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind == "f":
        return _floats(value)
    if name in _PADDED:
        ends = (value >= 0).sum(axis=1).tolist()
        return [row[:end] for row, end in zip(value.tolist(), ends, strict=True)]
    return value.tolist()


def _floats(values: Array) -> Any:
    if values.ndim > 1:
        return [_floats(each) for each in values]
    return [None if x != x else "-inf" if x == -np.inf else x for x in values.tolist()]


def _ranges(seen: Seen) -> list[list[list[int]]]:
    """Return for each query the ranges of slots that it saw."""
    begins = seen.start.tolist()
    found: list[list[list[int]]] = [[] for _ in begins]
    for query, start, stop in seen.holes.tolist():
        found[query].append([begins[query], start])
        begins[query] = stop
    for query, stop in enumerate(seen.stop.tolist()):
        found[query].append([begins[query], stop])
    return found


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
            try:
                line = json.loads(content, parse_constant=_refuse)
            except (ValueError, RecursionError):
                line = None
            if line is None and not content.endswith(b"\n"):
                return
            if not isinstance(line, dict) or not isinstance(line.get("kind"), str):
                raise TraceError(
                    f"line {number} must be a JSON object with a kind, got "
                    f"{short(content.decode(errors='replace').rstrip())}; "
                    "write one object a line, as docs/debug.md says"
                )
            yield number, line


def _refuse(name: str) -> None:
    raise ValueError(name)  # NaN and Infinity are not JSON
