"""What layers with a window see: the last tokens of a row, or those of the query's own chunk.

Contract: it follows from the slots that a query may attend to at all, by counting them, so that
padding and holes change nothing. Not known here: what a record says that they saw.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from specviz.record.index import RecordIndex
from specviz.record.schema import Array, Table

CHUNKED = "chunked_attention"


def window_of(meta: Mapping[str, Any], model: str) -> tuple[str, int] | None:
    """Return type and width, in tokens, of a model's layers with a window; None without any.

    Also None where layers have windows of several widths, since a record then says nothing of them.
    """
    if f"windows.{model}" in meta.get("unrecorded", ()):
        return None
    return next(iter(meta.get("windows", {}).get(model, {}).items()), None)


def window_offsets(index: RecordIndex, feeds: Table, which: Array, kind: str, width: int) -> Array:
    """Return how many slots behind its first one each query's (n,) window should begin.

    Args:
        index, feeds: of the record.
        which: the entries of `feeds`, (n,).
        kind, width: see `window_of`.
    """
    start = feeds["visible_start"][which]
    count = feeds["visible_stop"][which] - start
    holed = np.flatnonzero(index.has_holes[which])
    ranks = np.zeros((0, 0), np.int64)
    if holed.size:
        seen = index.visible(which[holed])
        count[holed] = seen.sum(axis=1)
        ranks = np.where(seen, seen.cumsum(axis=1) - 1, -1)
    # The place of the window's first token among all that a query may see.
    first = (count - 1) // width * width if kind == CHUNKED else count - width
    found: Array = np.maximum(first, 0)
    if holed.size:
        slot = (ranks == found[holed, None]).argmax(axis=1)
        found[holed] = slot - start[holed]
    return found
