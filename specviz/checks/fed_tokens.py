"""The table `feeds` of a record, and what each of its entries should have been.

Contract: reads the record alone. Not known here: what a cache holds, and what a query saw.
"""

import numpy as np
import pandas as pd

from specviz.checks.branches import Branches
from specviz.record.replay import BLOCK, MASK, feature_reads
from specviz.record.schema import MODELS, PHASES, Array, missing_in
from specviz.record.trace import Trace

_SCHEDULE, _ACCEPT, _SYNCHRONISE = (
    PHASES.index(name) for name in ("schedule", "accept", "synchronise")
)

_DRAFT = MODELS.index("draft")


class FedTokens:
    """One entry per token fed through a model; all arrays are (N,), int64 unless noted.

    Attributes:
        round, phase, model, step, row, slot, request, index, node, position, token, visible_start,
            visible_stop: columns of the table `feeds`.
        entry: the entry of the table `rows`, -1 for a row outside the batch.
        tree_node: `node` where the row's drafts branch, 0 elsewhere.
        stage: round * 5 + phase.
        row_start: the slot where the entry's row starts at that time.
        reach: the last index that its query sees: its own, or the last one of its block.
        right_token: the token that belongs at the entry's index.
        faulty: bool, whether its position or token is wrong.
        last_stage: (R,), the last stage in which anything was fed for each request, -1 for none.
    """

    def __init__(self, trace: Trace, branches: Branches) -> None:
        columns = {name: values.astype(np.int64) for name, values in trace.feeds.items()}
        self.round = columns["round"]
        self.phase = columns["phase"]
        self.model = columns["model"]
        self.step = columns["step"]
        self.row = columns["row"]
        self.slot = columns["slot"]
        self.request = columns["request"]
        self.index = columns["index"]
        self.node = columns["node"]
        self.position = columns["position"]
        self.token = columns["token"]
        self.visible_start = columns["visible_start"]
        self.visible_stop = columns["visible_stop"]
        self.position = np.where(self._has_no_position(trace), self.index, self.position)
        self.stage = self.round * len(PHASES) + self.phase
        entry = self._entry_in_rows(trace)
        self.entry = entry
        self.tree_node = np.where(np.append(branches.is_tree, False)[entry], self.node, 0)
        self.row_start = self._row_start(trace, entry)
        self.reach = self._reach(trace)
        self.right_token = self._right_token(trace, entry)
        # K/V that comes from one of these is wrong even if the slot and the mask are right.
        self.faulty = (self.position != self.index) | (self.token != self.right_token)

        self.last_stage = np.full(trace.num_requests, -1)
        # A request occurs many times here, and plain indexing would keep its last entry alone.
        np.maximum.at(self.last_stage, self.request, self.stage)

    def by_row(self, which: Array) -> list[Array]:
        """Group entries (n,) by round, phase, model and row, in the order of their first ones."""
        if which.size == 0:
            return []
        keys = [column[which] for column in (self.round, self.phase, self.model, self.row)]
        return [np.array(group) for group in pd.Series(which).groupby(keys, sort=False).agg(list)]

    def _entry_in_rows(self, trace: Trace) -> Array:
        """Return the entry of the table `rows` of each feed, -1 for a row outside the batch."""
        entry = trace.index.feed_rows
        requests = np.append(trace.rows["request"], -1)
        # -1, a feed of no entry, takes the appended one, which belongs to no request.
        return np.where(requests[entry] == self.request, entry, -1)

    def _has_no_position(self, trace: Trace) -> Array:
        """Return which entries have no position because the log did not say it, (N,)."""
        lacking = missing_in(trace.meta)
        models = [code for code, name in enumerate(MODELS) if f"positions.{name}" in lacking]
        return np.isin(self.model, models) & (self.position < 0)

    def _row_start(self, trace: Trace, entry: Array) -> Array:
        rows = trace.rows
        if_unknown = self.slot - self.index
        if entry.size == 0 or rows["start"].size == 0:
            return if_unknown
        # What is fed in this phase is fed after the move.
        is_late = self.phase == _SYNCHRONISE
        start = np.where(is_late, rows["start_after"][entry], rows["start"][entry])
        start = np.where(entry >= 0, start, if_unknown)
        # A row may still move after its prefill, in the same phase, so `rows` has its start too
        # late. The slot of its index 0 says where it was.
        prefill = np.flatnonzero(self.phase == _SCHEDULE)
        forward = self.round[prefill] * len(MODELS) + self.model[prefill]
        key = forward * trace.num_requests + self.request[prefill]
        _, group = np.unique(key, return_inverse=True)
        is_first = self.index[prefill] == 0
        unknown = np.iinfo(np.int64).max
        first = np.full(group.max(initial=-1) + 1, unknown)
        np.minimum.at(first, group[is_first], self.slot[prefill[is_first]])
        start[prefill] = np.where(first[group] < unknown, first[group], start[prefill])
        return start

    def _reach(self, trace: Trace) -> Array:
        if trace.meta.get("draft_kv") != "masks":
            return self.index
        in_block = np.isin(feature_reads(trace).source, (MASK, BLOCK))
        # A round has one block for each request.
        key = self.round[in_block] * trace.num_requests + self.request[in_block]
        _, group = np.unique(key, return_inverse=True)
        last = np.zeros(group.max(initial=-1) + 1, np.int64)
        np.maximum.at(last, group, self.index[in_block])
        reach = self.index.copy()
        reach[in_block] = last[group]
        return reach

    def _right_token(self, trace: Trace, entry: Array) -> Array:
        rows = trace.rows
        texts = trace.index.committed
        size = texts.size[self.request]
        committed = size
        if rows["length"].size:
            gained = np.where(self.phase >= _ACCEPT, rows["gained"][entry], 0)
            committed = np.where(entry >= 0, rows["length"][entry] + gained, size)
        is_committed = self.index < committed
        place = texts.first[self.request] + np.minimum(self.index, size - 1)
        # -1 takes the last element, which stands for "not recorded".
        text_token = np.append(texts.tokens, -1)[np.where(is_committed, place, -1)]
        # Behind the committed tokens come this round's drafts.
        k = rows["drafts"].shape[1]
        draft = np.where(self.tree_node > 0, self.tree_node - 1, self.index - committed)
        is_draft = (entry >= 0) & (draft >= 0) & (draft < k)
        draft_place = np.where(is_draft, entry * k + draft, -1)
        draft_token = np.append(rows["drafts"].ravel(), -1)[draft_place]
        # Of a draft that the draft model read, but that was not proposed, the record has no token.
        is_committed &= self.tree_node == 0
        if trace.meta.get("draft_kv") == "masks":
            # A mask entry has no token.
            draft_token = np.where((self.model == _DRAFT) & ~is_committed, -1, draft_token)
        # Where the record holds neither, the fed token is given the benefit of the doubt.
        recorded = np.where(is_committed, text_token, draft_token)
        return np.where(recorded >= 0, recorded, self.token)
