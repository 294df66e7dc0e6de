"""What queries saw: a mask, or ranges of slots, as start, stop and holes.

Contract: `sight` takes what a `TraceWriter` was given for m tokens and returns the columns
visible_start and visible_stop of the table `feeds`, and entries of the table `holes`, as `Trace`
describes them. Not known here: what the slots hold.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from specviz.record.log.arrays import broadcast, plain
from specviz.record.schema import Array
from specviz.util.validate import is_int, short

_HIDDEN = -1e4  # an additive mask has 0 where a query sees, and far less where it does not
_REMEDY = "pass a bool mask (rows, tokens, slots), or (start, stop) ranges for each token"


class Sight(NamedTuple):
    """What m queries saw: start (m,), stop (m,), and holes (h, 3): query, start, stop."""

    start: Array
    stop: Array
    holes: Array


def sight(visible: object, picked: Array, slots: Array, *, packed: bool) -> Sight:
    """Return what the picked queries saw.

    Args:
        visible: see `TraceWriter.forward`.
        picked: bool (b, q), which of the queries count: m of them.
        slots: (m,), the slot that each of these writes.
        packed: whether the forward has one entry a token, so that q is 1.
    """
    given = plain(visible)
    array = _regular(given)
    if array is not None and array.dtype.kind in "bf":
        return _ranges(_of_mask(array, picked, slots, packed), slots)
    is_flags = array is not None and array.ndim == 2 and not packed
    if array is not None and is_flags and array.dtype.kind in "iu" and (array <= 1).all():
        return _ranges(_of_mask(array.astype(bool), picked, slots, packed), slots)
    return _of_lists(given, picked, slots, packed)


def _regular(given: Any) -> Array | None:
    try:
        array = np.asarray(given)
    except (ValueError, TypeError, OverflowError):
        return None
    return array if array.dtype.kind in "biuf" else None


def _of_mask(array: Array, picked: Array, slots: Array, packed: bool) -> Array:
    """Return which slots each picked query saw, bool (m, T)."""
    mask = array if array.dtype.kind == "b" else array > _HIDDEN
    rows, width = picked.shape
    if packed:
        if mask.ndim != 2:
            raise _unfit(array.shape, f"({rows}, slots)")
        return broadcast("visible", mask, (rows, mask.shape[1]))[picked[:, 0]]
    if mask.ndim == 2:
        # The columns that a row may see at all. Models make such a mask causal themselves.
        of_row = broadcast("visible", mask, (rows, mask.shape[1]))[np.nonzero(picked)[0]]
        return np.asarray(of_row & (np.arange(mask.shape[1]) <= slots[:, None]))
    if mask.ndim == 4 and mask.shape[1] == 1:
        mask = mask[:, 0]
    if mask.ndim != 3:
        raise _unfit(array.shape, f"({rows}, {width}, slots)")
    return broadcast("visible", mask, (rows, width, mask.shape[2]))[picked]


def _unfit(found: tuple[int, ...], wanted: str) -> ValueError:
    return ValueError(f"visible must have the shape {wanted}, got {found}; {_REMEDY}")


def _ranges(mask: Array, slots: Array) -> Sight:
    """Return start, stop and holes of each line of a mask (m, T)."""
    width = mask.shape[1]
    any_seen = mask.any(axis=1)
    # Where a query saw nothing, the range is empty and lies at its own slot.
    start = np.where(any_seen, mask.argmax(axis=1) if width else 0, slots)
    stop = np.where(any_seen, width - (mask[:, ::-1].argmax(axis=1) if width else 0), slots)
    column = np.arange(width)
    hidden = ~mask & (column >= start[:, None]) & (column < stop[:, None])
    edges = np.diff(hidden.astype(np.int8), axis=1, prepend=0, append=0)
    query, first = np.nonzero(edges == 1)
    _, behind = np.nonzero(edges == -1)
    return Sight(start, stop, np.stack([query, first, behind], axis=1))


def _of_lists(given: Any, picked: Array, slots: Array, packed: bool) -> Sight:
    """Return the same of lists of (start, stop) pairs."""
    rows, width = picked.shape
    if not hasattr(given, "__len__") or len(given) != rows:
        raise ValueError(f"visible must have {rows} entries, got {short(given)}; {_REMEDY}")
    found: list[list[tuple[int, int]]] = []
    for i, j in np.argwhere(picked).tolist():
        entries = given[i]
        if not packed:
            if not hasattr(entries, "__len__") or len(entries) < j + 1:
                raise ValueError(
                    f"visible[{i}] must have {width} entries, got {short(entries)}; {_REMEDY}"
                )
            entries = entries[j]
        found.append(_pairs(f"visible[{i}]" + ("" if packed else f"[{j}]"), entries))
    start = np.array([p[0][0] if p else s for p, s in zip(found, slots, strict=True)], np.int64)
    stop = np.array([p[-1][1] if p else s for p, s in zip(found, slots, strict=True)], np.int64)
    holes = []
    for query, pairs in enumerate(found):
        for (_, end), (begin, _) in pairwise(pairs):
            if begin > end:
                holes.append((query, end, begin))
    return Sight(start, stop, np.array(holes, np.int64).reshape(-1, 3))


def _pairs(name: str, entries: Any) -> list[tuple[int, int]]:
    """Return ascending ranges, given as one (start, stop) or a list of them."""
    if hasattr(entries, "tolist"):
        entries = entries.tolist()
    if isinstance(entries, list | tuple) and len(entries) == 2 and all(map(is_int, entries)):
        entries = [entries]
    pairs = []
    last = 0
    for each in entries if isinstance(entries, list | tuple) else [entries]:
        is_pair = isinstance(each, list | tuple | np.ndarray) and len(each) == 2
        if not is_pair or not all(map(is_int, each)) or not last <= each[0] <= each[1] < 2**31:
            raise ValueError(
                f"{name} must hold (start, stop) ranges in ascending order, got {short(entries)}; "
                "pass the first slot that the query saw and the one after the last"
            )
        last = int(each[1])
        pairs.append((int(each[0]), last))
    return pairs
