"""Arguments of a `TraceWriter` as numpy arrays: lists, numpy arrays and torch tensors alike.

Contract: each function takes an argument and its name, and returns an array of known shape, or
raises a ValueError that names the argument, what was given and the remedy. Not known here: what
the arrays mean.
"""

from typing import Any

import numpy as np

from specviz.record.schema import Array
from specviz.util.validate import short

_MOST = 2**31 - 2
_LISTS = (list, tuple)


def plain(value: object) -> Any:
    """Return `value` with all tensors in it as numpy arrays, on whatever device they are."""
    if hasattr(value, "detach"):  # a tensor of torch, which this room does not import
        tensor = value.detach().cpu()
        # numpy has no bfloat16.
        return np.asarray(tensor.float() if "bfloat16" in str(tensor.dtype) else tensor)
    if isinstance(value, _LISTS) and any(hasattr(each, "__len__") for each in value):
        return [plain(each) for each in value]
    if isinstance(value, _LISTS) and any(hasattr(each, "detach") for each in value):
        return [plain(each).item() for each in value]
    return value


def as_array(name: str, value: object, kinds: str, what: str) -> Array:
    """Return `value` as an array of one of the dtype `kinds`; `what` says what it must be."""
    given = plain(value)
    problem = f"{name} must be {what}, got {short(value)}"
    try:
        array = np.asarray(given)
    except (ValueError, TypeError, OverflowError):
        raise ValueError(f"{problem}; pass a list, a numpy array or a tensor") from None
    if array.size == 0 and array.dtype.kind == "f":
        array = array.astype(np.int64)  # numpy's dtype of an empty list
    if array.dtype.kind not in kinds:
        raise ValueError(f"{problem}; pass a list, a numpy array or a tensor")
    return array


def integers(
    name: str, value: object, shape: tuple[int, ...], *, least: int = 0, most: int = _MOST
) -> Array:
    """Return `value` as int64 of this shape, in these limits."""
    array = as_array(name, value, "iu", f"ints of shape {shape}")
    _check_shape(name, array, shape, value)
    check_limits(name, array, least, most)
    return array.astype(np.int64)


def _check_shape(name: str, array: Array, shape: tuple[int, ...], value: object) -> None:
    if array.shape != shape:
        raise ValueError(
            f"{name} must have the shape {shape}, got {short(value)} of shape {array.shape}; "
            "pass one value for each entry"
        )


def count_of(name: str, value: object) -> int:
    """Return how many entries a list has. Raise ValueError where it is none."""
    array = as_array(name, value, "iu", "a list of ints")
    if array.ndim != 1:
        raise ValueError(f"{name} must be a list of ints, got {short(value)}; pass a list")
    return int(array.size)


def broadcast(name: str, array: Array, shape: tuple[int, ...]) -> Array:
    """Return an array of this shape. Raise ValueError where it does not fit."""
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(
            f"{name} must have the shape {shape}, got {array.shape}; pass one value for each entry"
        ) from None


def check_limits(name: str, values: Array, least: int, most: int) -> None:
    """Raise ValueError unless all `values` are in these limits."""
    outside = values[(values < least) | (values > most)]
    if outside.size:
        limits = f">= {least}" if most == _MOST else f"from {least} to {most}"
        raise ValueError(
            f"{name} must hold ints {limits}, got {outside.ravel()[0]}; "
            "leave out what is not known, and pass other values as they are"
        )


def booleans(name: str, value: object, shape: tuple[int, ...]) -> Array:
    """Return `value` as bool of this shape; 0 and 1 count, too."""
    array = as_array(name, value, "biu", f"bools of shape {shape}")
    _check_shape(name, array, shape, value)
    if array.dtype.kind != "b":
        check_limits(name, array, 0, 1)
    return array.astype(bool)


def filled(name: str, value: object, rows: int, width: int, fill: float) -> Array:
    """Return one list of numbers a row as an array (rows, w), with `fill` behind short ones.

    w is at most `width`, and no larger than the longest list: a file may claim any width. The dtype
    is int64 where `fill` is an int, else float64. None stands for NaN, "-inf" for minus infinity.
    """
    given = plain(value)
    is_float = isinstance(fill, float)
    noun = "numbers" if is_float else "ints"
    problem = f"{name} must be {rows} lists of up to {width} {noun}, got {short(value)}"
    if not isinstance(given, (*_LISTS, np.ndarray)) or len(given) != rows:
        raise ValueError(f"{problem}; pass one list for each row")
    found = []
    for i, each in enumerate(given):
        row = _numbers(each, is_float)
        if row is None or row.ndim != 1 or (row.size > width and (row[width:] != fill).any()):
            raise ValueError(f"{problem}; {name}[{i}] is {short(each)}")
        found.append(row[:width])
    array = np.full((rows, max((row.size for row in found), default=0)), fill)
    for i, row in enumerate(found):
        array[i, : row.size] = row
    return array


def _numbers(values: Any, is_float: bool) -> Array | None:
    """Return a list of numbers as an array, None if it is none."""
    if is_float and isinstance(values, _LISTS):
        values = [_number(each) for each in values]
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, OverflowError):
        return None
    if array.size == 0:
        return array.astype(np.int64).reshape(-1)
    if array.dtype.kind not in ("iuf" if is_float else "iu"):
        return None
    return array


def _number(value: object) -> Any:
    if value is None:
        return np.nan
    return -np.inf if isinstance(value, str) and value == "-inf" else value


def rectangle(name: str, value: object) -> Array:
    """Return ints of each row as int64 (b, q), or (n,) as given; -1 behind short rows."""
    given = plain(value)
    is_lists = isinstance(given, _LISTS) and bool(given)
    if is_lists and all(isinstance(each, (*_LISTS, np.ndarray)) for each in given):
        width = max(len(each) for each in given)
        return filled(name, given, len(given), width, -1)
    array = as_array(name, given, "iu", "ints of shape (rows, tokens)")
    if array.ndim not in (1, 2):
        raise ValueError(
            f"{name} must have the shape (rows, tokens) or (tokens,), got {short(value)}; "
            "pass one row of tokens for each row of the batch"
        )
    return array.astype(np.int64)
