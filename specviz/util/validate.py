"""Checks of arguments: each raises a ValueError that names the argument, the value and the remedy.

Contract: plain values in, plain values out. It knows no tensors and no models.
"""

import re
from numbers import Integral, Real

import numpy as np


def whole(name: str, value: object, least: int = 1) -> int:
    """Return `value` as an int of at least `least`, or raise ValueError."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(
            f"{name}={short(value)} is no whole number; pass an int of at least {least}"
        )
    if value < least:
        raise ValueError(f"{name}={value} is too small; pass at least {least}")
    return int(value)


def positive(name: str, value: object) -> None:
    """Raise ValueError unless `value` is a finite number above 0."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float | np.number)
        or not (np.isfinite(value) and value > 0)
    ):
        raise ValueError(f"{name}={short(value)} cannot be; pass a number above 0")


def is_count(value: object) -> bool:
    """Whether `value` is an int of at least 0."""
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= 0


def is_share(value: object) -> bool:
    """Whether `value` is a number from 0 to 1."""
    return not isinstance(value, bool) and isinstance(value, Real) and 0 <= float(value) <= 1


def require_bool(name: str, value: object) -> None:
    """Raise ValueError unless `value` is a bool."""
    if not isinstance(value, bool):
        raise ValueError(f"{name}={short(value)} is no bool; pass True or False")


def short(value: object) -> str:
    """Return the value as a message shows it: one line, at most 60 characters."""
    text = re.sub(r"\s*\n\s*", " ", repr(value))
    return text if len(text) <= 60 else text[:57] + "..."
