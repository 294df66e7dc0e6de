"""Which tokens a round feeds: a part of the rules "kv" (the target) and "caches" (the draft).

Contract: `fed_once` takes the `Rows` of a record and reports to it. A verification feeds a row's
pending token and the drafts that it verifies, and a draft model is fed the pending token and all
drafts but the last, which only the decoder of a log may read as well. What no later forward looks
at is seldom missed by the other rules. Not known here: what caches held.
"""

import numpy as np

from specviz.checks.rows import Rows
from specviz.record.schema import MODELS, PHASES, Array

_TARGET, _DRAFT_MODEL = MODELS.index("target"), MODELS.index("draft")
_DRAFT, _VERIFY = PHASES.index("draft"), PHASES.index("verify")
_RULES = ("kv", "caches")  # by model


def fed_once(rows: Rows) -> None:
    """Check that a round feeds the pending token and the drafts, each once in a forward."""
    table = rows.table
    k = rows.trace.rows["drafts"].shape[1]
    drafted, verified = (np.minimum(table[name], k) for name in ("drafted", "verified"))
    is_active = table["gained"] > 0
    number = rows.trace.rows["round"]

    entry = rows.verified.entry
    ahead = _ahead(rows, entry, rows.verified.feeds)
    is_logged = np.isin(number, number[entry])  # the round's verification is in the record
    _all_are_fed(rows, _TARGET, "verify", entry, ahead, is_active & is_logged, verified)

    entry, feeds = _fed_to_draft(rows)
    ahead = _ahead(rows, entry, feeds)
    has_drafted = np.isin(np.arange(rows.size), entry) & (drafted > 0)
    # Heads on one state of the target propose all drafts without reading any.
    due = drafted - 1 if _reads_drafts(rows) else np.zeros_like(drafted)
    _all_are_fed(rows, _DRAFT_MODEL, "draft", entry, ahead, is_active & has_drafted, due)
    _none_is_fed_twice(rows)


def _reads_drafts(rows: Rows) -> bool:
    """Return whether what drafts is fed drafts, or mask entries in their places."""
    return bool(rows.trace.meta.get("draft_kv", "kept") != "none")


def _ahead(rows: Rows, entry: Array, feeds: Array) -> Array:
    """Return the column of each token that was fed (m,): 0 for the pending one, j + 1 for draft j.

    Committed tokens before the pending one have negative columns.
    """
    of_index = rows.trace.feeds["index"][feeds] - rows.table["length"][entry] + 1
    node = rows.trace.feeds["node"][feeds]
    found: Array = np.where(rows.branches.is_tree[entry] & (node > 0), node, of_index)
    return found


def _fed_to_draft(rows: Rows) -> tuple[Array, Array]:
    """Return entry of `rows` and of `feeds` of each token that the draft was fed in its phase."""
    feeds = rows.trace.feeds
    which = np.flatnonzero((feeds["phase"] == _DRAFT) & (feeds["model"] == _DRAFT_MODEL))
    entry = rows.trace.index.feed_rows[which]
    is_own = entry >= 0
    is_own &= np.append(rows.trace.rows["request"], -1)[entry] == feeds["request"][which]
    return entry[is_own], which[is_own]


def _all_are_fed(
    rows: Rows, model: int, phase: str, entry: Array, ahead: Array, due: Array, drafts: Array
) -> None:
    """Report tokens that were not fed, and drafts that were fed although they should not be.

    Args:
        entry: (m,) of each token that was fed; ahead: (m,) its column, see `_ahead`.
        due: bool (N,), the rows that should be fed.
        drafts: (N,), how many of their drafts should be.
    """
    k = rows.trace.rows["drafts"].shape[1]
    is_near = (ahead >= 0) & (ahead <= k)
    fed = np.zeros((rows.size, k + 1), bool)
    fed[entry[is_near], ahead[is_near]] = True
    wanted = np.arange(k + 1) <= drafts[:, None]
    if model == _DRAFT_MODEL and rows.branches.any and _reads_drafts(rows):
        # Of a tree, what has children. Other drafts may be read, too: they might have got some.
        has_children = _have_children(rows)
        is_tree = rows.branches.is_tree[:, None]
        wanted = np.where(is_tree, has_children, wanted)
        fed &= ~is_tree | has_children
    if model == _DRAFT_MODEL and "missing" in rows.trace.meta:
        # The decoder of a log may read its last draft at once, so that both caches have the same.
        fed &= np.arange(k + 1) != drafts[:, None] + 1
    for each, j in rows.each(due[:, None] & (wanted != fed)):
        name = f"draft {j}" if j else "the pending token"
        index_of = f"{name}, index {each.length - 1 + rows.branches.depths[each.Index, j]},"
        if wanted[each.Index, j]:
            expected, found = f"{index_of} should be fed", "it was not fed"
        else:
            expected = f"{drafts[each.Index]} drafts should be fed"
            found = f"{index_of} was fed too"
        rows.report(_RULES[model], phase, each, expected, found, model=model)


def _have_children(rows: Rows) -> Array:
    """Return which columns (N, K+1) a draft follows."""
    branches = rows.branches
    is_drafted = np.arange(branches.parents.shape[1]) < branches.drafted
    found = np.zeros((rows.size, branches.parents.shape[1] + 1), bool)
    entry, j = np.nonzero(is_drafted)
    found[entry, branches.parents[entry, j]] = True
    return found


def _none_is_fed_twice(rows: Rows) -> None:
    feeds = rows.trace.feeds
    # Siblings of a tree share an index.
    names = ("round", "phase", "model", "step", "row", "request", "index", "node")
    columns = [feeds[name] for name in names]
    order = np.lexsort(columns)
    same = np.ones(max(order.size - 1, 0), bool)
    for column in columns:
        same &= np.diff(column[order].astype(np.int64)) == 0
    for k in order[1:][same].tolist():
        # A draft model that is always fed two tokens is fed that of a text of one token twice.
        if feeds["index"][k] == 0 and feeds["phase"][k] == _DRAFT:
            continue
        stage = int(feeds["round"][k]) * len(PHASES) + int(feeds["phase"][k])
        model = int(feeds["model"][k])
        rows.findings.add(
            _RULES[model], stage, feeds["row"][k], feeds["request"][k],
            f"index {feeds['index'][k]} should be fed once in a forward", "it was fed twice",
            model=model, slots=[feeds["slot"][k]],
        )  # fmt: skip
