"""Trees of drafts in a record: how deep each draft stands, which were accepted, where a row ends.

A table `rows` without the columns `parents` and `path`, as a result without a record has, counts as
one of chains. Where drafts are a chain that is verified whole, some columns follow from the others
(`chain_columns`): a file leaves them out, as files of version 1 did, and a reader computes them.

N entries of the table `rows`, K drafts.
"""

from collections.abc import Mapping

import numpy as np

from specviz.record.schema import COLUMNS, Array, Table

# By table, the columns that `chain_columns` computes.
DERIVED = {
    "rounds": ("capacity",),
    "rows": ("verified", "scores", "parents", "path"),
    "feeds": ("node", "window_offset"),
    "states": tuple(COLUMNS["states"]),
}


def branching(rows: Mapping[str, Array]) -> Array:
    """Return whether the drafts of each entry form another tree than a chain: bool (N,)."""
    if "parents" not in rows:
        return np.zeros(rows["drafted"].size, bool)
    number = np.arange(rows["parents"].shape[1])
    leaves_chain = rows["parents"] != number - 1  # (N, K)
    branches: Array = (leaves_chain & (number < rows["drafted"][:, None])).any(axis=1)
    return branches


def depths(parents: Array) -> Array:
    """Return how far behind the pending token each draft stands, 1 for its children: (N, K)."""
    entries = np.arange(len(parents))
    # Column 0 stands for the pending token; parents come before their children.
    found = np.zeros((len(parents), parents.shape[1] + 1), np.int64)
    for draft in range(parents.shape[1]):
        found[:, draft + 1] = found[entries, parents[:, draft] + 1] + 1
    return found[:, 1:]


def ancestors(parents: Array) -> Array:
    """Return the columns on each column's branch, itself included: bool (N, K+1, K+1).

    Column 0 is the pending token, column j + 1 draft j.
    """
    entries, k = parents.shape
    found = np.zeros((entries, k + 1, k + 1), bool)
    every = np.arange(entries)
    found[:, 0, 0] = True
    # A parent comes before its children, so one pass in order is enough.
    for j in range(k):
        found[:, j + 1] = found[every, parents[:, j] + 1]
        found[:, j + 1, j + 1] = True
    return found


def leaves(parents: Array, drafted: Array) -> Array:
    """Return on how many branches the drafts of each entry lie: those without children, (N,)."""
    count = parents.shape[1]
    is_draft = np.arange(count) < drafted[:, None]
    has_child = np.zeros((len(parents), count + 1), bool)
    entries, numbers = is_draft.nonzero()
    has_child[entries, parents[entries, numbers] + 1] = True
    return np.asarray((is_draft & ~has_child[:, 1:]).sum(axis=1))


def accepted_drafts(path: Array) -> Array:
    """Return which drafts were accepted, bool (N, K), given the paths (N, K)."""
    found = np.zeros(path.shape, bool)
    entries, places = (path >= 0).nonzero()
    found[entries, path[entries, places]] = True
    return found


def last_accepted(path: Array) -> Array:
    """Return the last accepted draft of each entry, -1 for none: (N,)."""
    # A path counts upwards, since a parent comes before its children.
    return np.asarray(path.max(axis=1, initial=-1))


def follows_accepted(rows: Mapping[str, Array]) -> Array:
    """Return whether all that each draft follows was accepted, bool (N, K).

    It is False where there is no draft.
    """
    parents = rows["parents"]
    known = np.ones((len(parents), parents.shape[1] + 1), bool)  # column 0: the pending token
    known[:, 1:] = accepted_drafts(rows["path"])
    is_draft = np.arange(parents.shape[1]) < rows["drafted"][:, None]
    return np.asarray(np.take_along_axis(known, parents + 1, axis=1) & is_draft)


def leaves_holes(rows: Mapping[str, Array]) -> Array:
    """Return whether each row goes on further behind than it has grown: bool (N,).

    Then its rejected drafts stay where they are as holes, and its accepted ones as well.
    """
    before = rows["pending"].astype(np.int64) - rows["start"]
    after = rows["pending_after"].astype(np.int64) - rows["start_after"]
    return np.asarray(after - before > rows["gained"])


