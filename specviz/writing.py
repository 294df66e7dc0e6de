"""Files and folders that are there whole or not at all: written beside their place, and renamed."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def write(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a file, whole or not at all; returns its path. Raises OSError that names it and the remedy."""
    with beside(Path(path)) as partial:
        partial.write_bytes(content)
    return Path(path)


@contextmanager
def beside(path: Path, *, alone: bool = False) -> Iterator[Path]:
    """A place to write to, which takes the name `path` if all goes well and is removed if not. `alone`: no other process writes to `path`,
    so that the place may be the same each time, and what a killed process left there is written over.

    Raises OSError that names the file and the remedy.
    """
    partial = path.with_name(f"{path.name}.partial" if alone else f"{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"{path}: cannot be written ({why}); choose a file in a folder that exists, with room left") from error
    finally:
        partial.unlink(missing_ok=True)


def write_folder(path: Path, fill: Callable[[Path], object]) -> None:
    """Let `fill` write a folder, which takes the place of the one at `path` when it is complete."""
    partial, old = path.with_name(f"{path.name}.partial"), path.with_name(f"{path.name}.old")
    for leftover in (partial, old):
        shutil.rmtree(leftover, ignore_errors=True)
    fill(partial)
    if path.exists():
        path.rename(old)
    partial.rename(path)
    shutil.rmtree(old, ignore_errors=True)
