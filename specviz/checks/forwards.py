"""What every forward of a record saw, and what the caches really held there: the rules "positions", "mask", "kv" and "caches".

Contract: `Forwards.run` walks through a record once and asks of every query whether it saw exactly the K/V of its own row's tokens up to
itself, each once. That is asked of what the slots hold, so a layout of any kind passes if its queries saw the right K/V. Only when
something is wrong does the layout say what is to blame: a query that saw other slots than those where its tokens should lie had a
wrong mask; if the slots were right, what they held was not, and the ledger knows since when. Not known here: models.
"""

import numpy as np
import pandas as pd

from specviz.checks.ledger import ALIVE, INDEX, REQUEST, TAINT, Batch, Holding, Ledger
from specviz.checks.violations import Findings
from specviz.record.schema import MODELS, PHASES, Array
from specviz.record.trace import Trace

_SCHEDULE, _ACCEPT, _SYNCHRONISE = (
    PHASES.index(name) for name in ("schedule", "accept", "synchronise")
)
_TARGET, _DRAFT = (MODELS.index(name) for name in ("target", "draft"))
_PAIRS = 2**20  # (query, slot) pairs that are judged at a time


class Forwards:
    """Judges the forwards of a trace; what it finds goes to `findings`, where K/V should lie after each round to `holdings`."""

    def __init__(self, trace: Trace, findings: Findings) -> None:
        self.holdings: list[Holding] = []
        self._trace, self._findings, self._ledger = trace, findings, Ledger(trace)
        self._feeds = {name: values.astype(np.int64) for name, values in trace.feeds.items()}
        self._stage = self._feeds["round"] * len(PHASES) + self._feeds["phase"]
        self._start, self._token = _starts(trace), _tokens(trace)
        self._faulty = (self._feeds["position"] != self._feeds["index"]) | (
            self._feeds["token"] != self._token
        )
        self._told = np.zeros(
            (len(MODELS), trace.num_requests), bool
        )  # whose cache is known to hold K/V of faulty forwards

    def run(self) -> None:
        """Walk through all rounds."""
        self._judge_what_was_fed()
        for stage in range(self._trace.num_rounds * len(PHASES)):
            for step in self._trace.index.steps_of(stage):
                self._ledger.move(step.moves)
                self._forward(stage, step.model, step.feeds)
            self._end_phase(stage)

    def _end_phase(self, stage: int) -> None:
        number, phase = divmod(stage, len(PHASES))
        if phase not in (_SCHEDULE, _ACCEPT, _SYNCHRONISE):
            return
        rows = self._trace.rows
        these = self._trace.index.rows_of(number)
        n, gained = rows["length"][these], rows["gained"][these]
        starts = rows["start_after" if phase == _SYNCHRONISE else "start"][these]
        batch = Batch(
            rows["row"][these],
            rows["request"][these],
            starts,
            n if phase == _SCHEDULE else n + gained,
        )
        if phase == _ACCEPT:
            drafts = rows["drafts"][these]
            same = (drafts == rows["emitted"][these, : drafts.shape[1]]) & (drafts >= 0)
            self._ledger.reject(batch, n + same.cumprod(axis=1).sum(axis=1))
            return
        if not self._trace.meta.get(
            "keep_draft", True
        ):  # the draft reads everything again in the next round
            self._ledger.computed[_DRAFT] = False
        held = self._ledger.settle(stage, batch)
        if phase == _SYNCHRONISE:
            names = list(zip(batch.rows.tolist(), batch.requests.tolist(), strict=True))
            for model, (known, slots) in enumerate(held):
                places = ((k, known[k].nonzero()[0]) for k in range(len(names)))
                self.holdings += [
                    Holding(number, model, *names[k], indices, slots[k, indices])
                    for k, indices in places
                ]

    def _judge_what_was_fed(self) -> None:
        """Rule "positions", and tokens that are not the row's."""
        fed = self._feeds
        for i, which in self._by_row(np.flatnonzero(fed["position"] != fed["index"])):
            words = (
                f"index {fed['index'][i]} at position {fed['index'][i]}",
                f"position {fed['position'][i]}",
            )
            self._add("positions", i, *words, slots=fed["slot"][which])
        for i, which in self._by_row(np.flatnonzero(fed["token"] != self._token)):
            words = (
                f"token {self._token[i]} fed as index {fed['index'][i]}",
                f"token {fed['token'][i]}",
            )
            self._add("kv", i, *words, slots=fed["slot"][which])

    def _forward(self, stage: int, model: int, fed: Array) -> None:
        """One forward, over these entries of the table `feeds`: first it writes, then its queries look."""
        if fed.size == 0:
            return
        row, slot, request, index = (
            self._feeds[name][fed] for name in ("row", "slot", "request", "index")
        )
        self._ledger.write(model, row, slot, request, index, self._start[fed])
        taint, odd = (
            np.where(self._faulty[fed], stage + 1, 0),
            np.flatnonzero(~self._plain(model, fed)),
        )
        step = max(1, _PAIRS // max(self._ledger.cells.shape[3], self._ledger.computed.shape[2]))
        for at in (odd[i : i + step] for i in range(0, odd.size, step)):
            taint[at] = self._look(stage, model, fed[at])
        self._ledger.cells[TAINT, model, row, slot] = taint

    def _plain(self, model: int, fed: Array) -> Array:
        """Which of these queries (q,) saw one block of slots with their tokens in order, none of them spoilt: nearly all in a valid run.
        Each row is looked at once for all of its queries, which saves most of the work.
        """
        row, request, index = (self._feeds[name][fed] for name in ("row", "request", "index"))
        start, stop = (self._feeds[f"visible_{name}"][fed] for name in ("start", "stop"))
        key = (row * self._trace.num_requests + request) * (start.max() + 1) + start
        _, firsts, view = np.unique(
            key, return_index=True, return_inverse=True
        )  # what queries of one row see begins in one slot
        width, views = max(int(stop.max()), 1), (row[firsts], request[firsts], start[firsts])
        step = max(1, _PAIRS // width)
        reach = [
            self._reach(model, width, *(values[i : i + step] for values in views))
            for i in range(0, firsts.size, step)
        ]
        plain: Array = (
            ~self._trace.index.has_holes[fed]
            & (stop - start == index + 1)
            & (stop <= np.concatenate(reach)[view])
        )
        return plain

    def _reach(self, model: int, width: int, rows: Array, requests: Array, starts: Array) -> Array:
        """The first slot of each row (v,), from its start on, that does not hold the request's next token."""
        slots, owner, begin = np.arange(width), requests[:, None], starts[:, None]
        cells = self._ledger.cells[:, model, rows, :width]  # (4, v, w)
        right = (cells[REQUEST] == owner) & (cells[INDEX] == slots - begin) & (
            cells[ALIVE] == 1
        ) & (cells[TAINT] == 0) | (slots < begin)
        reach: Array = np.where(right.all(1), width, right.argmin(1))
        return reach

    def _look(self, stage: int, model: int, fed: Array) -> Array:
        """Judge these queries (q,); returns what to note of the K/V that they leave: 0, or 1 + the stage that spoilt it."""
        row, request, index = (self._feeds[name][fed] for name in ("row", "request", "index"))
        seen = self._trace.index.visible(fed)  # (q, w)
        cells = self._ledger.cells[:, model, row, : seen.shape[1]]  # (4, q, w)
        own = (cells[REQUEST] == request[:, None]) & (cells[ALIVE] == 1)
        in_order = own & (cells[INDEX] == seen.cumsum(axis=1, dtype=np.int32) - 1)
        wrong = np.flatnonzero((seen & ~in_order).any(1) | (seen.sum(axis=1) != index + 1))
        wrong = wrong[~_holds_each_once(seen[wrong], own[wrong], cells[INDEX][wrong], index[wrong])]
        if wrong.size:
            self._blame(stage, model, fed[wrong], seen[wrong])
        spoilt = np.where(seen, cells[TAINT], 0)
        inherited = spoilt.max(axis=1, initial=0)
        if inherited.any():
            self._trace_back(stage, model, fed, spoilt)
        faulty = self._faulty[fed]
        faulty[wrong] = True
        return np.where(faulty & (inherited == 0), stage + 1, inherited)

    def _blame(self, stage: int, model: int, fed: Array, seen: Array) -> None:
        """These queries saw something else than their tokens' K/V: was it the mask, or what the slots held?"""
        row, request, index, start = (
            *(self._feeds[name][fed] for name in ("row", "request", "index")),
            self._start[fed],
        )
        count, size = int(index.max()) + 1, self._ledger.cells.shape[3]
        wanted = np.arange(count) <= index[:, None]  # (q, n)
        known, slots, right = self._ledger.places(model, Batch(row, request, start, index), count)
        meant = np.zeros((fed.size, size), bool)  # the slots where the tokens should lie
        query, token = np.nonzero(wanted & known & (slots >= 0) & (slots < size))
        meant[query, slots[query, token]] = True
        seen = np.pad(seen, ((0, 0), (0, size - seen.shape[1])))
        extra, hidden = seen & ~meant, meant & ~seen
        nowhere = (wanted & ~known).sum(
            axis=1
        )  # tokens without K/V: that slots were shown for them is no fault of the mask
        masked = hidden.any(1) | (extra.sum(axis=1) > nowhere)
        lost = wanted & ~right & ~self._ledger.told[model, request, :count]
        for at in _groups(row):
            if masked[at].any():
                self._blame_mask(fed, at[masked[at]], meant, extra, hidden)
            if lost[at].any():
                self._blame_content(
                    stage,
                    model,
                    fed[at[0]],
                    np.flatnonzero(lost[at].any(0)),
                    known[at[0]],
                    slots[at[0]],
                )

    def _blame_mask(self, fed: Array, at: Array, meant: Array, extra: Array, hidden: Array) -> None:
        """One row's queries `at` saw `extra` slots, or did not see `hidden` ones, (q, slots); the first of them gives the words."""
        k, i = at[0], fed[at[0]]
        model, row, request = (int(self._feeds[name][i]) for name in ("model", "row", "request"))
        sees, misses = extra[k].nonzero()[0][:1].tolist(), hidden[k].nonzero()[0][:1].tolist()
        problems = [f"it also sees slot {slot}, {self._nature(i, slot)}" for slot in sees]
        problems += [
            f"it does not see slot {slot} with {self._ledger.content(model, row, request, slot)}"
            for slot in misses
        ]
        words = (
            f"the query of index {self._feeds['index'][i]} to see {_ranges(meant[k])}",
            " and ".join(problems),
        )
        affected = np.flatnonzero((extra | hidden)[at].any(0))
        self._add(
            "mask", i, *words, slots=np.concatenate([np.array(sees + misses, np.int64), affected])
        )

    def _nature(self, i: int, slot: int) -> str:
        """What a slot is to the query of feed i, which should not see it."""
        model, row, request, last = (
            int(self._feeds[name][i]) for name in ("model", "row", "request", "index")
        )
        owner, index, alive, _ = self._ledger.cells[:, model, row, slot].tolist()
        if slot < self._start[i]:
            return "which is padding"
        if owner < 0:
            return "which is empty"
        if owner != request or not alive:
            return f"which holds {self._ledger.content(model, row, request, slot)}"
        return (
            f"where index {index} lies ahead"
            if index > last
            else f"where index {index} lies once more"
        )

    def _blame_content(
        self, stage: int, model: int, i: int, lost: Array, known: Array, slots: Array
    ) -> None:
        """The tokens `lost` of the row are not where they should lie; each is told once, with the phase in which it went astray."""
        row, request, ledger = (
            int(self._feeds["row"][i]),
            int(self._feeds["request"][i]),
            self._ledger,
        )
        target_holds = (
            ledger.computed[_TARGET, request, lost] & ~ledger.astray[_TARGET, request, lost]
        ).all()
        rule = "caches" if model != _TARGET and target_holds else "kv"
        for suspicion in ledger.confirm(model, request, lost):
            words = f"index {suspicion.indices[0]} in slot {suspicion.slots[0]}", suspicion.found
            self._findings.add(
                rule,
                suspicion.stage,
                suspicion.row,
                request,
                *words,
                model=model,
                slots=suspicion.slots,
            )
        news = lost[~ledger.astray[model, request, lost]]
        ledger.told[model, request, lost] = ledger.astray[model, request, lost] = True
        if news.size:
            index, slot = int(news[0]), int(slots[news[0]])
            if known[index]:
                words = (
                    f"index {index} in slot {slot}",
                    f"{ledger.content(model, row, request, slot)} there",
                )
            else:
                words = f"K/V of index {index}", "none, since its token has not been fed"
            self._findings.add(
                rule,
                stage,
                row,
                request,
                *words,
                model=model,
                slots=slots[news[known[news]]],
                count=news.size,
            )

    def _trace_back(self, stage: int, model: int, fed: Array, spoilt: Array) -> None:
        """Queries that see K/V of faulty forwards: told once for a model and request, since all that follows inherits it."""
        requests = self._feeds["request"][fed]
        earlier = (spoilt > 0) & (spoilt <= stage) & ~self._told[model, requests, None]
        for k in np.flatnonzero(earlier.any(1)):
            if not self._told[model, requests[k]]:
                self._told[model, requests[k]] = True
                slots = np.flatnonzero(earlier[k])
                number, phase = divmod(int(spoilt[k, slots[0]]) - 1, len(PHASES))
                found = f"that of a faulty forward of round {number}, {PHASES[phase]} phase, which the row's later K/V inherits"
                self._add(
                    "kv",
                    fed[k],
                    f"K/V from right tokens, positions and masks in slot {slots[0]}",
                    found,
                    slots=slots,
                )

    def _by_row(self, wrong: Array) -> list[tuple[int, Array]]:
        """Entries of feeds by round, phase, model and row: the first of each group, and all of it."""
        keys = [self._feeds[name][wrong] for name in ("round", "phase", "model", "row")]
        return (
            [(which[0], which) for which in pd.Series(wrong).groupby(keys, sort=False).agg(list)]
            if wrong.size
            else []
        )

    def _add(self, rule: str, i: int, expected: str, found: str, slots: Array | list[int]) -> None:
        """A violation of the forward and row that entry i of feeds belongs to."""
        row, request, model = (int(self._feeds[name][i]) for name in ("row", "request", "model"))
        self._findings.add(
            rule, self._stage[i], row, request, expected, found, model=model, slots=slots
        )


def _holds_each_once(seen: Array, own: Array, held: Array, last: Array) -> Array:
    """Whether what a query (q,) saw are its row's indices 0..last, each once, in any order of slots."""
    fits = own & (held <= last[:, None])
    found = np.zeros((last.size, int(last.max(initial=0)) + 1), bool)
    query, slot = np.nonzero(seen & fits)
    found[query, held[query, slot]] = True
    enough: Array = (seen.sum(axis=1) == last + 1) & (found.sum(axis=1) == last + 1)
    return enough & ~(seen & ~fits).any(1)


def _entry(trace: Trace) -> Array:
    """The entry of the table `rows` that each feed belongs to, -1 for a row that is not in the batch."""
    entry = trace.index.feed_rows
    requests = np.append(trace.rows["request"], -1)
    return np.where(requests[entry] == trace.feeds["request"], entry, -1)


def _starts(trace: Trace) -> Array:
    """The slot where the row of each feed starts at that time; in a prefill, where its index 0 goes, since the row may still move."""
    rows, feeds, entry = trace.rows, trace.feeds, _entry(trace)
    if entry.size == 0 or rows["start"].size == 0:
        return feeds["slot"].astype(np.int64) - feeds["index"]
    start = np.where(
        feeds["phase"] == _SYNCHRONISE, rows["start_after"][entry], rows["start"][entry]
    )
    start = np.where(entry >= 0, start, feeds["slot"] - feeds["index"])
    entering = feeds["phase"] == _SCHEDULE
    first = pd.Series(np.where(entering & (feeds["index"] == 0), feeds["slot"], np.nan))
    first = (
        first.groupby([feeds[name] for name in ("round", "model", "request")])
        .transform("min")
        .to_numpy()
    )
    return np.where(entering & ~np.isnan(first), np.nan_to_num(first), start).astype(np.int64)


def _tokens(trace: Trace) -> Array:
    """The token that belongs at each feed's index: a committed one or this round's draft; the fed one itself where neither is recorded."""
    rows, feeds, entry = trace.rows, trace.feeds, _entry(trace)
    texts = trace.index.committed
    index, size = feeds["index"].astype(np.int64), texts.size[feeds["request"]]
    n = size
    if rows["length"].size:
        length = rows["length"][entry] + np.where(
            feeds["phase"] >= _ACCEPT, rows["gained"][entry], 0
        )
        n = np.where(entry >= 0, length, size)
    k = rows["drafts"].shape[1]
    drafts = np.append(rows["drafts"].ravel(), -1)[
        np.where((entry >= 0) & (index >= n) & (index < n + k), entry * k + index - n, -1)
    ]
    committed = np.append(texts.tokens, -1)[
        np.where(index < n, texts.first[feeds["request"]] + np.minimum(index, size - 1), -1)
    ]
    known = np.where(index < n, committed, drafts)
    return np.where(known >= 0, known, feeds["token"])


def _groups(values: Array) -> list[Array]:
    """The places of each value, in order."""
    order = np.argsort(values, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(values[order])) + 1)


def _ranges(which: Array) -> str:
    """The slots that a mask (slots,) names, in words: "slots 3..8, 12..20"; at most three ranges."""
    edges = np.diff(which.astype(np.int8), prepend=0, append=0).nonzero()[0].reshape(-1, 2).tolist()
    words = [
        f"{start}..{stop - 1}" if stop - start > 1 else f"{start}" for start, stop in edges[:3]
    ]
    return (
        f"slot{'' if which.sum() == 1 else 's'} {', '.join(words)}{', ...' if len(edges) > 3 else ''}"
        if words
        else "no slot"
    )
