"""Checks of arguments.

Contract: each raises a ValueError that names the argument, what it must be, what was given and the
remedy. Plain values in, plain values out. Not known here: tensors and models.
"""

import math
import re
from collections.abc import Sequence
from numbers import Integral, Real
from typing import TypeGuard

MAX_SHOWN = 60  # characters of a value that an error message quotes


def is_int(value: object) -> TypeGuard[int]:
    """Whether `value` is an int, numpy's included. A bool is not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_real(value: object) -> TypeGuard[float]:
    """Whether `value` is a real number, numpy's included. A bool is not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_count(value: object) -> TypeGuard[int]:
    """Whether `value` is an int >= 0."""
    return is_int(value) and value >= 0


def is_share(value: object) -> TypeGuard[float]:
    """Whether `value` is a number from 0 to 1."""
    return is_real(value) and 0 <= value <= 1


def require_int(name: str, value: object, minimum: int = 1, remedy: str = "") -> int:
    """Return `value` as an int. Raise ValueError unless it is an int >= `minimum`."""
    if not is_int(value) or value < minimum:
        remedy = remedy or f"pass {minimum} or more"
        raise ValueError(f"{name} must be an int >= {minimum}, got {short(value)}; {remedy}")
    return int(value)


def require_ints(name: str, values: Sequence[object], minimum: int = 1) -> None:
    """Raise ValueError unless `values` holds one or more ints, all of them >= `minimum`."""
    if not values:
        raise ValueError(f"{name} is empty; name at least one")
    for i, value in enumerate(values):
        require_int(f"{name}[{i}]", value, minimum)


def require_positive(name: str, value: object) -> None:
    """Raise ValueError unless `value` is a finite number above 0."""
    if not is_real(value) or not math.isfinite(value) or value <= 0:
        raise ValueError(
            f"{name} must be a finite number > 0, got {short(value)}; pass a number above 0"
        )


def require_bool(name: str, value: object) -> None:
    """Raise ValueError unless `value` is a bool."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be a bool, got {short(value)}; pass True or False")


def require_one_of(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise ValueError if `value` is none of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}={short(value)} is unknown; choose one of {', '.join(choices)}")


def short(value: object) -> str:
    """Return the repr of `value` as an error message shows it: one line, at most 60 characters."""
    text = re.sub(r"\s*\n\s*", " ", repr(value))
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
