"""The index of a record: where the entries of each round, phase, forward, row and request are.

Each part of a `RecordIndex` is computed on first use and then kept, so that all readers of a record
share one index, `trace.index`.
"""

from collections.abc import Mapping
from functools import cached_property
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from specviz.record.schema import ACCEPTED, BONUS, PHASES, PROMPT, Array, Table
from specviz.record.trees import branching, ends, find, follows_accepted, pair


class Groups:
    """The entries of a table, grouped by an int key.

    Attributes:
        order: (N,), all entries sorted by key; entries of one key in the order of the table.
        keys: (N,), the key of each entry in `order`.
    """

    def __init__(self, keys: Array) -> None:
        self.order = np.argsort(keys, kind="stable")
        self.keys = keys[self.order]

    def at(self, key: int) -> Array:
        """Return the entries with this key."""
        # Sorted once, found by bisection: a record has a group for each of thousands of rounds.
        first, stop = np.searchsorted(self.keys, (key, key + 1))
        return self.order[first:stop]

    def bounds(self, keys: Array) -> tuple[Array, Array]:
        """Return for each of `keys` (n,) where its entries begin and end in `order`."""
        return np.searchsorted(self.keys, keys, "left"), np.searchsorted(self.keys, keys, "right")


class Step(NamedTuple):
    """What happened at once in the cache of one model.

    Attributes:
        stage: round * 5 + phase.
        model: index into MODELS.
        moves: entries of the table `moves`. All of them read before any of them writes.
        feeds: entries of the table `feeds`, one forward. It runs after the moves.
    """

    stage: int
    model: int
    moves: Array
    feeds: Array


class Committed:
    """The committed tokens of all requests, prompt and output, concatenated.

    Attributes:
        tokens: int32 (n,).
        rounds: int32 (n,), the round that committed each token, -1 for a prompt's.
        origins: uint8 (n,), PROMPT, ACCEPTED (a draft) or BONUS (the target).
        first, size: int64 (R,), where the tokens of each request begin, and how many there are.
    """

    def __init__(self, requests: Table, rows: Table) -> None:
        prompts = np.diff(requests["prompt_offsets"])
        outputs = np.diff(requests["output_offsets"])
        self.size = prompts + outputs
        self.first = self.size.cumsum() - self.size

        # Prompt, output, prompt, output, ...
        counts = np.stack([prompts, outputs], axis=1).ravel()
        is_prompt = np.repeat(np.tile([True, False], prompts.size), counts)
        self.tokens = np.empty(is_prompt.size, np.int32)
        self.tokens[is_prompt] = requests["prompt_tokens"]
        self.tokens[~is_prompt] = requests["output_tokens"]

        begin = self.first[rows["request"]] + rows["length"]  # (N,), of what each row gained
        self.rounds = np.full(self.tokens.size, -1, np.int32)
        self.rounds[joined_ranges(begin, rows["gained"])] = np.repeat(rows["round"], rows["gained"])

        # EOS or the budget may have cut accepted drafts off.
        kept_drafts = np.minimum(rows["accepted"], rows["gained"])
        # What a row gained is drafts, then the target's token, so all other tokens are bonuses.
        self.origins = np.where(is_prompt, PROMPT, BONUS)
        self.origins[joined_ranges(begin, kept_drafts)] = ACCEPTED


