"""Rules about what a round feeds and what it moves: parts of "kv", "caches", "drafts", "rectangle".

A verification feeds a row's pending token and the drafts that it verifies. A draft model is fed the
pending token and all drafts but the last, which only the decoder of a log may read as well. A block
that is moved is K/V of a row's tokens, so it fits between the row's start and its pending slot;
what the copy takes along beside them does not belong in the record. Not known here: what caches
held.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from specviz.checks.table import RoundTable
from specviz.record.schema import MODELS, PHASES, Array, says_layout
from specviz.record.trees import pair

_TARGET, _DRAFT_MODEL = MODELS.index("target"), MODELS.index("draft")
_SCHEDULE, _DRAFT, _VERIFY, _ACCEPT, _SYNCHRONISE = range(len(PHASES))
_RULES = ("kv", "caches")  # by model


# ---- what is fed ----


def fed_once(t: RoundTable) -> None:
    """Check that a round feeds the pending token and the drafts, each once in a forward."""
    k = t.drafts.shape[1]
    drafted, verified = (np.minimum(count, k) for count in (t.drafted, t.verified))
    is_active = t.gained > 0
    entry = t.verified_feeds.entry
    is_logged = np.isin(t.round, t.round[entry])  # the round's verification is in the record
    fed = _fed(t, entry, t.verified_feeds.feeds)
    _all_are_fed(t, _TARGET, fed, is_active & is_logged, verified)

    feeds = t.trace.feeds
    which = np.flatnonzero((feeds["phase"] == _DRAFT) & (feeds["model"] == _DRAFT_MODEL))
    entry = t.entries_of(which)
    which, entry = which[entry >= 0], entry[entry >= 0]
    has_drafted = np.isin(t.every, entry) & (drafted > 0)
    # Heads on one state of the target propose all drafts without reading any, and a block has an
    # entry for each of them.
    unread = {"none": drafted, "masks": 0}.get(t.trace.meta.get("draft_kv", "kept"), 1)
    due = drafted - unread
    _all_are_fed(t, _DRAFT_MODEL, _fed(t, entry, which), is_active & has_drafted, due)
    _none_is_fed_twice(t)


def _reads_drafts(t: RoundTable) -> bool:
    """Return whether what drafts is fed drafts, or mask entries in their places."""
    return bool(t.trace.meta.get("draft_kv", "kept") != "none")


def _fed(t: RoundTable, entry: Array, feeds: Array) -> Array:
    """Return which columns were fed, bool (N, K+1): 0 for the pending token, j + 1 for draft j.

    feeds: entries of the table, (m,); entry: (m,) the entry of `rows` of each.
    """
    ahead = t.trace.feeds["index"][feeds] - t.length[entry] + 1
    node = t.trace.feeds["node"][feeds]
    column: Array = np.where(t.branches.is_tree[entry] & (node > 0), node, ahead)
    width = t.emitted.shape[1]
    found: Array = np.zeros((t.size, width), bool)
    is_near = (column >= 0) & (column < width)  # before it lie committed tokens
    found[entry[is_near], column[is_near]] = True
    return found


def _all_are_fed(t: RoundTable, model: int, fed: Array, due: Array, drafts: Array) -> None:
    """Report tokens that were not fed, and drafts that were fed although they should not be.

    Args:
        fed: see `_fed`; due: bool (N,), the rows that should be fed.
        drafts: (N,), how many of their drafts should be.
    """
    column = np.arange(t.emitted.shape[1])
    wanted: Array = column <= drafts[:, None]
    if model == _DRAFT_MODEL and t.branches.any and _reads_drafts(t):
        # Of a tree, what has children. Other drafts may be read, too: they might have got some.
        has_children = np.zeros(fed.shape, bool)
        entry, draft = np.nonzero(t.below(t.drafted))
        has_children[entry, t.branches.parents[entry, draft]] = True
        is_tree = t.branches.is_tree[:, None]
        wanted = np.where(is_tree, has_children, wanted)
        fed = fed & (~is_tree | has_children)
    if model == _DRAFT_MODEL and t.trace.meta.get("draft_kv") == "masks":
        fed = fed & wanted  # a block is as long as it is, however few drafts are taken from it
    if model == _DRAFT_MODEL and "missing" in t.trace.meta:
        # The decoder of a log may read its last draft at once, so that both caches have the same.
        fed = fed & (column != drafts[:, None] + 1)
    phase = "draft" if model == _DRAFT_MODEL else "verify"
    for each, j in t.each(due[:, None] & (wanted != fed)):
        name = f"draft {j}" if j else "the pending token"
        index_of = f"{name}, index {each.length - 1 + t.branches.depths[each.Index, j]},"
        expected, found = f"{index_of} should be fed", "it was not fed"
        if not wanted[each.Index, j]:
            expected = f"{drafts[each.Index]} drafts should be fed"
            found = f"{index_of} was fed too"
        t.report(_RULES[model], phase, each, expected, found, model=model)


def _none_is_fed_twice(t: RoundTable) -> None:
    feeds = t.trace.feeds
    # Siblings of a tree share an index.
    names = ("round", "phase", "model", "step", "row", "request", "index", "node")
    columns = [feeds[name] for name in names]
    order = np.lexsort(columns)
    same = np.ones(max(order.size - 1, 0), bool)
    for column in columns:
        same &= np.diff(column[order].astype(np.int64)) == 0
    for k in order[1:][same].tolist():
        # A draft model that always reads two tokens reads the only one of a one-token text twice.
        if feeds["index"][k] == 0 and feeds["phase"][k] == _DRAFT:
            continue
        model = int(feeds["model"][k])
        t.findings.add(
            _RULES[model], _stage(feeds, k), feeds["row"][k], feeds["request"][k],
            f"index {feeds['index'][k]} should be fed once in a forward", "it was fed twice",
            model=model, slots=[feeds["slot"][k]],
        )  # fmt: skip


def nodes_are_the_drafts(t: RoundTable) -> None:
    """Check that a fed draft has its own token, and an index that follows from its depth."""
    feeds = t.trace.feeds
    which = np.flatnonzero(feeds["phase"] < _ACCEPT)
    entry = t.entries_of(which)
    which, entry = which[entry >= 0], entry[entry >= 0]
    k = t.drafts.shape[1]
    ahead = feeds["index"][which] - t.length[entry] + 1
    own = feeds["node"][which]
    node = np.minimum(own, k)
    # Committed tokens have node 0, whatever their index, and so has the pending one.
    due = t.branches.depths[entry, node] + own - node  # a block goes on behind the drafts
    is_wrong = np.where(node > 0, ahead != due, (ahead > 0) & (ahead <= k))
    # The record does not say what a draft follows that was not proposed in the end.
    is_wrong &= ~((own > t.drafted[entry]) & t.branches.is_tree[entry])
    is_wrong &= t.gained[entry] > 0
    for i in np.flatnonzero(is_wrong).tolist():
        feed = int(which[i])
        name = f"draft {node[i]}" if node[i] else "a committed token"
        expected = f"index {feeds['index'][feed]} should be that of {name}"
        found = f"it lies {ahead[i]} behind the pending token"
        phase = PHASES[feeds["phase"][feed]]
        slots = [feeds["slot"][feed]]
        t.report("drafts", phase, t.entry(int(entry[i])), expected, found, slots=slots)


# ---- what is moved ----


def moves_fit(t: RoundTable) -> None:
    """Check that moved K/V is of a row's tokens: it fits between start and pending slot."""
    moves = t.trace.moves
    if moves["round"].size == 0 or not says_layout(t.trace.meta):
        return
    # Rows may trade places in several steps. Where a block stays is what the table `rows` says.
    onward = _moved_on(moves)
    stays = _is_last_step(moves)
    stays[list(onward)] = False
    entry = t.trace.index.find_rows(moves["round"], moves["to_row"])
    _blocks_fit(t, entry, stays & (entry >= 0))
    _waiting_rows_fit(t, stays & (entry < 0))
    for before, k in onward.items():
        due, length = int(moves["length"][k]), int(moves["length"][before])
        if length > due:
            request = int(t.request[entry[k]]) if entry[k] >= 0 else 0
            expected = f"{due} slots should be moved, as they are moved on in the same phase"
            _report_move(t, before, request, expected, f"{length} were")


