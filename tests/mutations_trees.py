"""Mutations of what only drafts that branch have: branches, paths and compacting moves."""

import numpy as np
from mutations import ACCEPT, VERIFY, Mutation, edited, without

from specviz.checks.branches import Branches
from specviz.record.trace import Trace


def compacts(trace: Trace) -> np.ndarray:
    """Moves of accepted drafts of rows that go on, whose K/V the target's next round reads."""
    moves, rows = trace.moves, trace.rows
    entry = trace.index.find_rows(moves["round"], moves["to_row"])
    goes_on = np.append(rows["finished"] == 0, False)[entry]
    return np.array((moves["phase"] == ACCEPT) & (moves["model"] == 0) & goes_on)


def lost(trace: Trace, entry: int) -> Trace:
    return without(trace, "moves", entry)


def further(trace: Trace, entry: int) -> Trace:
    return edited(trace, "moves", entry, to_slot=trace.moves["to_slot"][entry] + 1)


def has_other_child(trace: Trace) -> np.ndarray:
    """Entries of `rows` whose first accepted draft has a verified sibling."""
    return np.array([other_child(trace, i) >= 0 for i in range(trace.rows["round"].size)])


def other_child(trace: Trace, entry: int) -> int:
    """A draft beside the first accepted one, -1 for none."""
    rows, branches = trace.rows, Branches(trace)
    if rows["accepted"][entry] < 1 or rows["gained"][entry] < 1:
        return -1
    number = np.arange(rows["parents"].shape[1])
    beside = (branches.parents[entry] == 0) & (number < rows["verified"][entry])
    found = np.flatnonzero(beside & (number != rows["path"][entry, 0]))
    return int(found[0]) if found.size and branches.is_tree[entry] else -1


def other_path(trace: Trace, entry: int) -> Trace:
    """Say that the sibling was accepted, with nothing behind it."""
    path = trace.rows["path"][entry].copy()
    path[0] = other_child(trace, entry)
    return edited(trace, "rows", entry, path=path)


def target_drafts(trace: Trace, *, hidden: bool) -> np.ndarray:
    """Feeds of the target's drafts of trees, with something hidden from them or nothing."""
    feeds = trace.feeds
    holes = np.bincount(trace.holes["feed"], minlength=feeds["slot"].size)
    is_tree = np.append(Branches(trace).is_tree, False)[trace.index.feed_rows]
    gained = np.append(trace.rows["gained"], 0)[trace.index.feed_rows]
    of_target = (feeds["phase"] == VERIFY) & (feeds["model"] == 0) & (gained > 0)
    return np.array(of_target & is_tree & ((holes > 0) == hidden) & (feeds["node"] > 0))


def sees_sibling(trace: Trace) -> np.ndarray:
    """Drafts from which what stands beside their branch is hidden."""
    return target_drafts(trace, hidden=True) & (trace.feeds["node"] > 1)


def without_hole(trace: Trace, entry: int) -> Trace:
    """Show the last thing that was hidden from a query."""
    return without(trace, "holes", int(np.flatnonzero(trace.holes["feed"] == entry)[-1]))


def without_ancestor(trace: Trace, entry: int) -> Trace:
    """Let a query of a draft see nothing of its own branch but itself: not its parent."""
    slot = trace.feeds["slot"][entry]
    return edited(trace, "feeds", entry, visible_start=slot, visible_stop=slot + 1)


def is_whole(trace: Trace) -> np.ndarray:
    """Drafts that attend to one block of slots."""
    return target_drafts(trace, hidden=False)


MOVED = "a compacting move of a row that goes on"
SIBLING = "an accepted draft that has a sibling"
MUTATIONS = (
    Mutation("a compacting move lost", lost, ("kv",), compacts, MOVED),
    Mutation("a compacting move too far", further, ("kv", "rectangle"), compacts, MOVED),
    Mutation("another branch accepted", other_path, ("acceptance",), has_other_child, SIBLING),
    Mutation("a sibling seen", without_hole, ("mask",), sees_sibling, "a draft beside its branch"),
    Mutation("the branch unseen", without_ancestor, ("mask",), is_whole, "a draft of a tree"),
)
