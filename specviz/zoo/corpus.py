"""The text that the embedded pair learns from: the sources of the installed standard library.

A *file* is one `.py` of the standard library. A *block* is one top-level piece of a file: the head
with its imports, a function or a class. A block is one document. It begins with `<bos>` and ends
with `<eos>`, so a model trained on blocks learns when a function is finished. Files are split by a
hash of their path, so the same tenth of them is held out on every machine.

Not known here: models. Licence of the text: PSF-2.0.
"""

import hashlib
import re
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HELD_OUT_TENTH = 0  # files whose path hash is 0 modulo 10
SKIPPED_FOLDERS = {
    "site-packages",
    "dist-packages",
    "__pycache__",
    "encodings",
    "pydoc_data",
    "lib2to3",
    "data",
}
TEST_FOLDERS = {"test", "tests", "idle_test"}

# A block starts at an unindented decorator, function or class. `split_blocks` joins decorators with
# what they decorate.
_BLOCK_START = re.compile(r"^(?=@|def |async def |class )", re.MULTILINE)


@dataclass(frozen=True)
class SourceFile:
    """One source file.

    Attributes:
        path: relative to the standard library.
        text: its content.
        held_out: whether training leaves it out.
        is_test: whether it belongs to a test suite.
    """

    path: str
    text: str
    held_out: bool
    is_test: bool

    @property
    def blocks(self) -> list[str]:
        """The file's top-level blocks in order, without surrounding blank lines."""
        return split_blocks(self.text)


def split_blocks(text: str) -> list[str]:
    """Cut Python source at its unindented decorators, functions and classes.

    Decorators stay together, and with what they decorate.
    """
    blocks: list[str] = []
    for piece in _BLOCK_START.split(text):
        piece = piece.strip("\n")
        if not piece.strip():
            continue
        if blocks and _only_decorators(blocks[-1]):
            blocks[-1] += "\n" + piece
        else:
            blocks.append(piece)
    return blocks


def _only_decorators(block: str) -> bool:
    return block.startswith("@") and not re.search(r"^(async def|def|class) ", block, re.MULTILINE)


def is_held_out(path: str) -> bool:
    """Return whether the file at this POSIX path is held out: a tenth, the same everywhere."""
    return int(hashlib.sha256(path.encode()).hexdigest(), 16) % 10 == HELD_OUT_TENTH


def read_corpus(root: str | Path | None = None) -> list[SourceFile]:
    """Return all usable sources below `root`, sorted by path.

    Character tables, generated help texts and deliberately broken test data are left out, as are
    files that are not UTF-8.

    Args:
        root: by default the running interpreter's standard library.

    Raises:
        FileNotFoundError: `root` holds no Python source.
    """
    folder = Path(root or sysconfig.get_path("stdlib"))
    files = list(_read_files(folder))
    if not files:
        raise FileNotFoundError(
            f"root={str(folder)!r} holds no Python source; name the folder of a standard library"
        )
    return files


def _read_files(folder: Path) -> Iterator[SourceFile]:
    for file in sorted(folder.rglob("*.py")):
        path = file.relative_to(folder)
        is_config = any(part.startswith("config-") for part in path.parts)
        if is_config or SKIPPED_FOLDERS & set(path.parts):
            continue
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if text.strip():
            name = path.as_posix()
            is_test = bool(TEST_FOLDERS & set(path.parts[:-1]))
            yield SourceFile(name, text, is_held_out(name), is_test)
