"""The walk through a record, forward by forward, that finds queries which saw wrong K/V.

Contract: `Forwards.run` asks of every query whether it saw exactly the K/V of its own row's tokens
up to itself, each once. It asks that of what the slots hold, so a layout of any kind passes if its
queries saw the right K/V. What is to blame for a wrong query is said in `forward_rules`. Not known
here: models.
"""

import numpy as np

from specviz.checks.branches import Branches
from specviz.checks.fed_tokens import FedTokens
from specviz.checks.forward_rules import ForwardRules, WrongQueries
from specviz.checks.ledger import (
    ALIVE,
    INDEX,
    NODE,
    REQUEST,
    RIGHT,
    TAINT,
    BatchRows,
    ExpectedKV,
    Ledger,
    TreeNodes,
)
from specviz.checks.violations import Findings
from specviz.record.schema import MODELS, PHASES, Array, sees
from specviz.record.trace import Trace
from specviz.record.trees import leaves_holes

_SCHEDULE, _ACCEPT, _SYNCHRONISE = (
    PHASES.index(name) for name in ("schedule", "accept", "synchronise")
)
_DRAFT = MODELS.index("draft")
_PAIRS = 2**20  # (query, slot) pairs that are judged at a time


class Forwards:
    """Judges the forwards of a trace.

    Only a check with the models asks where K/V should be after each round.
    """

    def __init__(self, trace: Trace, findings: Findings) -> None:
        # By round and model: the rows, which of their indices are expected, and in which slots.
        self._expected: list[tuple[int, int, BatchRows, Array, Array]] = []
        self._trace = trace
        self._ledger = Ledger(trace)
        self._branches = Branches(trace)
        self._leaves_holes = leaves_holes(trace.rows)
        self._fed = FedTokens(trace, self._branches)
        self._rules = ForwardRules(self._fed, self._ledger, findings, self._branches)

    def run(self) -> None:
        """Walk through all rounds, and report what the rules find."""
        # What was fed can be judged before the caches are followed.
        self._rules.positions()
        self._rules.kv_of_fed_tokens()
        for stage in range(self._trace.num_rounds * len(PHASES)):
            steps = self._trace.index.steps_of(stage)
            for step in steps:
                # A log without this model's slots or masks would make every query look wrong.
                if not sees(self._trace.meta, MODELS[step.model]):
                    continue
                self._ledger.move(step.moves)
                if step.feeds.size:
                    self._forward(stage, step.model, step.feeds)
            self._end_phase(stage, bool(steps))
        self._rules.caches_left_behind(self._ledger.left_behind)

    @property
    def wrong(self) -> dict[tuple[int, int], list[WrongQueries]]:
        """By stage and model, the queries that saw wrong slots, once `run` has ended."""
        return self._rules.wrong

    def expected_kv(self) -> list[ExpectedKV]:
        """Return where K/V should be after each round, once `run` has ended."""
        found = []
        for number, model, batch, known, slots in self._expected:
            for k in range(batch.rows.size):
                indices = np.flatnonzero(known[k])
                row = int(batch.rows[k])
                request = int(batch.requests[k])
                found.append(ExpectedKV(number, model, row, request, indices, slots[k, indices]))
        return found

    def _end_phase(self, stage: int, has_steps: bool) -> None:
        number, phase = divmod(stage, len(PHASES))
        if phase == _ACCEPT:
            self._reject_drafts(number)
        if phase not in (_SCHEDULE, _SYNCHRONISE):
            return
        if not self._trace.meta.get("keep_draft", True):
            # The draft reads everything again in the next round.
            self._ledger.computed[_DRAFT] = False
        if phase == _SCHEDULE and not has_steps:
            return  # all is where it was at the end of the round before
        batch = self._batch(number, phase)
        expected = self._ledger.compare_accounts(stage, batch)
        if phase != _SYNCHRONISE:
            return
        for model, (known, slots) in enumerate(expected):
            self._expected.append((number, model, batch, known, slots))

    def _batch(self, number: int, phase: int) -> BatchRows:
        rows = self._trace.rows
        these = self._trace.index.rows_of(number)
        length = rows["length"][these]
        if phase != _SCHEDULE:
            length = length + rows["gained"][these]
        start = rows["start_after" if phase == _SYNCHRONISE else "start"][these]
        return BatchRows(rows["row"][these], rows["request"][these], start, length)

    def _reject_drafts(self, number: int) -> None:
        rows = self._trace.rows
        these = self._trace.index.rows_of(number)
        drafts = rows["drafts"][these]  # (b, K)
        is_emitted = (drafts == rows["emitted"][these, : drafts.shape[1]]) & (drafts >= 0)
        # What counts is what was emitted, whatever the record says was accepted: K/V of a draft is
        # right exactly if the row has that token there.
        kept = is_emitted.cumprod(axis=1).sum(axis=1)
        batch = self._batch(number, _ACCEPT)
        is_tree = self._branches.is_tree[these]
        # Of trees, what was committed is left alone here.
        kept = np.where(is_tree, rows["gained"][these], kept)
        self._ledger.reject(batch, rows["length"][these] + kept)
        # Chains were settled at once above; each tree keeps a branch of its own.
        for k in np.flatnonzero(is_tree).tolist():
            entry = these.start + k
            self._ledger.settle(
                int(batch.rows[k]),
                int(batch.requests[k]),
                int(rows["length"][entry]),
                self._tree_nodes(entry),
            )
        if self._ledger.provisional:
            kept = rows["length"][these] - self._ledger.provisional_pending
            self._ledger.reject(batch, kept, model=_DRAFT)

    def _tree_nodes(self, entry: int) -> TreeNodes:
        rows, branches = self._trace.rows, self._branches
        depths = branches.depths[entry]
        emitted = np.append(rows["emitted"][entry], -1)
        tokens = rows["drafts"][entry]
        is_emitted = np.append(True, (tokens == emitted[depths[1:] - 1]) & (tokens >= 0))
        # A draft counts if its whole branch was emitted, whatever the record says was accepted.
        is_kept = ~(branches.ancestors[entry] & ~is_emitted).any(1)
        pending = int(rows["pending"][entry]) - int(rows["start"][entry])
        # Where rejected columns become holes, accepted drafts stay in theirs; else they move.
        columns = np.arange(depths.size)
        stays = self._leaves_holes[entry]
        return TreeNodes(is_kept, depths, pending + (columns if stays else depths))

    def _forward(self, stage: int, model: int, feeds: Array) -> None:
        """Judge one forward, these entries of `feeds`."""
        fed, ledger = self._fed, self._ledger
        # A forward writes all its K/V before its queries look: each also sees itself.
        row, slot = fed.row[feeds], fed.slot[feeds]
        ledger.write(
            model,
            row,
            slot,
            fed.request[feeds],
            fed.index[feeds],
            fed.row_start[feeds],
            fed.tree_node[feeds],
            fed.token[feeds] == fed.right_token[feeds],
        )
        taint = np.where(fed.faulty[feeds], stage + 1, 0)
        suspects = np.flatnonzero(~self._is_in_order(model, feeds))
        chunk = max(1, _PAIRS // max(ledger.cells.shape[3], ledger.computed.shape[2]))
        for first in range(0, suspects.size, chunk):
            at = suspects[first : first + chunk]
            taint[at] = self._judge(stage, model, feeds[at])
        # Only now: within one forward no query may count as tainted by another.
        ledger.cells[TAINT, model, row, slot] = taint

    def _is_in_order(self, model: int, feeds: Array) -> Array:
        """Return which queries (q,) saw one block of untainted slots, their tokens in order."""
        # Nearly all queries of a valid run did, and looking at each row once for all of its queries
        # is far cheaper than judging them one by one.
        fed = self._fed
        row, request = fed.row[feeds], fed.request[feeds]
        start, stop = fed.visible_start[feeds], fed.visible_stop[feeds]
        # A view is what queries of one row, which stand together, see from one slot on.
        key = (row * self._trace.num_requests + request) * (start.max() + 1) + start
        is_first = np.append(True, key[1:] != key[:-1])
        first, view = np.flatnonzero(is_first), is_first.cumsum() - 1
        width = max(int(stop.max()), 1)
        chunk = max(1, _PAIRS // width)
        ends = []
        for at in (first[i : i + chunk] for i in range(0, first.size, chunk)):
            ends.append(self._end_of_order(model, width, row[at], request[at], start[at]))
        reach = fed.reach[feeds]
        is_block = ~self._trace.index.has_holes[feeds] & (stop - start == reach + 1)
        in_order: Array = is_block & (stop <= np.concatenate(ends)[view])
        return in_order

    def _end_of_order(
        self, model: int, width: int, rows: Array, requests: Array, starts: Array
    ) -> Array:
        """Return the first slot from each start (v,) on that does not hold the next token."""
        slots = np.arange(width)
        cells = self._ledger.cells[: TAINT + 1, model, rows, :width]  # (4, v, w)
        is_next = (cells[REQUEST] == requests[:, None]) & (cells[INDEX] == slots - starts[:, None])
        is_sound = (cells[ALIVE] == RIGHT) & (cells[TAINT] == 0)
        in_order = is_next & is_sound | (slots < starts[:, None])
        end: Array = np.where(in_order.all(1), width, in_order.argmin(1))
        return end

    def _judge(self, stage: int, model: int, feeds: Array) -> Array:
        """Judge these queries (q,) one by one.

        Returns the taint of the K/V that they write: 0, or 1 + the stage of the faulty forward.
        """
        fed = self._fed
        last = fed.reach[feeds]
        seen = self._trace.index.visible(feeds)
        # A query should see no slot behind its own.
        width = max(seen.shape[1], int(fed.slot[feeds].max()) + 1)
        seen = np.pad(seen, ((0, 0), (0, width - seen.shape[1])))  # (q, w)
        cells = self._ledger.cells[:, model, fed.row[feeds], :width]  # (6, q, w)
        held = np.where(cells[ALIVE] == RIGHT, cells[INDEX], -1)
        own = (cells[REQUEST] == fed.request[feeds][:, None]) & (cells[ALIVE] > 0)
        if self._branches.any:
            own &= self._branches.are_on_branch(fed.entry[feeds], fed.tree_node[feeds], cells[NODE])
        fits = own & (cells[INDEX] <= last[:, None])
        self._rules.note_wrong(stage, model, feeds, seen, np.where(fits, held, -1))
        in_order = own & (cells[INDEX] == seen.cumsum(axis=1, dtype=np.int32) - 1)
        # Any order of slots will do, but the usual one is cheap to recognise.
        suspect = (seen & ~in_order).any(1) | (seen.sum(axis=1) != last + 1)
        wrong = np.flatnonzero(suspect)
        saw_all = _saw_each_once(seen[wrong], own[wrong], cells[INDEX][wrong], last[wrong])
        wrong = wrong[~saw_all]
        if wrong.size:
            self._rules.explain(stage, model, feeds[wrong], seen[wrong])
        taint = np.where(seen, cells[TAINT], 0)
        inherited = taint.max(axis=1, initial=0)
        if inherited.any():
            self._rules.kv_of_faulty_forwards(stage, model, feeds, taint)
        # An inherited fault is passed on: what is wrong here may be only its consequence.
        faulty = fed.faulty[feeds]
        faulty[wrong] = True
        return np.where(faulty & (inherited == 0), stage + 1, inherited)


def _saw_each_once(seen: Array, own: Array, held: Array, last: Array) -> Array:
    """Return which queries (q,) saw indices 0..last of their row, each once, in any order of slots.

    Args:
        seen: bool (q, w), the slots that a query saw; own: those that hold K/V of its row.
        held: (q, w), the index that each slot holds; last: (q,), the last index that it may see.
    """
    fits = own & (held <= last[:, None])
    # Counting alone would accept a query that saw one index twice and missed another.
    found = np.zeros((last.size, int(last.max(initial=0)) + 1), bool)
    query, slot = np.nonzero(seen & fits)
    found[query, held[query, slot]] = True
    has_all: Array = (seen.sum(axis=1) == last + 1) & (found.sum(axis=1) == last + 1)
    return has_all & ~(seen & ~fits).any(1)
