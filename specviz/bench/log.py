"""What has been measured so far, on disk: a line of JSON for each run, whole or not there, so that a kill costs the run that it hit.

The first line holds the conditions. A line counts once its end is written; half a line behind the last end is dropped.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from specviz.util.files import as_write_error, make_folder

Row = dict[str, Any]


class Log:
    """The rows of an unfinished benchmark. Use it in a `with` block; nobody else may write to the file meanwhile."""

    def __init__(self, path: Path, conditions: Mapping[str, Any], *, fresh: bool = False) -> None:
        """Open the file at `path`, or begin it, and the folder that it stands in.

        Args:
            conditions: what the rows were measured under, as plain values.
            fresh: begin anew, whatever the file holds.

        Raises:
            ValueError: it was written under other conditions, or is no such file.
            WriteError: it cannot be written.
        """
        self.path = path
        self.rows: list[Row] = []
        make_folder(path.parent)
        lines = [] if fresh or not path.is_file() else path.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        if whole:
            before, *self.rows = [self._read(number, line) for number, line in enumerate(whole, 1)]
            self._check(before, dict(conditions))
        with as_write_error(path):
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

    def add(self, row: Row) -> None:
        """Write a row; it is on the disk when this returns. Raises WriteError: the rows before it are kept."""
        self._write(row)
        self.rows.append(row)

    def _write(self, line: Mapping[str, Any]) -> None:
        content = json.dumps(line).encode() + b"\n"
        with as_write_error(
            self.path, "make room; what is measured is kept there, and the same command goes on"
        ):
            while content:  # a disk that becomes full takes a part; half a line does not count
                content = content[self._file.write(content) :]
            os.fsync(self._file.fileno())

    def _read(self, number: int, line: bytes) -> Row:
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise ValueError(
                f"line {number} of {self.path} is no row of a benchmark; delete the file, or begin anew (fresh=True, --fresh)"
            )
        return row

    def _check(self, before: Row, now: Row) -> None:
        now = json.loads(json.dumps(now))
        for name in [*now, *before]:
            if before.get(name) != now.get(name):
                raise ValueError(
                    f"{self.path} was begun with {name}={_short(before.get(name))}, and now it is {_short(now.get(name))}; go on "
                    "as it was begun, or begin anew (fresh=True, --fresh)"
                )


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
