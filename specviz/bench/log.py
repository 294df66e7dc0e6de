"""What has been measured so far, on disk: one line of JSON a run, so that a kill costs one run.

The first line holds the conditions. A line counts once its end is written; half a line after the
last end is dropped.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from specviz.util.files import as_write_error, make_folder

Measurement = dict[str, Any]  # the cell, the repetition, and the outcome of one run


def cell_key(cell: Mapping[str, object]) -> str:
    """Return a cell's plain values as text, which are the same in memory and read from a log."""
    return json.dumps(cell, sort_keys=True)


def key_of(measurement: Measurement) -> tuple[str, int]:
    """Return what finds the run that made this measurement: its cell and repetition."""
    return cell_key(measurement["cell"]), measurement["repetition"]


class Log:
    """The measurements of an unfinished benchmark.

    Use it in a `with` block. No other process may write to the file meanwhile.
    """

    def __init__(self, path: Path, conditions: Mapping[str, Any], *, fresh: bool = False) -> None:
        """Open the file at `path`, or create it with its folder.

        Args:
            conditions: what all measurements share, as plain values.
            fresh: discard what the file holds.

        Raises:
            ValueError: the file was written under other conditions, or is not a log.
            WriteError: it cannot be written.
        """
        self.path = path
        self.measurements: list[Measurement] = []
        make_folder(path.parent)
        lines = []
        if path.is_file() and not fresh:
            lines = path.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        if whole:
            parsed = [self._parse(number, line) for number, line in enumerate(whole, 1)]
            self._check(parsed[0], dict(conditions))
            self.measurements = parsed[1:]
        with as_write_error(path):
            # Unbuffered: what a kill leaves is what was written, line by line.
            self._file = path.open("r+b" if whole else "wb", buffering=0)
            self._file.truncate(sum(map(len, whole)))
            self._file.seek(0, os.SEEK_END)
        if not whole:
            self._write(dict(conditions))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, measurement: Measurement) -> None:
        """Write a measurement; it is on the disk when this returns.

        Raises WriteError: the measurements before it are kept.
        """
        self._write(measurement)
        self.measurements.append(measurement)

    def _write(self, line: Mapping[str, Any]) -> None:
        content = json.dumps(line).encode() + b"\n"
        remedy = "make room; measurements so far are kept there, and the same command goes on"
        with as_write_error(self.path, remedy):
            while content:  # a disk that becomes full takes a part
                content = content[self._file.write(content) :]
            os.fsync(self._file.fileno())

    def _parse(self, number: int, line: bytes) -> Measurement:
        try:
            measurement = json.loads(line)
        except ValueError:
            measurement = None
        if not isinstance(measurement, dict):
            raise ValueError(
                f"line {number} of {self.path} must be a JSON object of a benchmark; "
                "delete the file, or discard it (fresh=True, --fresh)"
            )
        return measurement

    def _check(self, before: Measurement, now: Measurement) -> None:
        now = json.loads(json.dumps(now))  # as they are read back: tuples become lists
        for name in [*now, *before]:
            if before.get(name) != now.get(name):
                raise ValueError(
                    f"{self.path} was begun with {name}={_short(before.get(name))}, "
                    f"and now it is {_short(now.get(name))}; "
                    "go on as it was begun, or discard it (fresh=True, --fresh)"
                )


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