def _is_last_step(moves: dict[str, Array]) -> Array:
    """Return which moves (m,) are the last into their row in their phase."""
    names = ("step", "to_row", "model", "phase", "round")
    order = np.lexsort([moves[name] for name in names])
    # Sorted: each is followed by the next step of the same row, if there is one.
    is_same = np.ones(max(order.size - 1, 0), bool)
    for name in names[1:]:
        is_same &= np.diff(moves[name][order].astype(np.int64)) == 0
    # Entries of the last step itself count alike.
    ends = np.append(~is_same, True)
    last = moves["step"][order[np.flatnonzero(ends)]]
    group = ends.cumsum() - ends
    found = np.zeros(order.size, bool)
    found[order] = moves["step"][order] == last[group]
    return found


def _moved_on(moves: dict[str, Array]) -> dict[int, int]:
    """Return the moves whose block is moved on in the same phase: {entry: the later entry}."""
    if not moves["step"].any():
        return {}
    names = ("round", "phase", "model")
    to = list(_places(moves, (*names, "to_row", "to_slot")))
    source = list(_places(moves, (*names, "from_row", "from_slot")))
    found = {}
    arrived: dict[tuple[int, ...], int] = {}
    order = np.argsort(moves["step"], kind="stable")
    firsts = np.flatnonzero(np.diff(moves["step"][order], prepend=-1))
    for step in np.split(order, firsts[1:]):
        for k in step.tolist():
            if source[k] in arrived:
                found[arrived[source[k]]] = k
        arrived |= {to[k]: k for k in step.tolist()}
    return found


