"""Write files and folders whole or not at all: under another name first, which is then renamed.

Contract: what cannot be written, for lack of space, rights or a folder, raises a `WriteError` of
one sentence that names the path and the remedy.
"""

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from specviz.util.validate import require_path, shown_path

if TYPE_CHECKING:
    import pandas as pd

# What the conditions of a measurement keep of a run's meta data.
KEPT = ("device", "dtype", "versions", "created", "target", "draft")


class WriteError(OSError):
    """A file or folder cannot be written. What was there before is still whole."""


def write(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a file, whole or not at all. Returns its path.

    Raises:
        ValueError: `path` cannot be a path.
        WriteError: the file cannot be written.
    """
    place = require_path("path", path)
    with replacing(place) as partial:
        partial.write_bytes(content)
    return place


def check_writable(path: Path, *, folder: bool = False) -> None:
    """Raise WriteError unless a file, or a folder with files in it, can be written at `path`.

    Folders above it may be missing, if they can be made. Nothing is left behind. Call it before
    long work whose result goes there.
    """
    with as_write_error(path):
        place = _resolved(path)
        if not folder:
            _check_place(place)
            place = place.parent
        while not place.exists() and place != place.parent:
            place = place.parent
        # Try it: rights alone do not tell of a file system that is read-only.
        with tempfile.TemporaryFile(dir=place):
            pass


def _resolved(path: Path) -> Path:
    if "\0" in str(path):
        raise OSError("its name holds a null character")
    return path.resolve()


def is_file(path: Path) -> bool:
    """Return whether there is a file at `path`; not so for a name that no file can have."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_dir(path: Path) -> bool:
    """Return whether there is a folder at `path`; not so for a name that no folder can have."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _check_place(place: Path) -> None:
    """Raise OSError if something other than a file is there."""
    if place.exists() and not stat.S_ISREG(place.stat().st_mode):
        raise OSError("it is a folder or a device, not a file")


@contextmanager
def replacing(path: Path, *, alone: bool = False) -> Iterator[Path]:
    """Yield a path to write to. It replaces `path` at the end, or is removed after an error.

    A symbolic link at `path` stays one: its target is replaced.

    Args:
        path: the file to replace.
        alone: whether no other process writes to `path`. Then the yielded path is always the same,
            so a file that a killed process left there is overwritten.

    Raises:
        WriteError: the file cannot be written. Where `path` is a folder or a device, this is raised
            before anything is written.
    """
    with as_write_error(path):
        place = _resolved(path)
        _check_place(place)
    owner = "" if alone else f".{os.getpid()}"
    partial = place.with_name(f"{place.name}{owner}.partial")
    try:
        with as_write_error(path):
            yield partial
            partial.replace(place)
    finally:
        with suppress(OSError):  # without an error it is gone already
            partial.unlink()


def write_folder(path: Path, fill: Callable[[Path], object]) -> None:
    """Let `fill` write a folder, which replaces the one at `path` when it is complete.

    Raises WriteError.
    """
    partial = path.with_name(f"{path.name}.partial")
    old = path.with_name(f"{path.name}.old")
    # A full folder cannot be replaced in one step, as a file can: the old one steps aside first.
    if old.exists() and not path.exists():
        old.rename(path)  # a process was killed between the two renamings below
    for leftover in (partial, old):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        with as_write_error(path):
            fill(partial)
            if path.exists():
                path.rename(old)
            partial.rename(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def make_folder(path: Path) -> Path:
    """Make the folder at `path` and those above it, if missing. Return it. Raises WriteError."""
    with as_write_error(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def as_write_error(
    path: Path, remedy: str = "choose a file in a folder that exists, with room left"
) -> Iterator[None]:
    """Turn an error that keeps `path` from being written into a WriteError."""
    try:
        yield
    except WriteError:
        raise
    except (OSError, SafetensorError) as error:
        # safetensors reports a full disk by an error of its own, which has no strerror.
        message = str(error).removeprefix("Error while serializing: I/O error: ")
        reason = getattr(error, "strerror", None) or message
        raise WriteError(f"{shown_path(path)}: cannot be written ({reason}); {remedy}") from error


def conditions(meta: Mapping[str, Any], **asked: object) -> dict[str, object]:
    """Return a run's device, dtype, versions, date and models, and the settings in `asked`.

    No path is among them.
    """
    return {name: meta[name] for name in KEPT} | asked


def save_measured(
    table: "pd.DataFrame", conditions: Mapping[str, object], path: Path
) -> list[Path]:
    """Write `table` to `path` (CSV, five digits) and `conditions` beside it (JSON).

    Both are written whole, or neither. Returns both paths. Raises WriteError.
    """
    make_folder(path.parent)
    conditions_path = path.with_suffix(".json")
    with replacing(path) as partial:
        partial.write_bytes(table.to_csv(index=False, float_format="%.5g").encode())
        write(conditions_path, (json.dumps(conditions, indent=2) + "\n").encode())
    return [path, conditions_path]


def as_saved(table: "pd.DataFrame") -> "pd.DataFrame":
    """Return the table with the digits that `save_measured` writes."""
    floats = table.select_dtypes("float")
    return table.assign(**floats.map(lambda value: float(f"{value:.5g}")))
