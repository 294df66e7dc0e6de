"""The file of a log, read as a record.

Contract: `read_log` gives each line to a `TraceWriter`, so that a file is checked by the same rules
as the calls that write one. What is wrong is one sentence with the number of the line. Not known
here: what the lines mean.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specviz.record.log.forms import check_line
from specviz.record.log.header import VERSION
from specviz.record.log.lines import Line, read_lines
from specviz.record.log.writer import TraceWriter
from specviz.record.schema import TraceError
from specviz.record.trace import Trace
from specviz.util.files import is_file
from specviz.util.validate import require_path, short, shown_path

SUFFIX = ".jsonl"
# By kind of line, the method that takes its entries.
_METHODS: dict[str, Callable[..., Any]] = {
    "request": TraceWriter.add_request,
    "texts": TraceWriter.add_texts,
    "forward": TraceWriter.forward,
    "move": TraceWriter.move,
    "round": TraceWriter.round,
}


def read_log(path: str | os.PathLike[str]) -> Trace:
    """Read the log of any engine: a file that `TraceWriter` or another program has written.

    docs/debug.md describes the file. One that ends early is read up to its last complete round.

    Raises:
        TraceError: the file cannot be read or holds no valid log; names file, line and remedy.
        ValueError: `path` cannot be a path.
    """
    place = require_path("path", path)
    if not is_file(place):
        raise TraceError(
            f"{shown_path(place)}: cannot be read (there is no such file); choose a log"
        )
    try:
        return _read(place)
    except OSError as error:
        reason = error.strerror or error
        raise TraceError(f"{shown_path(place)}: cannot be read ({reason}); choose a log") from error
    except TraceError as error:
        raise TraceError(f"{shown_path(place)}: {error}") from error.__cause__


def read_record(path: str | os.PathLike[str]) -> Trace:
    """Read a log (.jsonl) or a saved record. Errors as in `read_log` and `Trace.load`."""
    place = require_path("path", path)
    is_log = place.suffix.lower() == SUFFIX
    return read_log(place) if is_log else Trace.load(place)


def _read(path: Path) -> Trace:
    writer: TraceWriter | None = None
    for number, line in read_lines(path):
        try:
            if writer is None:
                writer = _begun(line)
            else:
                _apply(writer, line)
        except ValueError as error:
            raise TraceError(f"line {number}: {error}") from error
    if writer is None:
        raise TraceError("the file is empty; choose a log, whose first line is its header")
    try:
        return writer.trace()
    except TraceError:
        raise
    except ValueError as error:
        raise TraceError(f"the log has no complete round; {error}") from error


def _begun(line: Line) -> TraceWriter:
    """Return a writer with the header of a log's first line."""
    kind = line.pop("kind")
    if kind != "header":
        raise ValueError(f"kind must be 'header', got {short(kind)}; begin with the header")
    check_line(kind, line)
    version = line.pop("version")
    if version != VERSION:
        raise ValueError(
            f"version must be {VERSION}, got {short(version)}; install a newer specviz"
        )
    return TraceWriter(**line)


def _apply(writer: TraceWriter, line: Line) -> None:
    """Call the method of a line's kind with its entries."""
    kind = line.pop("kind")
    if kind not in _METHODS:
        raise ValueError(f"kind={short(kind)} is unknown; choose one of {', '.join(_METHODS)}")
    check_line(kind, line)
    _METHODS[kind](writer, **line)
