"""Which slots each query of a forward saw, against those that it should have seen.

Contract: `Attention` reads a record and the frames of its replay. A query should see the slots that
hold K/V of its own row's tokens up to itself, and no other slot. Only queries that saw something
else are returned, so a valid run has none. Not known here: which rule is broken and since when,
which is what `check_invariants` finds, and how any of it is drawn.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from specviz.checks.branches import Branches
from specviz.record.replay import Frame, Slots
from specviz.record.schema import BONUS, DRAFTED, MODELS, PHASES, PROMPT, Array
from specviz.record.trace import Trace

Ranges = list[tuple[int, int]]  # [start, stop) of neighbouring slots
_SCHEDULE = PHASES.index("schedule")
_PAIRS = 2**20  # (query, slot) pairs that are compared at a time


@dataclass(frozen=True)
class WrongQueries:
    """Neighbouring queries of one row and forward that all saw the same wrong slots.

    Attributes:
        feed: entry of the table `feeds` of the first query; the others have the next indices of
            the same row.
        count: number of queries.
        leaks: slots that they saw although those hold no token of the row up to the query.
        holes: slots that they did not see although those hold such a token.
        lost: number of tokens up to the query whose K/V no slot holds.
    """

    feed: int
    count: int
    leaks: Ranges
    holes: Ranges
    lost: int


class Attention:
    """Judges what the queries of a record saw, one phase at a time."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._feeds = trace.feeds
        self._index = trace.index
        self._branches = Branches(trace)

    def wrong(self, frame: Frame, model: str) -> list[WrongQueries]:
        """Return the queries that saw wrong slots in the forwards of `model` in the frame's phase.

        Args:
            frame: the state after the phase. Queries of the phase "schedule" are judged by what
                their own prefill wrote, because the row may have moved since. All others are judged
                by what the frame's caches hold.
            model: "target" or "draft".
        """
        phase = PHASES.index(frame.phase)
        feeds = self._index.feeds_by_stage.at(frame.round * len(PHASES) + phase)
        feeds = feeds[self._feeds["model"][feeds] == MODELS.index(model)]
        # A prefilled row may move within this phase, so the frame no longer shows what was read.
        if phase == _SCHEDULE:
            row, held = self._held_by_prefill(feeds)
        else:
            row = _row_of_request(frame.requests, self._feeds["request"][feeds])
            width = max(
                int(self._trace.rounds["slots"][frame.round]) if model == "target" else 0,
                int(self._feeds["visible_stop"][feeds].max(initial=0)),
            )
            # Old copies may lie in slots that no forward of this phase reads.
            held = _held_by_cache(frame.target if model == "target" else frame.draft)[:, :width]
            feeds, row = feeds[row >= 0], row[row >= 0]
        nodes = self._held_nodes(feeds, row, held)
        # What a draft follows that was not proposed in the end, the record does not say.
        entry = self._index.feed_rows[feeds]
        is_told = self._tree_nodes(feeds) <= np.append(self._branches.drafted, 0)[entry]
        feeds, row = feeds[is_told], row[is_told]
        return list(self._judge(feeds, row, held, nodes)) if feeds.size else []

    def _held_nodes(self, feeds: Array, row: Array, held: Array) -> Array:
        """Return the draft of a tree that each slot holds, (r, T); 0 for any other token."""
        nodes = np.zeros(held.shape, np.int64)
        node = self._tree_nodes(feeds)
        inside = self._feeds["slot"][feeds] < held.shape[1]
        nodes[row[inside], self._feeds["slot"][feeds[inside]]] = node[inside]
        return nodes

    def _tree_nodes(self, feeds: Array) -> Array:
        """Return `node` of feeds (q,) whose row drafts a tree, 0 for others."""
        entry = self._index.feed_rows[feeds]
        is_tree = np.append(self._branches.is_tree, False)[entry]
        found: Array = np.where(is_tree, self._feeds["node"][feeds], 0)
        return found

    def _held_by_prefill(self, feeds: Array) -> tuple[Array, Array]:
        """Return the row in `held` of each feed (q,), and `held` (r, T).

        `held` is the token index that each slot of a prefilled row holds, -1 where it holds none.
        """
        cache_row, slot, index, request = (
            self._feeds[name][feeds].astype(np.int64)
            for name in ("row", "slot", "index", "request")
        )
        _, row = np.unique(cache_row * self._trace.num_requests + request, return_inverse=True)
        held = np.full((row.max(initial=-1) + 1, slot.max(initial=-1) + 1), -1)
        held[row, slot] = index
        return row, held

    def _judge(self, feeds: Array, row: Array, held: Array, nodes: Array) -> Iterator[WrongQueries]:
        suspects = np.flatnonzero(~self._is_in_order(feeds, row, held))
        # A long prompt has too many (query, slot) pairs for one array.
        chunk = max(1, _PAIRS // max(held.shape[1], int(self._feeds["visible_stop"][feeds].max())))
        last: WrongQueries | None = None
        for first in range(0, suspects.size, chunk):
            at = suspects[first : first + chunk]
            for query in self._compare(feeds[at], held[row[at]], nodes[row[at]]):
                if last is not None and self._continues(last, query):
                    last = replace(last, count=last.count + 1)
                    continue
                if last is not None:
                    yield last
                last = query
        if last is not None:
            yield last

    def _is_in_order(self, feeds: Array, row: Array, held: Array) -> Array:
        """Return which queries (q,) saw one block of slots with their tokens in order."""
        # Nearly all queries of a valid run did, and looking at each row once for all of its queries
        # is far cheaper than comparing them one by one.
        slots = np.arange(held.shape[1])
        first = (held == 0).argmax(1)[:, None]  # (r, 1), the slot of index 0
        in_order = (held == slots - first) | (slots < first)  # (r, T)
        end = np.where(in_order.all(1), slots.size, in_order.argmin(1))
        index, start, stop = (
            self._feeds[name][feeds] for name in ("index", "visible_start", "visible_stop")
        )
        is_block = (
            (start == first[row, 0]) & (stop == start + index + 1) & ~self._index.has_holes[feeds]
        )
        in_order_until_end: Array = is_block & (stop <= end[row])
        return in_order_until_end

    def _compare(self, feeds: Array, held: Array, nodes: Array) -> Iterator[WrongQueries]:
        """Compare what each query saw with what it should have seen.

        held, nodes: as above, (q, T).
        """
        index = self._feeds["index"][feeds]
        seen = self._index.visible(feeds)  # (q, w)
        wanted = (held >= 0) & (held <= index[:, None])  # (q, T)
        if nodes.any():
            entry = self._index.feed_rows[feeds]
            wanted &= self._branches.are_on_branch(entry, self._tree_nodes(feeds), nodes)
        # The two come from different tables, and each ends at its own last slot.
        slots = max(seen.shape[1], wanted.shape[1])
        seen = np.pad(seen, ((0, 0), (0, slots - seen.shape[1])))
        wanted = np.pad(wanted, ((0, 0), (0, slots - wanted.shape[1])))
        leaks = seen & ~wanted
        holes = wanted & ~seen
        lost = index + 1 - wanted.sum(axis=1)
        for q in np.flatnonzero((leaks | holes).any(1) | (lost > 0)):
            yield WrongQueries(int(feeds[q]), 1, ranges(leaks[q]), ranges(holes[q]), int(lost[q]))

    def _continues(self, last: WrongQueries, query: WrongQueries) -> bool:
        same = all(
            self._feeds[name][last.feed] == self._feeds[name][query.feed]
            for name in ("step", "row", "request")
        )
        ahead = self._feeds["index"][query.feed] - self._feeds["index"][last.feed]
        # Neighbours in a tree sit on different branches, so equal slots mean different things.
        is_draft_of_tree = self._tree_nodes(np.array([last.feed, query.feed])).any()
        return bool(
            same
            and not is_draft_of_tree
            and ahead == last.count
            and (last.leaks, last.holes, last.lost) == (query.leaks, query.holes, query.lost)
        )


def ranges(mask: Array) -> Ranges:
    """Return the runs of neighbouring slots that a mask (T,) names, each as (start, stop)."""
    # A zero at either end closes runs that touch the edge: edges come in pairs.
    edges = np.diff(mask.astype(np.int8), prepend=0, append=0).nonzero()[0]
    return [(start, stop) for start, stop in edges.reshape(-1, 2).tolist()]


def _held_by_cache(cache: Slots) -> Array:
    """Return the index of the row's token whose K/V each slot holds, (B, T), or -1."""
    # Stale K/V and padding have states outside these, and no query should see them.
    counts = (cache.state >= PROMPT) & (cache.state <= BONUS) | (cache.state == DRAFTED)
    return np.where(counts, cache.index, -1)


def _row_of_request(requests: Array, wanted: Array) -> Array:
    """Return the row of the batch that serves each wanted request (q,), -1 where none does.

    requests: the request of each row, (B,).
    """
    order = np.argsort(requests, kind="stable")
    at = np.minimum(np.searchsorted(requests[order], wanted), max(requests.size - 1, 0))
    if requests.size == 0:
        return np.full(wanted.shape, -1)
    row = order[at]
    return np.where(requests[row] == wanted, row, -1)
