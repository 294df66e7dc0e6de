"""Checks of arguments.

Contract: each raises a ValueError that names the argument, what it must be, what was given and the
remedy. Plain values in, plain values out. Not known here: tensors and models.
"""

import math
import os
import re
from collections.abc import Collection, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeGuard

MAX_SHOWN_PATH = 70  # characters of either end of a path
MAX_SHOWN = 60  # characters of a value that an error message quotes


def is_int(value: object) -> TypeGuard[int]:
    """Return whether `value` is an int, numpy's included. A bool is not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_real(value: object) -> TypeGuard[float]:
    """Return whether `value` is a real number, numpy's included. A bool is not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_count(value: object) -> TypeGuard[int]:
    """Return whether `value` is an int >= 0."""
    return is_int(value) and value >= 0


def is_share(value: object) -> TypeGuard[float]:
    """Return whether `value` is a number from 0 to 1."""
    return is_real(value) and 0 <= value <= 1


def is_finite(value: object) -> TypeGuard[float]:
    """Return whether `value` is a real number that a float can hold, neither infinite nor NaN."""
    try:
        return is_real(value) and math.isfinite(value)
    except OverflowError:  # an int beyond the floats
        return False


def is_list(value: object) -> TypeGuard[Sequence[Any]]:
    """Return whether `value` is a list, a tuple or another sequence, but not a text."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def is_one_of(value: object, choices: Collection[str]) -> bool:
    """Return whether `value` is one of these strings. An array or another object is not."""
    return isinstance(value, str) and value in choices


def require_int(
    name: str, value: object, minimum: int = 1, remedy: str = "", *, maximum: int | None = None
) -> int:
    """Return `value` as an int. Raise ValueError unless it is one in these limits."""
    if not is_int(value) or value < minimum:
        remedy = remedy or f"pass {minimum} or more"
        raise ValueError(f"{name} must be an int >= {minimum}, got {short(value)}; {remedy}")
    if maximum is not None and value > maximum:
        raise ValueError(
            f"{name} must be at most {maximum}, got {short(value)}; pass a smaller one"
        )
    return int(value)


def require_list(name: str, values: object, remedy: str = "pass a list, even of one") -> None:
    """Raise ValueError unless `values` is a sequence of one entry or more, and no text."""
    if not is_list(values):
        raise ValueError(f"{name} must be a list, got {short(values)}; {remedy}")
    if not len(values):
        raise ValueError(f"{name} is empty; name at least one")


def require_ints(
    name: str, values: object, minimum: int = 1, *, maximum: int | None = None
) -> None:
    """Raise ValueError unless `values` holds one or more ints, all of them in these limits."""
    require_list(name, values)
    assert is_list(values)
    for i, value in enumerate(values):
        require_int(f"{name}[{i}]", value, minimum, maximum=maximum)


def require_positive(name: str, value: object, *, maximum: float | None = None) -> None:
    """Raise ValueError unless `value` is a finite number above 0, up to `maximum`."""
    if not is_finite(value) or value <= 0:
        raise ValueError(
            f"{name} must be a finite number > 0, got {short(value)}; pass a number above 0"
        )
    if maximum is not None and value > maximum:
        raise ValueError(f"{name} must be at most {maximum:g}, got {short(value)}; pass less")


def require_bool(name: str, value: object) -> None:
    """Raise ValueError unless `value` is a bool."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be a bool, got {short(value)}; pass True or False")


def require_choice(name: str, value: object, choices: Collection[str]) -> str:
    """Return `value`. Raise ValueError unless it is one of the strings in `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}={short(value)} is unknown; choose one of {', '.join(choices)}")
    return value


def require_function(name: str, value: object, remedy: str) -> None:
    """Raise ValueError unless `value` can be called, and is not a class."""
    if not callable(value) or isinstance(value, type):
        raise ValueError(f"{name} must be a function, got {short(value)}; {remedy}")


def require_mapping(name: str, value: object, remedy: str) -> None:
    """Raise ValueError unless `value` is a dict or another mapping."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a dict, got {short(value)}; {remedy}")


def require_names(name: str, values: object) -> None:
    """Raise ValueError unless `values` is a collection of str, and no str itself."""
    usable = isinstance(values, Collection) and not isinstance(values, str)
    if isinstance(values, Collection):
        usable &= all(isinstance(value, str) for value in values)
    if not usable:
        raise ValueError(f"{name} must be a list of names, got {short(values)}; pass a list")


def require_str(name: str, value: object, remedy: str = "pass a str") -> str:
    """Return `value`. Raise ValueError unless it is a str."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a str, got {short(value)}; {remedy}")
    return value


def require_text(name: str, value: str) -> None:
    """Raise ValueError unless the text `value` has a character and can be encoded."""
    if not value:
        raise ValueError(f"{name}='' is empty; pass at least one character")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError(
            f"{name} must be valid Unicode, got {short(value)} with a lone surrogate; "
            "read the text as UTF-8 with errors='replace'"
        )


def require_path(name: str, value: object) -> Path:
    """Return `value` as a path. Raise ValueError unless it is a str or a path, and can be one."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str) or not path:
        raise ValueError(
            f"{name} must be the path of a file, got {short(value)}; pass a str or a Path"
        )
    return Path(path)


def require_kind(name: str, value: object, kind: type, remedy: str) -> None:
    """Raise ValueError unless `value` is an object of the class `kind`."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be a {kind.__name__}, got {type(value).__name__}; {remedy}")


def shown_path(path: object) -> str:
    """Return a path as an error message shows it, on one line: as it is, unless it is very long."""
    text = _shortened(path)
    return text if text.isprintable() and text == text.strip() else repr(text)


def quoted_path(path: object) -> str:
    """Return the repr of a path's text as an error message shows it, shortened if very long."""
    return repr(_shortened(path))


def _shortened(path: object) -> str:
    text = str(path)
    if len(text) > 2 * MAX_SHOWN_PATH:
        text = f"{text[:MAX_SHOWN_PATH]}...{text[-MAX_SHOWN_PATH:]}"
    return text


def short(value: object) -> str:
    """Return the repr of `value` as an error message shows it: one line, at most 60 characters."""
    try:
        text = repr(value)
    except Exception:  # of a foreign object, or of an int with too many digits
        text = f"<{type(value).__name__}>"
    text = re.sub(r"\s*\n\s*", " ", text)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
