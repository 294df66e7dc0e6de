"""Columns of a record that follow from others wherever a row's drafts are a chain, verified whole.

A file leaves them out where they are as computed here, so that such a run takes no more room than
before they existed, and a reader computes them again. So do files of version 1, which lack them.
Contract: the tables' other columns have passed the checks of `validation`.
"""

from collections.abc import Mapping

import numpy as np

from specviz.record.schema import Array, Table

# By table, the columns that `chain_columns` computes.
DERIVED = {
    "rounds": ("capacity",),
    "rows": ("verified", "scores", "parents", "path"),
    "feeds": ("node",),
}


def chain_columns(tables: Mapping[str, Table], num_draft_tokens: int) -> dict[str, Table]:
    """Return the derived columns, by table, of a record whose drafts are chains, verified whole.

    Args:
        num_draft_tokens: K, the width of the table's columns of drafts.
    """
    rows = tables["rows"]
    drafted = rows["drafted"]
    number = np.arange(num_draft_tokens, dtype=np.int32)
    is_drafted = number < drafted[:, None]  # (N, K)
    is_accepted = number < rows["accepted"][:, None]
    rounds = tables["rounds"]["batch"].size
    capacity = np.bincount(rows["round"], weights=drafted, minlength=rounds)
    return {
        "rounds": {"capacity": capacity.astype(np.int32)},
        "rows": {
            "verified": drafted.copy(),
            "scores": np.full(is_drafted.shape, np.nan, np.float32),
            "parents": np.where(is_drafted, number - 1, -1).astype(np.int32),
            "path": np.where(is_accepted, number, -1).astype(np.int32),
        },
        "feeds": {"node": nodes(rows, tables["feeds"])},
    }


def nodes(rows: Mapping[str, Array], feeds: Mapping[str, Array]) -> Array:
    """Return for each feed 1 + the number of its draft, 0 for a committed or pending token.

    rows: sorted by round and row.
    """
    found = np.zeros(feeds["index"].size, np.int32)
    if rows["round"].size == 0:
        return found
    keys = rows["round"].astype(np.int64) << 32 | rows["row"]  # sorted
    wanted = feeds["round"].astype(np.int64) << 32 | feeds["row"]
    at = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    beyond = feeds["index"].astype(np.int64) - rows["length"][at] + 1
    is_draft = (keys[at] == wanted) & (rows["request"][at] == feeds["request"]) & (beyond > 0)
    found[is_draft] = beyond[is_draft]
    return found


def same_values(left: Array, right: Array) -> bool:
    """Return whether two columns of a record are equal, NaN included."""
    is_float = left.dtype == np.float32
    return bool(np.array_equal(left, right, equal_nan=is_float))
