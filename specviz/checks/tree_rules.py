"""How a row's drafts hang together: a part of the rules "drafts" and "acceptance".

Contract: `drafts_form_a_tree` takes the `Rows` of a record and reports to it. A chain is the tree
in which each draft follows the one before. Not known here: what a query saw of the tree, which is
in `forward_rules`.
"""

from typing import Any, TypeGuard

import numpy as np

from specviz.checks.rows import Rows
from specviz.record.schema import PHASES


def drafts_form_a_tree(rows: Rows) -> None:
    """Check that siblings differ, that feeds name the right draft, and that the path is one."""
    _siblings_differ(rows)
    _nodes_are_the_drafts(rows)
    _path_follows_parents(rows)
    _are_likely(rows)
    _are_judged_soundly(rows)


def _siblings_differ(rows: Rows) -> None:
    table = rows.trace.rows
    k = table["drafts"].shape[1]
    is_drafted = (np.arange(k) < rows.column("drafted")) & (rows.column("gained") > 0)
    for j in range(1, k):
        alike = (table["parents"][:, :j] == table["parents"][:, j : j + 1]) & is_drafted[:, :j]
        alike &= table["drafts"][:, :j] == table["drafts"][:, j : j + 1]
        for entry in rows.where(alike.any(1) & is_drafted[:, j]):
            first = int(alike[entry.Index].argmax())
            expected = (
                f"drafts {first + 1} and {j + 1} follow the same token, so they should differ"
            )
            rows.report("drafts", "draft", entry, expected, "they are the same token")


def _nodes_are_the_drafts(rows: Rows) -> None:
    """Check that a fed draft has its own token, and an index that follows from its depth."""
    feeds = rows.trace.feeds
    entry = rows.trace.index.feed_rows
    is_own = (entry >= 0) & (np.append(rows.trace.rows["request"], -1)[entry] == feeds["request"])
    k = rows.trace.rows["drafts"].shape[1]
    ahead = feeds["index"] - np.append(rows.table["length"], 0)[entry] + 1
    node = np.minimum(feeds["node"], k)
    due = np.append(rows.branches.depths, np.zeros((1, k + 1), np.int64), axis=0)[entry, node]
    # Committed tokens have node 0, whatever their index, and so has the pending one.
    is_wrong = np.where(node > 0, ahead != due, (ahead > 0) & (ahead <= k)) & is_own
    # What a draft follows that was not proposed in the end, the record does not say.
    is_dropped = (feeds["node"] > np.append(rows.table["drafted"], 0)[entry]) & (entry >= 0)
    is_wrong &= ~(is_dropped & np.append(rows.branches.is_tree, False)[entry])
    is_wrong &= feeds["phase"] < PHASES.index("accept")
    is_wrong &= np.append(rows.table["gained"], 0)[entry] > 0
    for i in np.flatnonzero(is_wrong).tolist():
        of_entry = rows.entry(int(entry[i]))
        name = f"draft {node[i]}" if node[i] else "a committed token"
        expected = f"index {feeds['index'][i]} should be that of {name}"
        found = f"it lies {ahead[i]} behind the pending token"
        phase = PHASES[feeds["phase"][i]]
        rows.report("drafts", phase, of_entry, expected, found, slots=[feeds["slot"][i]])


def _path_follows_parents(rows: Rows) -> None:
    table = rows.trace.rows
    k = table["path"].shape[1]
    if k == 0:
        return
    path = table["path"]
    every = np.arange(rows.size)[:, None]
    before = np.append(np.full((rows.size, 1), -1), path[:, :-1], axis=1)
    parent = np.where(path >= 0, table["parents"][every, np.maximum(path, 0)], -1)
    is_accepted = np.arange(k) < rows.column("accepted")
    is_wrong = np.where(is_accepted, (path < 0) | (parent != before), path >= 0)
    is_wrong |= is_accepted & (path >= rows.column("verified"))
    for entry, j in rows.each(is_wrong):
        i = entry.Index
        if is_accepted[i, j]:
            expected = f"accepted draft {j + 1} should follow the accepted one before it"
            found = f"the path names draft {path[i, j] + 1}"
        else:
            expected = f"the path should end after {entry.accepted} drafts"
            found = f"it goes on with draft {path[i, j] + 1}"
        rows.report("acceptance", "accept", entry, expected, found)


def _are_likely(rows: Rows) -> None:
    """Check that drafts of registered trees are the likeliest tokens, as many as may be taken."""
    meta, table = rows.trace.meta, rows.trace.rows
    options = meta.get("drafter_options")
    top, logprobs = table["draft_top_ids"], table["draft_top_logprobs"]
    k, count = top.shape[1:]
    if meta["sampling"] is not None or not isinstance(options, dict) or count == 0:
        return
    most = np.full(k, count + 1)  # how many candidates each draft is one of
    children, paths = options.get("children"), options.get("paths")
    if meta["drafter"] == "tree" and type(children) is int:
        most[:] = children
    if meta["drafter"] == "static_tree" and _are_paths(paths, k):
        most[:] = [path[-1] + 1 for path in paths[:k]]
    is_drafted = (np.arange(k) < rows.column("drafted")) & (rows.column("gained") > 0)
    is_judged = is_drafted & (most <= count) & np.any(np.nan_to_num(logprobs) != 0, axis=2)
    least = logprobs[:, np.arange(k), np.minimum(most, count) - 1]
    # Of equally likely tokens any may be the first.
    is_likely = (top == table["drafts"][:, :, None]) & (logprobs >= least[:, :, None])
    for entry, j in rows.each(is_judged & ~is_likely.any(2)):
        expected = f"draft {j + 1} should be one of the draft's {most[j]} likeliest tokens"
        found = f"it is {rows.token(table['drafts'][entry.Index, j])}"
        rows.report("drafts", "draft", entry, expected, found)


def _are_paths(paths: Any, count: int) -> TypeGuard[list[list[int]]]:
    """Return whether a header's `paths` names the ranks of at least so many drafts."""
    if not isinstance(paths, list) or len(paths) < count:
        return False
    return all(
        isinstance(path, list) and path and type(path[-1]) is int and 0 <= path[-1] < 2**31
        for path in paths
    )


def _are_judged_soundly(rows: Rows) -> None:
    """Check that drawn children are judged by q as drawn, likely ones by the target's own draw."""
    meta = rows.trace.meta
    options = meta.get("drafter_options")
    sampling = meta["sampling"] or {}
    if sampling.get("coupling") != "rejection" or not isinstance(options, dict):
        return
    judged_by, siblings = options.get("judged_by"), options.get("siblings")
    right = {"rest": "drawn", "each": "independent"}
    if judged_by != "first" and right.get(str(judged_by), siblings) == siblings:
        return
    # It holds for every round; the first one says it.
    for entry in rows.where((rows.table["round"] == 0) & rows.branches.is_tree):
        expected = "children should be judged so that the text is distributed as the target's"
        found = f"{siblings} children are judged_by={judged_by!r}, which favours some tokens"
        rows.report("acceptance", "accept", entry, expected, found)