def ends(rows: Mapping[str, Array], moved: Array) -> Array:
    """Return the slot of each row's last token after the acceptance, before rows move: (N,).

    It is the slot behind the row's accepted drafts. There may be holes between those where they
    stay in the columns of a tree.

    moved: bool (N,), whether accepted drafts of a row moved.
    """
    slots: Array = rows["pending"] + rows["gained"]
    # A row that has finished may be left as it is.
    stays = leaves_holes(rows) | ((rows["finished"] > 0) & ~moved)
    stay = np.flatnonzero(branching(rows) & stays & (rows["gained"] > 0))
    path = rows["path"][stay] if stay.size else np.zeros((0, 1), np.int32)
    # Where EOS or the budget ends the row, the last token is a draft itself.
    gained, accepted = rows["gained"][stay], rows["accepted"][stay]
    count = np.minimum(gained, accepted)
    last = np.take_along_axis(path, np.maximum(count - 1, 0)[:, None], axis=1)[:, 0]
    behind = np.where(count > 0, last + 1, 0) + (gained > accepted)
    slots[stay] = rows["pending"][stay] + behind
    return slots


def by_depth(rows: Mapping[str, Array]) -> tuple[Array, Array]:
    """Return of each entry how many drafts stand at each depth 1..D, and where one was reached.

    A depth is reached where the target read a draft there and accepted all that it follows. Both
    are (N, D), D being the largest depth; the second is bool.
    """
    number = np.arange(rows["parents"].shape[1])
    is_draft = number < rows["drafted"][:, None]
    is_reached = follows_accepted(rows) & (number < rows["verified"][:, None])
    depth = np.where(is_draft, depths(rows["parents"]), 0)
    counts = np.zeros((len(depth), int(depth.max(initial=0))), np.int64)
    reached = np.zeros(counts.shape, bool)
    for level in range(counts.shape[1]):
        counts[:, level] = (depth == level + 1).sum(axis=1)
        reached[:, level] = (is_reached & (depth == level + 1)).any(axis=1)
    return counts, reached


def expanded(rows: Mapping[str, Array]) -> Array:
    """Return how many drafts of each entry others follow, (N,)."""
    return np.asarray(rows["drafted"] - leaves(rows["parents"], rows["drafted"]))


def decided(rows: Mapping[str, Array], model: str, count: int) -> Array:
    """Return which of a model's `count` choices an acceptance went through, bool (N, count).

    Those of the target are its choices after the pending token and after each draft, those of the
    draft model its choices of each draft.
    """
    number = np.arange(count)
    if "path" not in rows:
        return np.asarray(number <= rows["accepted"][:, None])
    if model == "draft":
        return follows_accepted(rows)
    columns = np.ones((len(rows["path"]), count), bool)  # column 0 is the pending token
    columns[:, 1:] = accepted_drafts(rows["path"])
    return columns


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
        "feeds": {
            "node": nodes(rows, tables["feeds"]),
            "window_offset": np.zeros_like(tables["feeds"]["visible_start"]),
        },
        "states": {name: np.zeros(0, form.dtype) for name, form in COLUMNS["states"].items()},
    }


def nodes(rows: Mapping[str, Array], feeds: Mapping[str, Array]) -> Array:
    """Return for each feed 1 + the number of its draft, 0 for a committed or pending token.

    rows: sorted by round and row.
    """
    found = np.zeros(feeds["index"].size, np.int32)
    if rows["round"].size == 0:
        return found
    at = find(pair(rows["round"], rows["row"]), pair(feeds["round"], feeds["row"]))
    beyond = feeds["index"].astype(np.int64) - rows["length"][at] + 1
    is_draft = (at >= 0) & (rows["request"][at] == feeds["request"]) & (beyond > 0)
    found[is_draft] = beyond[is_draft]
    return found


def pair(high: Array, low: Array) -> Array:
    """Return one int64 key for two columns that are not negative."""
    return np.asarray(high.astype(np.int64) << 32 | low)


def find(keys: Array, wanted: Array) -> Array:
    """Return where each of `wanted` is in the sorted `keys`, -1 where it is not."""
    if keys.size == 0:
        return np.full(wanted.shape, -1)
    at = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    return np.where(keys[at] == wanted, at, -1)


def same_values(left: Array, right: Array) -> bool:
    """Return whether two columns of a record are equal, NaN included."""
    is_float = left.dtype == np.float32
    return bool(np.array_equal(left, right, equal_nan=is_float))
