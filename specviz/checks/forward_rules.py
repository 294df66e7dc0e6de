"""The rules about forwards: "positions", "mask", "kv" and "caches".

Contract: `positions` and `kv_of_fed_tokens` judge what was fed. The other rules explain queries
that did not see exactly the K/V of their row's tokens; which queries these are is found in
`forwards`. A query that saw other slots than those where its tokens should be had a wrong mask. If
the slots were right, what they held was not, and the ledger knows since when.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from specviz.checks.branches import Branches
from specviz.checks.fed_tokens import FedTokens
from specviz.checks.ledger import NODE, WRITTEN, BatchRows, Ledger, Misplacement
from specviz.checks.violations import Findings
from specviz.record.schema import MODELS, PHASES, Array

_TARGET = MODELS.index("target")
_RANGES_SHOWN = 3

Ranges = list[tuple[int, int]]  # [start, stop) of neighbouring slots


@dataclass(frozen=True)
class WrongQueries:
    """Neighbouring queries of one row and forward that all saw the same wrong slots.

    Attributes:
        feed: entry of the table `feeds` of the first query; the others have the next indices of
            the same row.
        count: number of queries.
        leaks: slots that they saw although those hold no token of the row up to the query.
        holes: slots that they did not see although those hold such a token.
        lost: number of tokens up to the query whose K/V is not where it should be.
    """

    feed: int
    count: int
    leaks: Ranges
    holes: Ranges
    lost: int


@dataclass(frozen=True, eq=False)
class RowQueries:
    """Queries of one row in one forward that did not see what they should, in order (q,).

    Attributes:
        stage: round * 5 + phase; model: a place in MODELS.
        feeds: (q,) their entries in the table `feeds`.
        meant: bool (q, slots), where their tokens should be by the layout.
        seen: bool (q, slots), what they saw.
        known: bool (n,), the indices whose K/V was computed; slots: (n,) where those should be.
        missed: bool (q, n), indices that the query needs and whose slot does not hold them.
    """

    stage: int
    model: int
    feeds: Array
    meant: Array
    seen: Array
    known: Array
    slots: Array
    missed: Array


class ForwardRules:
    """The rules, each a method under its name; what they find goes to `findings`.

    Attributes:
        wrong: by stage and model, the queries that saw other slots than they should.
    """

    def __init__(
        self, fed: FedTokens, ledger: Ledger, findings: Findings, branches: Branches
    ) -> None:
        self._fed = fed
        self._branches = branches
        self._ledger = ledger
        self._findings = findings
        self.wrong: dict[tuple[int, int], list[WrongQueries]] = defaultdict(list)
        # Requests whose cache is known to hold K/V of faulty forwards.
        self._inheritance_reported = np.zeros(ledger.computed.shape[:2], bool)

    def positions(self) -> None:
        """Check that the position id of a token is its index in its own row."""
        fed = self._fed
        for group in fed.by_row(np.flatnonzero(fed.position != fed.index)):
            index = fed.index[group[0]]
            expected = f"index {index} should have position {index}"
            found = f"it was fed with position {fed.position[group[0]]}"
            self._report("positions", group[0], expected, found, fed.slot[group])

    def kv_of_fed_tokens(self) -> None:
        """Check that K/V is computed from the tokens of the row: rule "kv"."""
        fed = self._fed
        for group in fed.by_row(np.flatnonzero(fed.token != fed.right_token)):
            first = group[0]
            expected = f"token {fed.right_token[first]} should be fed as index {fed.index[first]}"
            found = f"token {fed.token[first]} was fed"
            self._report("kv", first, expected, found, fed.slot[group])

    def note_wrong(self, stage: int, model: int, feeds: Array, seen: Array, held: Array) -> None:
        """Note which slots these queries (q,) saw wrongly, for whoever draws it.

        Args:
            seen: bool (q, w), what they saw.
            held: (q, w), the index of the row's token that each slot holds, -1 where it holds none
                that the query should see.
        """
        fed, ledger = self._fed, self._ledger
        found = self.wrong[stage, model]
        # Of several copies of a token one counts: if possible, one that the query saw, and the one
        # that was written last. A copy that it did not see counts only where it should be.
        query, slot = np.nonzero(held >= 0)
        of_query = feeds[query]
        offset = ledger.offset[model, fed.request[of_query], held[query, slot]]
        is_due = slot == fed.row_start[of_query] + offset
        cells = ledger.cells[:, model, fed.row[of_query], slot]  # (6, pairs)
        was_seen = seen[query, slot]
        counts = was_seen | is_due | (cells[NODE] > 0)
        order = np.lexsort((cells[WRITTEN], was_seen))
        order = order[counts[order]]
        query, slot = query[order], slot[order]
        best = np.full((feeds.size, int(fed.reach[feeds].max()) + 1), -1)
        best[query, held[query, slot]] = slot
        due = np.zeros(seen.shape, bool)
        query, token = np.nonzero(best >= 0)
        due[query, best[query, token]] = True
        lost = fed.reach[feeds] + 1 - due.sum(1)
        leaks, holes = seen & ~due, due & ~seen
        for q in np.flatnonzero(leaks.any(1) | holes.any(1) | (lost > 0)).tolist():
            feed = int(feeds[q])
            what = ranges(leaks[q]), ranges(holes[q]), int(lost[q])
            last = found[-1] if found else None
            # Neighbours in a tree sit on different branches, so equal slots mean different things.
            if (
                last is not None
                and what == (last.leaks, last.holes, last.lost)
                and fed.index[feed] - fed.index[last.feed] == last.count
                and not fed.tree_node[[last.feed, feed]].any()
                and (fed.step[feed], fed.row[feed], fed.request[feed])
                == (fed.step[last.feed], fed.row[last.feed], fed.request[last.feed])
            ):
                found[-1] = replace(last, count=last.count + 1)
            else:
                found.append(WrongQueries(feed, 1, *what))

    def explain(self, stage: int, model: int, feeds: Array, seen: Array) -> None:
        """Report why these queries (q,) did not see exactly their tokens' K/V; seen (q, w)."""
        for queries in self._by_row(stage, model, feeds, seen):
            self.mask(queries)
            missed = np.flatnonzero(queries.missed.any(0))
            if missed.size:
                self.kv_or_caches(queries, missed)

    def mask(self, queries: RowQueries) -> None:
        """Check that a query sees the slots of its own row's tokens up to itself, and no other."""
        extra = queries.seen & ~queries.meant
        hidden = queries.meant & ~queries.seen
        # That some slot was shown for a token without K/V is not the mask's fault.
        tokens = np.arange(queries.known.size) <= self._fed.reach[queries.feeds][:, None]
        without_kv = (tokens & ~queries.known).sum(axis=1)
        wrong = np.flatnonzero(hidden.any(1) | (extra.sum(axis=1) > without_kv))
        if wrong.size == 0:
            return
        first = wrong[0]
        feed = int(queries.feeds[first])
        problems = []
        first_extra = np.flatnonzero(extra[first])[:1].tolist()
        for slot in first_extra:
            problems.append(f"it also sees slot {slot}, {self._why_not(feed, slot)}")
        first_hidden = np.flatnonzero(hidden[first])[:1].tolist()
        for slot in first_hidden:
            content = self._content(feed, slot)
            problems.append(f"it does not see slot {slot}, which holds {content}")
        index = self._fed.index[feed]
        expected = f"the query of index {index} should see {_slot_words(queries.meant[first])}"
        affected = np.flatnonzero((extra | hidden)[wrong].any(0))
        slots = np.array([*first_extra, *first_hidden, *affected], np.int64)
        self._report("mask", feed, expected, " and ".join(problems), slots)

    def kv_or_caches(self, queries: RowQueries, missed: Array) -> None:
        """Check that a token's slot holds its K/V: rule "kv", or "caches" if only in the draft's.

        Each of the `missed` indices is reported once, with the phase since which it was misplaced.
        """
        ledger = self._ledger
        model = queries.model
        row = int(self._fed.row[queries.feeds[0]])
        request = int(self._fed.request[queries.feeds[0]])
        # If the target lacks the same tokens, the fault began there and can change the text.
        rule = "caches" if self._target_holds(request, missed) and model != _TARGET else "kv"
        for each in ledger.take_misplacements(model, request, missed):
            expected = f"slot {each.slots[0]} should hold the K/V of index {each.indices[0]}"
            self._findings.add(
                rule, each.stage, each.row, request, expected, f"it holds {each.found}",
                model=model, slots=each.slots,
            )  # fmt: skip
        unexplained = missed[~ledger.misplaced[model, request, missed]]
        ledger.misplaced[model, request, missed] = True
        ledger.reported[model, request, missed] = True
        if unexplained.size == 0:
            return
        index = int(unexplained[0])
        slot = int(queries.slots[index])
        if queries.known[index]:
            expected = f"slot {slot} should hold the K/V of index {index}"
            found = f"it holds {ledger.content(model, row, request, slot)}"
        else:
            expected = f"the cache should hold the K/V of index {index}"
            found = "its token has not been fed"
            if self._ledger.provisional and model != _TARGET:
                found = "its token was not read again after it was accepted as a draft"
        self._findings.add(
            rule, queries.stage, row, request, expected, found, model=model,
            slots=queries.slots[unexplained[queries.known[unexplained]]], count=unexplained.size,
        )  # fmt: skip

    def caches_left_behind(self, found: Iterable[tuple[int, int, Misplacement]]) -> None:
        """Check that a move in the draft's cache takes all of a row's K/V: rule "caches".

        No forward may look for what was left behind, because a draft is fed its last tokens again.
        The target's is looked for anyway.

        found: model, request and misplaced tokens, of rows that K/V was moved into.
        """
        for model, request, each in found:
            goes_on = self._fed.last_stage[request] > each.stage
            # The same fault in the target's cache has been named.
            is_known = self._findings.has("kv", each.stage, each.row, request)
            if model != _TARGET and goes_on and not is_known:
                expected = f"slot {each.slots[0]} should hold the K/V of index {each.indices[0]}"
                self._findings.add(
                    "caches", each.stage, each.row, request, expected, f"it holds {each.found}",
                    model=model, slots=each.slots,
                )  # fmt: skip

    def kv_of_faulty_forwards(self, stage: int, model: int, feeds: Array, taint: Array) -> None:
        """Check that K/V is computed with right positions and masks, from right K/V: rule "kv".

        It is reported once for a model and request, because all later K/V of the row inherits it.

        Args:
            taint: (q, w), for what each query saw, 0 or 1 + the stage of the faulty forward that
                the K/V comes from.
        """
        # Every later query of the row would report the same cause.
        reported = self._inheritance_reported[model]
        requests = self._fed.request[feeds]
        is_earlier = (taint > 0) & (taint <= stage)
        for k in np.flatnonzero(is_earlier.any(1)):
            if reported[requests[k]]:
                continue
            reported[requests[k]] = True
            slots = np.flatnonzero(is_earlier[k])
            number, phase = divmod(int(taint[k, slots[0]]) - 1, len(PHASES))
            expected = (
                f"slot {slots[0]} should hold K/V that comes from right tokens, positions and masks"
            )
            found = (
                f"it comes from a faulty forward in round {number}, {PHASES[phase]} phase, "
                "and the row's later K/V inherits the error"
            )
            self._report("kv", feeds[k], expected, found, slots)

    def _by_row(self, stage: int, model: int, feeds: Array, seen: Array) -> Iterator[RowQueries]:
        fed = self._fed
        row, request, last = fed.row[feeds], fed.request[feeds], fed.reach[feeds]
        count = int(last.max()) + 1
        slots = self._ledger.cells.shape[3]
        wanted = np.arange(count) <= last[:, None]  # (q, n)
        batch = BatchRows(row, request, fed.row_start[feeds], last)
        known, places, right = self._ledger.places(model, batch, count)
        node = fed.tree_node[feeds]
        for q in np.flatnonzero(node).tolist():
            self._place_branch(model, int(feeds[q]), known[q], places[q], right[q])
        meant = np.zeros((feeds.size, slots), bool)
        query, token = np.nonzero(wanted & known & (places >= 0) & (places < slots))
        meant[query, places[query, token]] = True
        seen = np.pad(seen, ((0, 0), (0, slots - seen.shape[1])))
        missed = wanted & ~right & ~self._ledger.reported[model, request, :count]
        # Queries of one row look for the same, but each draft of a tree for its own branch.
        key = row * (int(node.max()) + 1) + node
        for value in np.unique(key):
            at = np.flatnonzero(key == value)
            yield RowQueries(
                stage,
                model,
                feeds[at],
                meant=meant[at],
                seen=seen[at],
                known=known[at[0]],
                slots=places[at[0]],
                missed=missed[at],
            )

    def _place_branch(
        self, model: int, feed: int, known: Array, places: Array, right: Array
    ) -> None:
        """Fill in where the drafts of a query's branch are: known, places and right, each (n,)."""
        fed, branches = self._fed, self._branches
        entry, node = int(fed.entry[feed]), int(fed.tree_node[feed])
        row, request = int(fed.row[feed]), int(fed.request[feed])
        branch = [node]
        if node <= branches.drafted[entry, 0]:
            branch = np.flatnonzero(branches.ancestors[entry, node])[1:].tolist()
        first = int(fed.index[feed]) - len(branch) + 1
        for depth, each in enumerate(branch):
            slot = self._ledger.find_node(model, row, request, each)
            known[first + depth] = right[first + depth] = slot >= 0
            places[first + depth] = slot

    def _target_holds(self, request: int, indices: Array) -> bool:
        computed = self._ledger.computed[_TARGET, request, indices]
        misplaced = self._ledger.misplaced[_TARGET, request, indices]
        return bool((computed & ~misplaced).all())

    def _content(self, feed: int, slot: int) -> str:
        fed = self._fed
        model, row, request = int(fed.model[feed]), int(fed.row[feed]), int(fed.request[feed])
        return self._ledger.content(model, row, request, slot)

    def _why_not(self, feed: int, slot: int) -> str:
        """Say why the query of this feed should not see a slot."""
        fed = self._fed
        owner, index, alive, _, node, _ = self._ledger.cells[
            :, fed.model[feed], fed.row[feed], slot
        ].tolist()
        # The order of these tests decides which cause is named if several hold.
        if slot < fed.row_start[feed]:
            return "which is padding"
        if owner < 0:
            return "which is empty"
        if owner != fed.request[feed] or not alive:
            return f"which holds {self._content(feed, slot)}"
        if node:
            return f"which holds draft {node}, not on its branch"
        if index > fed.index[feed]:
            return f"which holds index {index}, ahead of the query"
        return f"which holds index {index} a second time"

    def _report(self, rule: str, feed: int, expected: str, found: str, slots: Array) -> None:
        """Add a violation for the forward and row of an entry of the table `feeds`."""
        fed = self._fed
        self._findings.add(
            rule, fed.stage[feed], fed.row[feed], fed.request[feed], expected, found,
            model=fed.model[feed], slots=slots,
        )  # fmt: skip


def _slot_words(mask: Array) -> str:
    """Name the slots of a mask (slots,), at most three ranges: "slots 3..8, 12..20"."""
    found = ranges(mask)
    if not found:
        return "no slot"
    words = []
    for start, stop in found[:_RANGES_SHOWN]:
        words.append(f"{start}..{stop - 1}" if stop - start > 1 else f"{start}")
    if len(found) > _RANGES_SHOWN:
        words.append("...")
    return f"slot{'' if mask.sum() == 1 else 's'} {', '.join(words)}"


def ranges(mask: Array) -> Ranges:
    """Return the runs of neighbouring slots that a mask (T,) names, each as (start, stop)."""
    # A zero at either end closes runs that touch the edge: edges come in pairs.
    edges = np.diff(mask.astype(np.int8), prepend=0, append=0).nonzero()[0]
    return [(start, stop) for start, stop in edges.reshape(-1, 2).tolist()]
