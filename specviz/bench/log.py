"""What has been measured so far, on disk: one line of JSON a run, so that a kill costs one run.

The first line holds the conditions. A line counts once its end is written; half a line after the
last end is dropped.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from specviz.util.files import as_write_error, make_folder

Measurement = dict[str, Any]  # the cell, the repetition, and the outcome of one run
DISCARD = "discard it (fresh=True, --fresh)"


def cell_key(cell: Mapping[str, object]) -> str:
    """Return a cell's plain values as text, which are the same in memory and read from a log."""
    return json.dumps(cell, sort_keys=True)


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
        make_folder(path.parent)
        lines = []
        if path.is_file() and not fresh:
            lines = path.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        now = json.loads(json.dumps(conditions))  # as they are read back: tuples become lists
        parsed = [self._parsed(number, line) for number, line in enumerate(whole, 1)]
        before, *self.measurements = parsed or [now]
        for name in [*now, *before]:
            if before.get(name) != now.get(name):
                raise ValueError(
                    f"{path} was begun with {name}={json.dumps(before.get(name)):.80}, and now it "
                    f"is {json.dumps(now.get(name)):.80}; go on as it was begun, or {DISCARD}"
                )
        with as_write_error(path):
            # Unbuffered: what a kill leaves is what was written, line by line.
            self._file = path.open("r+b" if whole else "wb", buffering=0)
            self._file.truncate(sum(map(len, whole)))
            self._file.seek(0, os.SEEK_END)
        if not whole:
            self._write(now)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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

    def _parsed(self, number: int, line: bytes) -> Measurement:
        try:
            measurement = json.loads(line)
        except ValueError:
            measurement = None
        if not isinstance(measurement, dict):
            raise ValueError(
                f"line {number} of {self.path} must be a JSON object of a benchmark; "
                f"delete the file, or {DISCARD}"
            )
        return measurement