class RecordIndex:
    """Finds entries of a record's tables. A stage is round * 5 + phase."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._tables = tables
        self._rows = tables["rows"]
        self._feeds = tables["feeds"]
        self._holes = tables["holes"]

    @cached_property
    def cache_shape(self) -> tuple[int, int]:
        """(rows, slots) of a cache that holds every row and slot in the record."""

        def most(table: str, *names: str) -> int:
            # As int64: numbers of a damaged record may have a sum that overflows int32.
            columns = [self._tables[table][name].astype(np.int64) for name in names]
            return int(np.sum(columns, axis=0).max(initial=0))

        rows = max(most("rows", "row"), most("feeds", "row"))
        rows = max(rows, most("moves", "from_row"), most("moves", "to_row"))
        slots = (
            most("rounds", "slots"),
            most("feeds", "visible_stop"),
            most("feeds", "slot") + 1,
            most("rows", "start", "length", "gained"),
            most("rows", "start_after", "length", "gained"),
            most("rows", "pending", "gained") + 1,
            most("rows", "pending_after", "gained") + 1,
            most("moves", "from_slot", "length"),
            most("moves", "to_slot", "length"),
        )
        return rows + 1, max(slots)

    @cached_property
    def committed(self) -> Committed:
        """The committed tokens of all requests."""
        return Committed(self._tables["requests"], self._rows)

    @cached_property
    def row_bounds(self) -> Array:
        """Where each round begins in the table `rows`, and where the last ends, (rounds + 1,)."""
        num_rounds = self._tables["rounds"]["batch"].size
        return np.searchsorted(self._rows["round"], np.arange(num_rounds + 1))

    def rows_of(self, round: int) -> slice:
        """Return the entries of a round in the table `rows`."""
        return slice(int(self.row_bounds[round]), int(self.row_bounds[round + 1]))

    def find_rows(self, rounds: Array, rows: Array) -> Array:
        """Return the entry of `rows` for each round (n,) and cache row (n,), -1 where none is."""
        keys = pair(self._rows["round"], self._rows["row"])  # sorted, as the schema demands
        return find(keys, pair(rounds, rows))

    def find_requests(self, rounds: Array, requests: Array) -> Array:
        """Return the entry of `rows` for each round (n,) and request (n,), -1 where none is."""
        groups = self._rows_by_request
        at = find(groups.keys, pair(rounds, requests))
        return np.append(groups.order, -1)[at]

    @cached_property
    def feed_rows(self) -> Array:
        """The entry of `rows` with the round and cache row of each feed (F,), -1 where none is."""
        return self.find_rows(self._feeds["round"], self._feeds["row"])

    @cached_property
    def follows_accepted(self) -> Array:
        """Whether all that each feed follows was or is committed, as far as its round says, (F,).

        Of drafts this holds behind accepted ones alone. It does not hold of a draft that was read
        but not proposed, since the record does not say what it follows.
        """
        node = self._feeds["node"]
        follows = node == 0
        known = follows_accepted(self._rows)  # (N, K)
        is_proposed = (node > 0) & (node <= known.shape[1]) & (self.feed_rows >= 0)
        drafts = np.flatnonzero(is_proposed)
        entry = self.feed_rows[drafts]
        same = self._rows["request"][entry] == self._feeds["request"][drafts]
        follows[drafts] = same & known[entry, node[drafts] - 1]
        return follows

    @cached_property
    def on_branches(self) -> Array:
        """Return whether each feed is a draft of a row with a tree of drafts, bool (F,)."""
        is_draft = (self._feeds["node"] > 0) & (self.feed_rows >= 0)
        found = np.zeros(is_draft.shape, bool)
        found[is_draft] = branching(self._rows)[self.feed_rows[is_draft]]
        return found

    @cached_property
    def ends(self) -> Array:
        """The slot of each row's last token after its acceptance, by entry of `rows`, (N,)."""
        moves = self._tables["moves"]
        within = (moves["phase"] == PHASES.index("accept")) & (moves["model"] == 0)
        within &= moves["from_row"] == moves["to_row"]
        at = self.find_rows(moves["round"][within], moves["to_row"][within])
        moved = np.zeros(self._rows["row"].size, bool)
        moved[at[at >= 0]] = True
        return ends(self._rows, moved)

    @cached_property
    def feeds_by_stage(self) -> Groups:
        """The table `feeds` by stage."""
        return Groups(_stages(self._feeds))

    @cached_property
    def moves_by_stage(self) -> Groups:
        """The table `moves` by stage."""
        return Groups(_stages(self._tables["moves"]))

    @cached_property
    def pool_by_round(self) -> Groups:
        """The table `pool` by round."""
        return Groups(self._tables["pool"]["round"])

    @cached_property
    def holes_by_feed(self) -> Groups:
        """The table `holes` by entry of `feeds`."""
        return Groups(self._holes["feed"])

    @cached_property
    def has_holes(self) -> Array:
        """Whether slots were masked out of what each feed attended to, bool (F,)."""
        found = np.zeros(self._feeds["slot"].size, bool)
        found[self._holes["feed"]] = True
        return found

    @cached_property
    def steps(self) -> list[Step]:
        """All steps, sorted by stage, model and step."""
        feeds = by_step(self._feeds)
        moves = by_step(self._tables["moves"])
        nothing = np.zeros(0, np.int64)
        keys = sorted(feeds.keys() | moves.keys())
        return [Step(*k[:2], moves.get(k, nothing), feeds.get(k, nothing)) for k in keys]

    def steps_of(self, stage: int) -> list[Step]:
        """Return the steps of a stage."""
        return self._steps_by_stage.get(stage, [])

    @cached_property
    def _steps_by_stage(self) -> dict[int, list[Step]]:
        steps = groupby(self.steps, key=lambda step: step.stage)
        return {stage: list(group) for stage, group in steps}

    def visible(self, feeds: Array) -> Array:
        """Return the slots that feeds (q,) attended to.

        bool (q, w), w being the slot behind the last one that any of them attended to.
        """
        start = self._feeds["visible_start"][feeds, None]
        stop = self._feeds["visible_stop"][feeds, None]
        slots = np.arange(stop.max(initial=0))
        seen: Array = (slots >= start) & (slots < stop)

        first, last = self.holes_by_feed.bounds(feeds)
        counts = last - first
        if counts.any():
            holes = self.holes_by_feed.order[joined_ranges(first, counts)]
            query = np.repeat(np.arange(feeds.size), counts)
            # +1 where a hole begins and -1 where one ends: the running sum counts the holes over a
            # slot, without a loop over holes.
            edges = np.zeros((feeds.size, slots.size + 1), np.int32)
            np.add.at(edges, (query, self._holes["start"][holes]), 1)
            np.add.at(edges, (query, self._holes["stop"][holes]), -1)
            seen &= edges[:, :-1].cumsum(axis=1) == 0  # (q, w), outside of all holes
        return seen

    @cached_property
    def _rows_by_request(self) -> Groups:
        return Groups(pair(self._rows["round"], self._rows["request"]))


def joined_ranges(first: Array, counts: Array) -> Array:
    """Return first[i] .. first[i] + counts[i] - 1 for each i, concatenated."""
    counts = counts.astype(np.int64)
    offset = first - counts.cumsum() + counts
    return np.repeat(offset, counts) + np.arange(counts.sum())


def _stages(table: Table) -> Array:
    return table["round"].astype(np.int64) * len(PHASES) + table["phase"]


def by_step(table: Table) -> dict[tuple[int, int, int], Array]:
    """Return the entries of `feeds` or `moves` by (stage, model, step)."""
    stages = _stages(table)
    order = np.lexsort((table["step"], table["model"], stages))
    keys = np.stack([stages, table["model"], table["step"]], axis=1)[order]  # (N, 3)
    firsts = np.flatnonzero((np.diff(keys, axis=0, prepend=-1) != 0).any(1))
    bounds = [*firsts.tolist(), order.size]
    spans = zip(map(tuple, keys[firsts].tolist()), pairwise(bounds), strict=True)
    return {key: order[first:stop] for key, (first, stop) in spans}
