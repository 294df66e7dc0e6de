"""The file of a log, read as a record.

Each line is given to a `TraceWriter`, so that a file is checked by the same rules as the calls that
write one. What is wrong is one sentence with the number of the line.
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from specviz.record.given import ABOUT, RoundEnd
from specviz.record.schema import TraceError
from specviz.record.trace import Trace
from specviz.record.writer import VERSION, Line, TraceWriter
from specviz.util.files import is_file
from specviz.util.validate import require_path, short, shown_path

SUFFIX = ".jsonl"
_CALLS: dict[str, Callable[..., Any]] = {
    "request": TraceWriter.add_request,
    "texts": TraceWriter.add_texts,
    "forward": TraceWriter.forward,
    "move": TraceWriter.move,
    "round": lambda writer, **entries: writer.round(RoundEnd(**entries)),
}
_NOT_IN_A_HEADER = ("self", "prompts", "budget", "tokenizer", "about", "path")


def _names(call: Callable[..., Any]) -> dict[str, bool]:
    """Return the names of a call's arguments, and whether each must be given."""
    found = signature(call).parameters.values()
    return {each.name: each.default is Parameter.empty for each in found if each.name != "self"}


# {kind of a line: {entry: whether it must be there}}
ENTRIES = {kind: _names(call) for kind, call in _CALLS.items() if kind != "round"}
ENTRIES["round"] = {each.name: each.default is MISSING for each in fields(RoundEnd)}
ENTRIES["header"] = {"version": True, **dict.fromkeys(ABOUT, False)}
ENTRIES["header"] |= {
    name: needed for name, needed in _names(TraceWriter).items() if name not in _NOT_IN_A_HEADER
}


def read_log(path: str | os.PathLike[str]) -> Trace:
    """Read the log of any engine: a file that `TraceWriter` or another program has written.

    docs/debug.md describes the file. One that ends early is read up to its last complete round.

    Raises:
        TraceError: the file cannot be read or holds no valid log; names file, line and remedy.
        ValueError: `path` cannot be a path.
    """
    place = require_path("path", path)
    try:
        if not is_file(place):
            raise TraceError("cannot be read (there is no such file); choose a log")
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
    for number, line in _lines(path):
        try:
            kind = _checked(line, is_first=writer is None)
            if writer is None:
                about = {name: line.pop(name) for name in ABOUT if name in line}
                writer = TraceWriter(**line, about=about)
            else:
                _CALLS[kind](writer, **line)
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


def _checked(line: Line, *, is_first: bool) -> str:
    """Remove the kind of a line and return it, if the line has the entries of that kind."""
    kind: str = line.pop("kind")
    if is_first and kind != "header":
        raise ValueError(f"kind must be 'header', got {short(kind)}; begin with the header")
    if not is_first and kind not in _CALLS:
        raise ValueError(f"kind={short(kind)} is unknown; choose one of {', '.join(_CALLS)}")
    for name, value in line.items():
        if value is None and name != "drafter":
            raise ValueError(f"{name} must have a value, got null; leave out what is not known")
        if name not in ENTRIES[kind]:
            raise ValueError(
                f"{short(name)} is unknown in a {kind}; choose from {', '.join(ENTRIES[kind])}"
            )
    for name, is_needed in ENTRIES[kind].items():
        if is_needed and name not in line:
            raise ValueError(f"{name} must be given in a {kind}, got nothing; add it")
    if kind == "header":
        version = line.pop("version")
        if version != VERSION or isinstance(version, bool):
            raise ValueError(
                f"version must be {VERSION}, got {short(version)}; install a newer specviz"
            )
    return kind


def _lines(path: Path) -> Iterator[tuple[int, Line]]:
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
