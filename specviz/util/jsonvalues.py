"""Read the values of a JSON file, be it one value a line or one value as a whole.

Contract: a path goes in, values and their places come out. Not known here: what they mean.
"""

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specviz.util.validate import is_int, shown_path


def json_values(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield each value with its place, such as "line 3 of a.jsonl".

    The entries of a list are values of their own, unless they are ints.

    Raises:
        ValueError: the file is not UTF-8, or not JSON. The message names the line.
    """
    shown = shown_path(path)
    content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"line {number} of {shown} is not UTF-8; save the file in that encoding"
        ) from None
    # Not str.splitlines, which also splits at characters inside a text, such as U+2028.
    numbered = enumerate(text.split("\n"), 1)
    lines = [(f"line {number} of {shown}", line) for number, line in numbered if line.strip()]
    if len(lines) > 1 and not _is_json(lines[0][1]) and _is_json(text):
        lines = [(shown, text)]
    for where, line in lines:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            raise ValueError(f"{where} is not JSON; write one JSON object a line") from None
        if isinstance(value, list) and value and not is_int(value[0]):
            yield from ((f"entry {i} of {where}", each) for i, each in enumerate(value, 1))
        elif value != [] or len(lines) > 1:
            yield where, value


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