def _places(moves: dict[str, Array], names: Iterable[str]) -> Iterator[tuple[int, ...]]:
    return zip(*(moves[name].tolist() for name in names), strict=True)


def _blocks_fit(t: RoundTable, entry: Array, stays: Array) -> None:
    """Check that blocks that stay in a row of the batch lie in its slots, and begin with it."""
    moves = t.trace.moves
    phase = moves["phase"]
    is_late = phase == _SYNCHRONISE
    start = np.where(is_late, t.start_after[entry], t.start[entry])
    end = np.where(is_late, t.pending_after[entry], t.pending[entry])
    # Accepted drafts of a tree move behind the slot of what was pending before the round.
    end = end + np.where(phase == _ACCEPT, t.gained[entry], 0)
    tokens = t.length[entry] + np.where(is_late, t.gained[entry], 0)
    length, first = (moves[name].astype(np.int64) for name in ("length", "to_slot"))
    # The draft's cache may have another layout, so only the target's blocks have their places. Nor
    # has K/V that is computed again in the same round.
    is_read = np.isin(pair(moves["round"], t.request[entry]), t.reads)
    is_placed = (moves["model"] == _TARGET) & ~is_read
    # Where a prompt is read after the move, in the same phase, the block may be of a row that left.
    is_own = ~is_read | (phase != _SCHEDULE)
    is_wrong = is_own & (length > np.maximum(end - start, tokens - 1))
    is_wrong |= is_placed & ((first < start) | (first + length > end))
    begins = (moves["from_row"] == moves["to_row"]) & is_late
    begins &= moves["from_slot"] == t.start[entry]
    is_wrong |= is_placed & begins & (first != start)
    for k in np.flatnonzero(stays & is_wrong).tolist():
        of_entry = t.entry(int(entry[k]))
        if t.has_finding("kv", PHASES[phase[k]], of_entry):
            continue
        expected = f"the row's K/V before the pending token takes slots {start[k]} to {end[k] - 1}"
        found = f"{length[k]} slots were moved to slot {first[k]} and behind it"
        t.report(
            "rectangle", PHASES[phase[k]], of_entry, expected, found,
            model=moves["model"][k], slots=[max(first[k] + length[k] - 1, 0)],
        )  # fmt: skip


def _waiting_rows_fit(t: RoundTable, stays: Array) -> None:
    """Check that blocks that stay in a row of the pool hold no more than its K/V."""
    pool, moves = t.trace.pool, t.trace.moves
    members = {}
    for number, row, request, length in zip(
        *(pool[name].tolist() for name in ("round", "row", "request", "length")), strict=True
    ):
        members[number, row] = request, length
    for k in np.flatnonzero(stays).tolist():
        place = int(moves["round"][k]), int(moves["to_row"][k])
        if place not in members:
            continue
        request, count = members[place]
        length = int(moves["length"][k])
        if length > count - 1 and length > t.widest[request]:
            expected = f"a row of {count} tokens should have K/V in {count - 1} slots"
            _report_move(t, k, request, expected, f"{length} slots were moved into it")


def _report_move(t: RoundTable, k: int, request: int, expected: str, found: str) -> None:
    """Report entry k of `moves`, unless K/V is known to be lost there."""
    moves = t.trace.moves
    stage = _stage(moves, k)
    if t.findings.has("kv", stage, moves["to_row"][k], request):
        return
    last = int(moves["to_slot"][k]) + int(moves["length"][k]) - 1
    t.findings.add(
        "rectangle", stage, moves["to_row"][k], request, expected, found,
        model=moves["model"][k], slots=[max(last, 0)],
    )  # fmt: skip


def _stage(table: dict[str, Array], k: int) -> int:
    return int(table["round"][k]) * len(PHASES) + int(table["phase"][k])
