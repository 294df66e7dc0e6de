"""About twenty kinds of wrong values, and what a refusal of one has to look like.

Also which of the kinds a parameter may take after all, by short names ("int none").
"""

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import specviz as sv
from specviz.util.validate import short, shown_path

MOST_CHARACTERS = 400
NOWHERE = Path("/dev/null/nowhere.csv")  # cannot exist, nor can it be made


class WorkBeganError(BaseException):
    """Raised where a model would run. Not an Exception, so that no one catches it."""


def some_function(*_: object, **__: object) -> None:
    """A function where a value is wanted; calling it is work."""
    raise WorkBeganError


WRONG: dict[str, object] = {
    "None": None,
    "''": "",
    "'a'": "a",
    "lines": "a\nb",
    "0": 0,
    "-1": -1,
    "1.5": 1.5,
    "nan": float("nan"),
    "inf": float("inf"),
    "True": True,
    "[]": [],
    "{}": {},
    "object": object(),
    "huge": 10**400,
    "numpy int": np.int64(3),
    "array": np.array([1.0, 2.0]),
    "tensor": torch.tensor([1, 2]),
    "bytes": b"a",
    "function": some_function,
    "class": int,
    "path": NOWHERE,
    "nested": [[1], [2]],
}
INT = {"huge", "numpy int"}
KINDS: dict[str, set[str]] = {
    "none": {"None"},
    "bool": {"True"},
    "int": INT,
    "count": INT | {"0"},
    "small": {"numpy int"},
    "positive": {"1.5", "numpy int"},
    "number": {"1.5", "numpy int", "0"},
    "text": {"''", "'a'", "lines"},
    "word": {"'a'", "lines"},
    "file": {"'a'", "lines"},
    "array": {"array"},
    "object": {"object"},
    "any": set(WRONG),
}


def valid(kinds: str) -> set[str]:
    """The labels of the values that `kinds` allow: names of KINDS, or labels."""
    found: set[str] = set()
    for kind in kinds.split():
        found |= KINDS.get(kind, {kind})
    return found


def swept(call: Callable[..., object]) -> list[str]:
    """The parameters that can be named in a call."""
    skipped = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    if isinstance(call, type) and issubclass(call, Exception):
        return []
    found = inspect.signature(call).parameters
    return [name for name, each in found.items() if name != "self" and each.kind not in skipped]


def outcome(call: Callable[[], object], names: tuple[str, ...], value: object) -> str:
    """What is wrong with how `call` refuses `value`; "" if nothing is.

    It is "accepted" if the call returns or begins its work.
    """
    try:
        call()
    except WorkBeganError:
        return "accepted"
    except (ValueError, TypeError, OSError, IndexError, KeyError, ImportError) as error:
        return fault(error, names, value)
    except Exception as error:
        return f"raises {type(error).__name__}: {error}"
    return "accepted"


def fault(error: BaseException, names: tuple[str, ...], value: object) -> str:
    """What keeps an error from being the project's own sentence; "" if nothing does."""
    message = str(error)
    deepest = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    if not deepest.is_relative_to(Path(sv.__file__).parent):
        return f"raised in {deepest.name}: {message}"
    return fault_of_sentence(message, names, value)


def fault_of_sentence(message: str, names: tuple[str, ...], value: object) -> str:
    """What keeps a message from being the project's own sentence; "" if nothing does."""
    if "\n" in message or not message.partition("; ")[2]:
        return f"no sentence with a remedy: {message}"
    if len(message) >= MOST_CHARACTERS:
        return f"{len(message)} characters: {message}"
    named = any(name in message for name in names) or starts_with_path(message, value)
    if not named:
        return f"does not name {names[0]}: {message}"
    return "" if any(each in message for each in shown(value)) else f"hides the value: {message}"


def starts_with_path(message: str, value: object) -> bool:
    """Whether the sentence is about the path `value`, or about a folder above it."""
    if not isinstance(value, str | Path) or not str(value):
        return False
    places = (value, *Path(value).parents)
    return any(message.startswith(f"{shown_path(place)}: ") for place in places)


def shown(value: object) -> list[str]:
    """The ways in which a message may show a value: its repr's beginning, its kind, "empty"."""
    kind = type(value).__name__
    ways = [short(value)[:20], str(value)[:20] or "''", f"got {kind}", f"={kind}"]
    if isinstance(value, np.ndarray | torch.Tensor):
        value = value.tolist()
        ways.append(short(value))
    if isinstance(value, list) and value:
        ways.append(short(value[0]))  # a sentence may name an entry
    if isinstance(value, Path):
        ways.append(f"{value.parent}: ")
    if isinstance(value, list):
        ways += [f"({len(value)},", f"{len(value)} entries"]  # or the shape
    if isinstance(value, list | dict | str) and not value:
        ways += ["empty", "0 entries", "missing", "needs", "lacks", "must hold", "got None"]
    return ways
