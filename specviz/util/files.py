"""Files and folders that are there whole or not at all: written beside their place, and renamed.

Whatever cannot be written, for want of room, rights or a folder, ends in a `WriteError` of one sentence that names the path and the remedy.
"""

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors import SafetensorError

KEPT = (
    "device",
    "dtype",
    "versions",
    "created",
    "target",
    "draft",
)  # of a run's header, in the conditions of a measurement


class WriteError(OSError):
    """A file or folder that cannot be written; what was there before is still whole."""


def write(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a file, whole or not at all; returns its path. Raises WriteError."""
    with replacing(Path(path)) as partial:
        partial.write_bytes(content)
    return Path(path)


@contextmanager
def replacing(path: Path, *, alone: bool = False) -> Iterator[Path]:
    """A place to write to, which takes the name `path` if all goes well and is removed if not. `alone`: no other process writes to `path`,
    so that the place may be the same each time, and what a killed process left there is written over.

    A link at `path` stays one, and what it leads to is replaced. Raises WriteError, before anything is written where `path` is a folder or
    a device.
    """
    with as_write_error(path):
        place = path.resolve()
        if place.exists() and not stat.S_ISREG(place.stat().st_mode):
            raise OSError("it is a folder or a device, not a file")
    partial = place.with_name(
        f"{place.name}.partial" if alone else f"{place.name}.{os.getpid()}.partial"
    )
    try:
        with as_write_error(path):
            yield partial
            partial.replace(place)
    finally:
        with suppress(OSError):  # gone already when all went well
            partial.unlink()


def write_folder(path: Path, fill: Callable[[Path], object]) -> None:
    """Let `fill` write a folder, which takes the place of the one at `path` when it is complete. Raises WriteError."""
    partial, old = path.with_name(f"{path.name}.partial"), path.with_name(f"{path.name}.old")
    if old.exists() and not path.exists():
        old.rename(path)  # somebody was killed between the two renamings below
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
    """The folder at `path`, made with those above it where it is not there yet. Raises WriteError."""
    with as_write_error(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def as_write_error(
    path: Path, remedy: str = "choose a file in a folder that exists, with room left"
) -> Iterator[None]:
    """What keeps `path` from being written becomes a WriteError."""
    try:
        yield
    except WriteError:
        raise
    except (
        OSError,
        SafetensorError,
    ) as error:  # safetensors says with its own error that a disk is full
        why = getattr(error, "strerror", None) or str(error).removeprefix(
            "Error while serializing: I/O error: "
        )
        raise WriteError(f"{path}: cannot be written ({why}); {remedy}") from error


def conditions(meta: Mapping[str, Any], **asked: object) -> dict[str, object]:
    """What a run says of its device, dtype, versions, date and models, and what was asked of it. No path is among them."""
    return {name: meta[name] for name in KEPT} | asked


def save_measured(table: pd.DataFrame, conditions: Mapping[str, object], path: Path) -> list[Path]:
    """Write `table` to `path` (CSV, five digits) and `conditions` beside it (JSON), both whole or neither; returns both paths.

    Raises WriteError.
    """
    make_folder(path.parent)
    told = path.with_suffix(".json")
    with replacing(path) as partial:
        partial.write_bytes(table.to_csv(index=False, float_format="%.5g").encode())
        write(told, (json.dumps(conditions, indent=2) + "\n").encode())
    return [path, told]
