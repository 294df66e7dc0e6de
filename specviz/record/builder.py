"""Make the tables of a record from forwards, moves and the ends of rounds, in the order of time.

The engine's recorder says all of a round. A log leaves out what its engine does not know: what
follows from the rest is computed here, and `missing` names what is lacking.

N entries of the table `rows`, K draft tokens, b rows of a round, m tokens of a forward.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from specviz.record.check import CELLS_PER_FEED, FREE_CELLS
from specviz.record.index import RecordIndex
from specviz.record.schema import COLUMNS, MODELS, PHASES, Array, Table, TraceError
from specviz.record.trace import flatten_requests
from specviz.record.trees import DERIVED, nodes

NO_BUDGET = 2**31 - 1  # stands in the table where a budget is not known
BLOCK = ("from_row", "from_slot", "to_row", "to_slot", "length")  # the columns of a move
NO_HOLES = np.zeros((0, 3), np.int64)
_DRAFT, _VERIFY, _SYNCHRONISE = map(PHASES.index, ("draft", "verify", "synchronise"))
_WITHOUT_MODEL = (None, "lookup")  # drafters that run none


class Place(NamedTuple):
    """When and where something happened; `phase` and `model` are places in PHASES and MODELS."""

    round: int
    phase: int
    step: int
    model: int


class Seen(NamedTuple):
    """What m queries saw: slots start (m,) to stop (m,), and holes (h, 3): query, start, stop."""

    start: Array
    stop: Array
    holes: Array


@dataclass(frozen=True, eq=False)
class Fed:
    """Tokens that a model was fed at once.

    Attributes:
        columns: row, request, token and index (m,), and what is known of position, slot, node,
            visible_start, visible_stop and window_offset; where layers keep states also after and
            after_request (if it is another's), the token whose states the token's row went on from.
        holes: (h, 3): which of the m queries, and the range of slots that was hidden from it.
    """

    place: Place
    columns: Table
    holes: Array


@dataclass(frozen=True, eq=False)
class Round:
    """What a round did.

    Attributes:
        rows: columns of the table `rows` (b, ...), sorted by row. Lists of drafts, tokens and
            columns of candidates may be shorter than in the table. What is not known is left out.
        facts: entries of the table `rounds`; `ms` has all five times, NaN for an unknown one.
        pool: columns of the table `pool`, but for its rounds.
    """

    rows: Table
    facts: dict[str, Any] = field(default_factory=dict)
    pool: Table = field(default_factory=dict)


class Builder:
    """Takes forwards, moves and rounds, and makes the tables of a record.

    Attributes:
        prompts, budgets: of each request; None for a budget that is not known.
        rounds: those that have ended.
    """

    def __init__(self, num_draft_tokens: int) -> None:
        self.prompts: list[Sequence[int]] = []
        self.budgets: list[int | None] = []
        self.rounds: list[Round] = []
        self._k = num_draft_tokens
        self._feds: list[Fed] = []
        self._moves: list[tuple[Place, Array]] = []
        self._steps: Counter[tuple[int, int, int]] = Counter()

    def forward(self, model: int, phase: int, columns: Table, holes: Array = NO_HOLES) -> None:
        """Add a forward of the round that is going on; see `Fed`."""
        self._feds.append(Fed(self._place(len(self.rounds), phase, model), columns, holes))

    def move(self, model: int, phase: int, blocks: Array, *, late: bool = False) -> None:
        """Add blocks that were copied at once, (n, 5) as in BLOCK.

        late: whether they belong to the round that has just ended.
        """
        self._moves.append((self._place(len(self.rounds) - late, phase, model), blocks))

    def round(self, ended: Round) -> None:
        """End a round."""
        self.rounds.append(ended)

    def _place(self, round: int, phase: int, model: int) -> Place:
        step = self._steps[round, phase, model]
        self._steps[round, phase, model] += 1
        return Place(round, phase, step, model)

    def cut(self) -> None:
        """Forget what came since the last round ended."""
        rounds = len(self.rounds)
        self._feds = [fed for fed in self._feds if fed.place.round < rounds]
        self._moves = [move for move in self._moves if move[0].round < rounds]
        self._steps = Counter({key: n for key, n in self._steps.items() if key[0] < rounds})

    def rows(self, names: Iterable[str]) -> Table:
        """Return those of these columns of `rows` that any round has, with -1 or NaN in others."""
        sizes = [ended.rows["row"].size for ended in self.rounds]
        found: Table = {"round": np.repeat(np.arange(len(sizes)), sizes)}
        for name in names:
            parts = [ended.rows.get(name) for ended in self.rounds]
            if all(part is None for part in parts):
                continue
            form = COLUMNS["rows"][name]
            # Of rounds with different numbers of candidates, those that all of them have.
            counts = [part.shape[2] for part in parts if part is not None and part.ndim == 3]
            widths = {"K": self._k, "K+1": self._k + 1}
            least = min(filter(None, counts), default=0)
            shape = [widths.get(letter, least) for letter in form.shape[1:]]
            fill, dtype = (np.nan, np.float32) if form.dtype == "float32" else (-1, np.int64)
            found[name] = np.full((sum(sizes), *shape), fill, dtype)
            for part, first in zip(parts, np.cumsum([0, *sizes]), strict=False):
                if part is not None:
                    cut = part[(slice(None), *map(slice, shape))]
                    place = (slice(first, first + len(cut)), *map(slice, cut.shape[1:]))
                    found[name][place] = cut
        return found

    def tables(self, eos_token_ids: Sequence[int] = ()) -> dict[str, Table]:
        """Return all tables of the rounds that have ended.

        Raises:
            TraceError: K claims tables far larger than what was given.
        """
        count = len(self.rounds)
        given = sum(values.size for ended in self.rounds for values in ended.rows.values())
        cells = sum(ended.rows["row"].size for ended in self.rounds) * (self._k + 1)
        if cells > FREE_CELLS + CELLS_PER_FEED * given:
            raise TraceError(
                f"num_draft_tokens={self._k} is far more than the logged rounds draft; pass the "
                "most that a row drafts"
            )
        feds = [fed for fed in self._feds if fed.place.round < count]
        moves = [move for move in self._moves if move[0].round < count]
        rows = self.rows(COLUMNS["rows"])
        feeds, holes = _feed_columns(feds)
        if count:
            self._fill_rows(rows, eos_token_ids)
            _fill_layout(rows, feeds, moves)
        facts = self.facts(_slots(count, rows, feeds))  # before what no forward says is filled in
        if feeds["row"].size:
            _fill_feeds(feeds, rows)
        places = np.array([place for place, _ in moves], np.int64).reshape(-1, len(Place._fields))
        places = np.repeat(places, [len(blocks) for _, blocks in moves], axis=0)
        blocks = np.concatenate([np.zeros((0, len(BLOCK)), np.int64), *(each for _, each in moves)])
        moved = np.concatenate([places, blocks], axis=1).T
        outputs: list[list[int]] = [[] for _ in self.prompts]
        if count:
            for request, tokens in zip(rows["request"].tolist(), rows["emitted"], strict=True):
                outputs[request] += tokens[tokens >= 0].tolist()
        budgets = [NO_BUDGET if budget is None else budget for budget in self.budgets]
        pools = {number: ended.pool for number, ended in enumerate(self.rounds) if ended.pool}
        sizes = [each["row"].size for each in pools.values()]
        pool: Table = {"round": np.repeat(np.array(list(pools), np.int64), sizes)}
        for name in next(iter(pools.values()), {}):
            pool[name] = np.concatenate([each[name] for each in pools.values()])
        tables = {
            "requests": flatten_requests(self.prompts, outputs, budgets),
            "rounds": facts,
            "rows": rows,
            "feeds": feeds,
            "holes": holes,
            "moves": dict(zip((*Place._fields, *BLOCK), moved, strict=True)),
            "pool": pool,
        }
        if any("after" in fed.columns for fed in feds):
            tables["states"] = _state_columns(feds)
        return {name: self.typed(name, columns) for name, columns in tables.items()}

    def typed(self, name: str, columns: Mapping[str, Any]) -> Table:
        """Return a table with dtypes as in the schema; a column that is not given is zero."""
        size = max((len(values) for values in columns.values()), default=0)
        sizes = {"N": size, "K": self._k, "K+1": self._k + 1}
        for letter, model in zip("kj", MODELS, strict=True):
            ids = columns.get(f"{model}_top_ids")
            sizes[letter] = 0 if ids is None else ids.shape[2]
        table: Table = {}
        for column, form in COLUMNS[name].items():
            if column in columns:
                table[column] = np.asarray(columns[column]).astype(form.dtype)
            elif column not in DERIVED.get(name, ()):
                table[column] = np.zeros([sizes[letter] for letter in form.shape], form.dtype)
        return table

    def _fill_rows(self, rows: Table, eos_token_ids: Sequence[int]) -> None:
        """Compute what rounds have left out, but for where rows lie in the cache."""
        number = np.arange(self._k)
        _fill(rows, "drafted", (rows["drafts"] >= 0).sum(axis=1))
        _fill(rows, "verified", rows["drafted"])
        _fill(rows, "gained", (rows["emitted"] >= 0).sum(axis=1))
        _fill(rows, "discarded", np.zeros_like(rows["gained"]))
        prompts = np.array([len(prompt) for prompt in self.prompts])
        if "length" not in rows:
            reached = prompts.copy()
            rows["length"] = np.zeros_like(rows["gained"])
            for entry, request in enumerate(rows["request"].tolist()):
                rows["length"][entry] = reached[request]
                reached[request] += rows["gained"][entry]
        budgets = np.array([NO_BUDGET if each is None else each for each in self.budgets])
        is_eos = np.isin(rows["emitted"], eos_token_ids).any(axis=1)
        grown = rows["length"] + rows["gained"] - prompts[rows["request"]]
        _fill(rows, "finished", is_eos | (grown >= budgets[rows["request"]]))
        if "parents" in rows:  # a round that gave none has chains
            sizes = [ended.rows["row"].size for ended in self.rounds]
            is_tree = np.repeat(["parents" in ended.rows for ended in self.rounds], sizes)[:, None]
            chain = np.where(number < rows["drafted"][:, None], number - 1, -1)
            rows["parents"] = np.where(is_tree, rows["parents"], chain)
            chain = np.where(number < rows["accepted"][:, None], number, -1)
            rows["path"] = np.where(is_tree, rows["path"], chain)
        for model in MODELS:
            if f"{model}_top_ids" in rows:
                # A round may give choices, without log-probabilities.
                ids, name = rows[f"{model}_top_ids"], f"{model}_top_logprobs"
                rows[name] = rows.get(name, np.full(ids.shape, np.nan))[:, :, : ids.shape[2]]
            own = rows.get(f"{model}_logprob", np.full(rows["drafts"].shape, np.nan))
            rows[f"{model}_logprob"] = np.where(np.isnan(own), _among(rows, model), own)

    def facts(self, slots: Array | None = None) -> dict[str, Any]:
        """Return the columns of `rounds`; `slots` (rounds,) where no round says its own."""
        facts = [ended.facts for ended in self.rounds]
        unknown = [np.nan] * len(PHASES)
        ms = np.array([each.get("ms", unknown) for each in facts]).reshape(-1, len(PHASES))
        found: dict[str, Any] = {f"{phase}_ms": ms[:, i] for i, phase in enumerate(PHASES)}
        found["batch"] = [ended.rows["row"].size for ended in self.rounds]
        found["slots"] = [
            each["slots"] if slots is None else each.get("slots", slots[i])
            for i, each in enumerate(facts)
        ]
        for name in ("capacity", "decision"):
            if all(name in each for each in facts):
                found[name] = [each[name] for each in facts]
        return found

    def missing(self, drafter: str | None) -> set[str]:
        """Return the names, as in MISSING, of what any forward or round lacks."""
        rounds = [ended.rows for ended in self.rounds]
        found = {"budget"} if None in self.budgets else set()
        if any(np.isnan(each.facts.get("ms", np.nan)).any() for each in self.rounds):
            found.add("times")
        if any("finished" not in rows for rows in rounds):
            found.add("finished")
        has_drafts = any((rows["drafts"] >= 0).any() for rows in rounds)
        has_draft_model = has_drafts and drafter not in _WITHOUT_MODEL
        entries = {"positions": "position", "slots": "slot", "visible": "visible_start"}
        for number, model in enumerate(MODELS[: 1 + has_draft_model]):
            of_model = [fed for fed in self._feds if fed.place.model == number]
            columns = [fed.columns for fed in of_model if fed.place.round < len(rounds)]
            lacks = {
                "feeds": not columns,
                **{name: any(e not in each for each in columns) for name, e in entries.items()},
                "candidates": any(f"{model}_top_ids" not in each for each in rounds),
                "logprobs": any(
                    not each.keys() & {f"{model}_logprob", f"{model}_top_logprobs"}
                    for each in rounds
                ),
            }
            found |= {f"{name}.{model}" for name, is_lacking in lacks.items() if is_lacking}
        return found


def ranges_of(mask: Array, nowhere: Array) -> Seen:
    """Return what the queries of a mask (m, T) saw; `nowhere` (m,) says where if nothing."""
    width = mask.shape[1]
    if not width:
        return Seen(nowhere, nowhere, NO_HOLES)
    any_seen = mask.any(axis=1)
    start = np.where(any_seen, mask.argmax(axis=1), nowhere)
    stop = np.where(any_seen, width - mask[:, ::-1].argmax(axis=1), nowhere)
    holed = np.flatnonzero(np.count_nonzero(mask, axis=1) < stop - start)
    column = np.arange(width)
    hidden = ~mask[holed] & (column >= start[holed, None]) & (column < stop[holed, None])
    edges = np.diff(hidden.astype(np.int8), axis=1, prepend=0, append=0)
    query, first = np.nonzero(edges == 1)
    _, behind = np.nonzero(edges == -1)
    return Seen(start, stop, np.stack([holed[query], first, behind], axis=1))


def _fill(rows: Table, name: str, computed: Array) -> None:
    """Set a column to what was computed where it is not given."""
    given = rows.get(name)
    rows[name] = computed if given is None else np.where(given >= 0, given, computed)


def _among(rows: Table, model: str) -> Array:
    """Return the log-probability of each draft (N, K) that is among its candidates, else NaN."""
    drafts = rows["drafts"]
    if f"{model}_top_ids" not in rows:
        return np.full(drafts.shape, np.nan)
    before = np.broadcast_to(np.arange(drafts.shape[1]), drafts.shape)
    is_known = drafts >= 0
    if model == "target":
        is_known = is_known & (before < rows["verified"][:, None])
        before = rows["parents"] + 1 if "parents" in rows else before  # 0 follows the pending token
    every = np.arange(len(drafts))[:, None]
    ids = rows[f"{model}_top_ids"][every, before]
    is_draft = (ids == drafts[:, :, None]) & is_known[:, :, None]
    logprobs = rows[f"{model}_top_logprobs"][every, before]
    found = np.where(is_draft, logprobs, -np.inf).max(axis=2, initial=-np.inf)
    return np.where(is_draft.any(axis=2), found, np.nan)


def _feed_columns(feds: Sequence[Fed]) -> tuple[Table, Table]:
    """Return the columns of `feeds`, -1 for what is not known, and those of `holes`."""
    places = np.array([fed.place for fed in feds], np.int64).reshape(-1, len(Place._fields))
    sizes = [fed.columns["row"].size for fed in feds]
    found = dict(zip(Place._fields, np.repeat(places, sizes, axis=0).T, strict=True))
    for name in COLUMNS["feeds"].keys() - found.keys():
        parts = [fed.columns.get(name) for fed in feds]
        known = zip(parts, sizes, strict=True)
        filled = [np.full(size, -1) if part is None else part for part, size in known]
        found[name] = np.concatenate([np.zeros(0, np.int64), *filled])
    holes = [NO_HOLES]
    for fed, first in zip(feds, np.cumsum([0, *sizes]), strict=False):
        holes.append(fed.holes + np.array([first, 0, 0]))
    return found, dict(zip(("feed", "start", "stop"), np.concatenate(holes).T, strict=True))


def _state_columns(feds: Sequence[Fed]) -> Table:
    """Return the columns of `states`: find the feeds that left what rows went on from."""
    requests = 1 + max(int(fed.columns["request"].max()) for fed in feds)
    width = 1 + max(int(fed.columns["index"].max()) for fed in feds)
    # The latest entry with each index of each request, by model; the last one stands for index -1.
    latest = np.full((len(MODELS), requests, width + 1), -1)
    found = []
    first = 0
    for fed in feds:
        row, request, index = (fed.columns[name] for name in ("row", "request", "index"))
        model = fed.place.model
        if "after" in fed.columns:
            own, at = np.unique(row, return_index=True)
            owner = fed.columns.get("after_request", request)[at]
            after = np.minimum(fed.columns["after"][at], width)
            found.append(
                np.stack(np.broadcast_arrays(*fed.place, own, latest[model, owner, after]))
            )
        latest[model, request, index] = first + np.arange(row.size)
        first += row.size
    return dict(zip((*Place._fields, "row", "feed"), np.concatenate(found, axis=1), strict=True))


def _fill_feeds(feeds: Table, rows: Table) -> None:
    """Fill in slots, nodes and what queries saw, where they are not known."""
    feeds["slot"] = np.where(feeds["slot"] < 0, feeds["index"], feeds["slot"])
    if (feeds["node"] < 0).all():
        del feeds["node"]  # a record computes it
    else:
        reads_drafts = (feeds["phase"] == _DRAFT) | (feeds["phase"] == _VERIFY)
        computed = np.where(reads_drafts, nodes(rows, feeds), 0)
        feeds["node"] = np.where(feeds["node"] < 0, computed, feeds["node"])
    feeds["window_offset"] = np.maximum(feeds["window_offset"], 0)
    # Queries of which nothing is known see from their row's start to themselves.
    unknown = np.flatnonzero(feeds["visible_start"] < 0)
    index = RecordIndex({"rows": rows, "feeds": feeds, "holes": {}})
    at = index.find_requests(feeds["round"][unknown], feeds["request"][unknown])
    slot = feeds["slot"][unknown]
    start = np.where(at >= 0, rows["start"][at], slot - feeds["index"][unknown])
    feeds["visible_start"][unknown] = np.clip(start, 0, slot)
    feeds["visible_stop"][unknown] = slot + 1


def _slots(count: int, rows: Table, feeds: Table) -> Array:
    """Return how many columns each verification saw, or reached where the forwards do not say."""
    ends = np.zeros(count, np.int64)
    if count:
        np.maximum.at(ends, rows["round"], rows["pending"] + rows["drafted"] + 1)
    is_verify = (feeds["model"] == 0) & (feeds["phase"] == _VERIFY) & (feeds["slot"] >= 0)
    seen = np.zeros(count, np.int64)
    np.maximum.at(seen, feeds["round"][is_verify], feeds["visible_stop"][is_verify])
    return np.where(seen > 0, seen, ends)


def _fill_layout(rows: Table, feeds: Table, moves: Sequence[tuple[Place, Array]]) -> None:
    """Fill in where rows begin and end in the target's cache, as forwards and moves say.

    A row begins where the K/V of its index 0 lies.
    """
    size = rows["round"].size
    names = ("start", "pending", "start_after", "pending_after")
    start, pending, start_after, after = (rows.get(name, np.full(size, -1)) for name in names)
    if not any((each < 0).any() for each in (start, pending, start_after, after)):
        return
    begun, begun_after = _begins(rows, feeds, moves)
    start = np.where(start >= 0, start, begun)
    is_verify = (feeds["model"] == 0) & (feeds["phase"] == _VERIFY) & (feeds["slot"] >= 0)
    columns = ("round", "request", "index", "slot", "visible_start")
    fed: dict[tuple[int, int, int], int] = {}
    seen: dict[tuple[int, int], int] = {}
    for number, request, index, slot, first in zip(
        *(feeds[name][is_verify].tolist() for name in columns), strict=True
    ):
        fed[number, request, index] = slot
        if first >= 0:
            seen.setdefault((number, request), first)
    entries = zip(*(rows[name].tolist() for name in ("round", "request", "length")), strict=True)
    for entry, (number, request, length) in enumerate(entries):
        slot = fed.get((number, request, length - 1), -1)
        if start[entry] < 0:
            # The target was never fed index 0, as with a prefix that was in the cache before.
            start[entry] = seen.get((number, request), max(slot - length + 1, 0))
        if pending[entry] < 0:
            pending[entry] = start[entry] + length - 1 if slot < 0 else slot
    start_after = np.where(start_after >= 0, start_after, begun_after)
    start_after = np.where(start_after >= 0, start_after, start)
    # Rows may move between two rounds, and keep the distance of their ends.
    reached = start_after + (pending - start) + rows["gained"]
    order = np.argsort(rows["request"], kind="stable")
    follows = np.flatnonzero(rows["request"][order][1:] == rows["request"][order][:-1])
    this, following = order[follows], order[follows + 1]
    reached[this] = start_after[this] + pending[following] - start[following]
    after = np.where(after >= 0, after, reached)
    rows.update(zip(names, (start, pending, start_after, after), strict=True))


def _begins(rows: Table, feeds: Table, moves: Sequence[tuple[Place, Array]]) -> Array:
    """Return the slot of index 0 of each row before and after it is synchronised, -1 if unknown.

    The result is (2, N).
    """
    is_first = (feeds["model"] == 0) & (feeds["index"] == 0) & (feeds["slot"] >= 0)
    names = (*Place._fields, "request", "row", "slot")
    # (place, where index 0 of requests was fed, blocks that were moved)
    events: list[tuple[tuple[int, ...], dict[int, tuple[int, int]], list[list[int]]]] = []
    for *place, request, row, slot in zip(
        *(feeds[name][is_first].tolist() for name in names), strict=True
    ):
        events.append((tuple(place), {request: (row, slot)}, []))
    events += [(place, {}, blocks.tolist()) for place, blocks in moves if place.model == 0]
    events.sort(key=lambda event: event[0])
    first: dict[int, tuple[int, int]] = {}  # by request: row and slot of its index 0
    found = np.full((2, rows["round"].size), -1)
    edges = np.searchsorted(rows["round"], np.arange(rows["round"].max(initial=-1) + 2)).tolist()
    at = 0
    for number, (begin, stop) in enumerate(pairwise(edges)):
        for late in (0, 1):
            while at < len(events) and events[at][0][:2] < (number, _SYNCHRONISE + late):
                _, fed, blocks = events[at]
                moved = {
                    request: (to_row, slot - from_slot + to_slot)
                    for from_row, from_slot, to_row, to_slot, length in blocks
                    for request, (row, slot) in first.items()
                    if row == from_row and from_slot <= slot < from_slot + length
                }
                first |= fed | moved
                at += 1
            requests = rows["request"][begin:stop].tolist()
            found[late, begin:stop] = [first.get(request, (-1, -1))[1] for request in requests]
    return found
