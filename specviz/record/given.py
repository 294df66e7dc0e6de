"""Arguments of a `TraceWriter` as numpy arrays: lists, numpy arrays and torch tensors alike.

Each function takes an argument's name and value, and raises a ValueError that says what it must be,
what was given and the remedy.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from specviz.record.builder import Seen, ranges_of
from specviz.record.check import MAX_LOGPROB
from specviz.record.schema import Array
from specviz.util.validate import is_int, short

MOST = 2**31 - 2
MOST_TOKENS = 2**31 - 1
_LISTS = (list, tuple)
_HIDDEN = -1e4  # an additive mask has 0 where a query sees, and far less where it does not
_PASS_ARRAY = "pass a list, a numpy array or a tensor"
_PASS_MASK = "pass a bool mask (rows, tokens, slots), or (start, stop) ranges for each token"


def plain(value: object) -> Any:
    """Return `value` with all tensors in it as numpy arrays, on whatever device they are."""
    if hasattr(value, "detach"):  # a tensor of torch, which this room does not import
        tensor = value.detach().cpu()
        # numpy has no bfloat16.
        return np.asarray(tensor.float() if "bfloat16" in str(tensor.dtype) else tensor)
    if isinstance(value, _LISTS):
        if any(hasattr(each, "__len__") for each in value):
            return [plain(each) for each in value]
        return [plain(each).item() if hasattr(each, "detach") else each for each in value]
    return value


def array(name: str, value: object, what: str, kinds: str = "iu") -> Array:
    """Return `value` as an array of one of the dtype `kinds`; `what` says what it must be."""
    try:
        found = np.asarray(plain(value))
    except (ValueError, TypeError, OverflowError):
        found = np.asarray(None)
    if found.size == 0 and found.dtype.kind == "f":
        found = found.astype(np.int64)  # numpy's dtype of an empty list
    if found.dtype.kind not in kinds:
        raise ValueError(f"{name} must be {what}, got {short(value)}; {_PASS_ARRAY}")
    return found


def ints(
    name: str,
    value: object,
    shape: tuple[int, ...],
    least: int = 0,
    most: int = MOST,
    like: str = "rows",
) -> Array:
    """Return `value` as int64 of this shape, which the argument `like` has, in these limits."""
    found = shaped(name, array(name, value, f"ints of shape {shape}"), shape, like)
    return limited(name, found, least, most).astype(np.int64)


def bools(name: str, value: object, shape: tuple[int, ...]) -> Array:
    """Return `value` as bool of this shape; 0 and 1 count, too."""
    found = shaped(name, array(name, value, f"bools of shape {shape}", "biu"), shape, "rows")
    return limited(name, found.astype(np.int64), 0, 1).astype(bool)


def shaped(
    name: str, values: Array, shape: tuple[int, ...], like: str, *, spread: bool = False
) -> Array:
    """Return `values` if they have the shape of `like`, or with `spread` can be broadcast to it."""
    if values.shape == shape:
        return values
    try:
        if spread:
            return np.broadcast_to(values, shape)
    except ValueError:
        pass
    raise ValueError(
        f"{name} must have the shape {shape}, got {short(values.tolist())} of shape "
        f"{values.shape}; pass one value for each entry of {like}"
    )


def limited(name: str, values: Array, least: int, most: int = MOST) -> Array:
    """Return `values` if all of them are in these limits."""
    outside = values[(values < least) | (values > most)]
    if outside.size:
        limits = f">= {least}" if most == MOST else f"from {least} to {most}"
        raise ValueError(
            f"{name} must hold ints {limits}, got {outside.ravel()[0]}; "
            "leave out what is not known, and pass other values as they are"
        )
    return values


def lists(name: str, value: object, rows: int, width: int, fill: float, most: int = MOST) -> Array:
    """Return one list of numbers a row as an array (rows, w), with `fill` behind short ones.

    w is at most `width`, and no larger than the longest list: a file may claim any width. The array
    has ints from -1 to `most`, or log-probabilities where `fill` is NaN. Of these, None stands for
    NaN and "-inf" for minus infinity.
    """
    given = plain(value)
    is_float = isinstance(fill, float)
    noun = "numbers" if is_float else "ints"
    problem = f"{name} must be {rows} lists of up to {width} {noun}, got {short(value)}"
    if not isinstance(given, (*_LISTS, np.ndarray)) or len(given) != rows:
        raise ValueError(f"{problem}; pass one list for each row")
    found = []
    for i, each in enumerate(given):
        what = f"a list of up to {width} {noun}"
        row = _floats(each) if is_float else array(f"{name}[{i}]", each, what)
        if row is None or row.ndim != 1 or (row[width:] != fill).any():
            raise ValueError(f"{problem}; {name}[{i}] is {short(each)}")
        found.append(row[:width])
    padded = np.full((rows, max((row.size for row in found), default=0)), fill)
    for i, row in enumerate(found):
        padded[i, : row.size] = row
    return _checked_logprobs(name, padded) if is_float else limited(name, padded, -1, most)


def candidates(name: str, value: Any, shape: tuple[int, int], most: int) -> tuple[Array, Array]:
    """Return ids and log-probabilities of leading candidates, (b, w, k) with w up to `shape[1]`."""
    what = f"(ids, logprobs), both of the shape {(*shape, 'candidates')}"
    problem = f"{name} must be {what}, got {short(value)}; pass as many candidates in each column"
    if not isinstance(value, _LISTS) or len(value) != 2:
        raise ValueError(problem)
    ids, logprobs = array(f"{name}[0]", value[0], what), _floats(plain(value[1]))
    if logprobs is None or ids.shape != logprobs.shape or len(ids) != shape[0]:
        raise ValueError(problem)
    if not ids.size:
        ids, logprobs = (each.reshape(shape[0], 0, 0) for each in (ids, logprobs))
    if ids.ndim != 3 or ids.shape[1] > shape[1]:
        raise ValueError(problem)
    limited(f"{name}[0]", ids, -1, most)
    return ids, _checked_logprobs(f"{name}[1]", logprobs)


def _floats(values: Any) -> Array | None:
    """Return numbers as float64; None stands for NaN, "-inf" for minus infinity."""
    try:
        return np.array(values, np.float64)
    except (ValueError, TypeError, OverflowError):
        return None


def _checked_logprobs(name: str, values: Array) -> Array:
    over = values[values > MAX_LOGPROB]
    if over.size:
        raise ValueError(
            f"{name} must hold log-probabilities <= 0, got {over[0]:.4g}; "
            "pass the logarithms of softmax outputs"
        )
    return values


def rectangle(name: str, value: object) -> Array:
    """Return ints of each row as int64 (b, q), or (n,) as given; -1 behind short rows."""
    given = plain(value)
    is_lists = isinstance(given, _LISTS) and bool(given)
    if is_lists and all(isinstance(each, (*_LISTS, np.ndarray)) for each in given):
        return lists(name, given, len(given), max(map(len, given)), -1)
    found = array(name, given, "ints of shape (rows, tokens)")
    if found.ndim not in (1, 2):
        raise ValueError(
            f"{name} must have the shape (rows, tokens) or (tokens,), got {short(value)}; "
            "pass one row of tokens for each row of the batch"
        )
    return found.astype(np.int64)


def seen(visible: object, picked: Array, slots: Array, *, packed: bool) -> Seen:
    """Return what the picked queries saw.

    Args:
        visible: see `TraceWriter.forward`.
        picked: bool (b, q), which of the queries count: m of them.
        slots: (m,), the slot that each of these writes.
        packed: whether the forward has one entry a token, so that q is 1.
    """
    given = plain(visible)
    try:
        mask = np.asarray(given)
    except (ValueError, TypeError, OverflowError):
        mask = np.asarray(None)
    kind = mask.dtype.kind
    is_flags = kind in "iu" and mask.ndim == 2 and not packed and bool((mask <= 1).all())
    if kind not in "bf" and not is_flags:
        return _seen_in_lists(given, picked, slots, packed)
    mask = mask > _HIDDEN if kind == "f" else mask.astype(bool)
    rows, width = picked.shape
    if mask.ndim == 4 and mask.shape[1] == 1:
        mask = mask[:, 0]
    if mask.ndim != 2 and (packed or mask.ndim != 3):
        shape = f"({rows}, slots)" if packed else f"({rows}, {width}, slots)"
        raise ValueError(f"visible must have the shape {shape}, got {mask.shape}; {_PASS_MASK}")
    is_of_rows = mask.ndim == 2  # what a row may see at all
    mask = mask[:, None] if is_of_rows else mask
    mask = shaped("visible", mask, (*picked.shape, mask.shape[-1]), "tokens", spread=True)[picked]
    if is_of_rows and not packed:
        # Models make such a mask causal themselves.
        mask = mask & (np.arange(mask.shape[1]) <= slots[:, None])
    return ranges_of(mask, slots)


def _seen_in_lists(given: Any, picked: Array, slots: Array, packed: bool) -> Seen:
    """Return the same of ranges, one (start, stop) or a list of them for each query."""
    rows, width = picked.shape
    if not hasattr(given, "__len__") or len(given) != rows:
        raise ValueError(f"visible must have {rows} entries, got {short(given)}; {_PASS_MASK}")
    found: list[list[tuple[int, int]]] = []
    for i, j in np.argwhere(picked).tolist():
        entries, name = given[i], f"visible[{i}]"
        if not packed:
            if not hasattr(entries, "__len__") or len(entries) < j + 1:
                raise ValueError(
                    f"{name} must have {width} entries, got {short(entries)}; {_PASS_MASK}"
                )
            entries, name = entries[j], f"{name}[{j}]"
        found.append(_pairs(name, entries))
    holes = []
    for query, pairs in enumerate(found):
        for (_, end), (begin, _) in pairwise(pairs):
            if begin > end:
                holes.append((query, end, begin))
    start, stop = slots.copy(), slots.copy()
    for query, pairs in enumerate(found):
        if pairs:
            start[query], stop[query] = pairs[0][0], pairs[-1][1]
    return Seen(start, stop, np.array(holes, np.int64).reshape(-1, 3))


def _pairs(name: str, entries: Any) -> list[tuple[int, int]]:
    """Return ascending ranges, given as one (start, stop) or a list of them."""
    entries = entries.tolist() if hasattr(entries, "tolist") else entries
    if isinstance(entries, _LISTS) and len(entries) == 2 and all(map(is_int, entries)):
        entries = [entries]
    pairs = []
    last = 0
    for each in entries if isinstance(entries, _LISTS) else [entries]:
        is_pair = isinstance(each, (*_LISTS, np.ndarray)) and len(each) == 2
        if not is_pair or not all(map(is_int, each)) or not last <= each[0] <= each[1] <= MOST + 1:
            raise ValueError(
                f"{name} must hold (start, stop) ranges in ascending order, got {short(entries)}; "
                "pass the first slot that the query saw and the one after the last"
            )
        last = int(each[1])
        pairs.append((int(each[0]), last))
    return pairs
