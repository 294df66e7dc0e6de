"""The table `rows` of a record, with what rules ask of each row in each round.

Contract: reads the record alone, and takes what rules find. Not known here: the rules.
"""

from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from specviz.checks.branches import Branches
from specviz.checks.fates import target_choices
from specviz.checks.violations import Findings
from specviz.record.schema import MODELS, PHASES, Array
from specviz.record.trace import Trace
from specviz.record.trees import pair

NO_EOS = 2**31  # larger than any output
_TARGET = MODELS.index("target")
_SCHEDULE, _VERIFY, _ACCEPT, _SYNCHRONISE = (
    PHASES.index(name) for name in ("schedule", "verify", "accept", "synchronise")
)


@dataclass(frozen=True, eq=False)
class TargetFeeds:
    """What the target was fed of each entry in the phase verify, (N,) if nothing else is said.

    Attributes:
        feeds: entries of the table `feeds`, (m,); entry: (m,) the entry of `rows` of each.
        is_pending: bool (m,), whether it is the row's pending token.
        seen_from, seen_until: the first slot that any query of the row saw, and the one behind the
            last; -1 where nothing was fed.
        pending_slot: the slot of the pending token, -1 where it was not fed.
    """

    feeds: Array
    entry: Array
    is_pending: Array
    seen_from: Array
    seen_until: Array
    pending_slot: Array


class RoundTable:
    """One entry per round and row, N of them. Columns are attributes.

    They are the scalar columns of the table `rows` as int64 (N,), and of each entry's request:
    prompt, output and budget in tokens; before and after, its new tokens before and after this
    round; end, its new tokens up to and including the first EOS, NO_EOS without one. Drafts,
    emitted and the other columns with several values are those of the record.

    Attributes:
        trace: the record.
        findings: what was found.
        size: N.
    """

    def __init__(self, trace: Trace, findings: Findings) -> None:
        self.trace = trace
        self.findings = findings
        self.table: dict[str, Array] = {}
        for name, values in trace.rows.items():
            if values.ndim == 1:
                self.table[name] = values.astype(np.int64)
        request = self.table["request"]
        self.size = request.size
        self.table["prompt"] = np.diff(trace.requests["prompt_offsets"])[request]
        self.table["output"] = np.diff(trace.requests["output_offsets"])[request]
        self.table["budget"] = trace.requests["budget"][request]
        self.table["end"] = _ends(trace)[request]
        self.table["before"] = self.table["length"] - self.table["prompt"]
        self.table["after"] = self.table["before"] + self.table["gained"]

    def column(self, name: str) -> Array:
        """Return a column, (N,) or (N, m)."""
        values: Array = self.table[name] if name in self.table else self.trace.rows[name]
        return values

    def __getattr__(self, name: str) -> Array:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self.column(name)
        except KeyError:
            raise AttributeError(name) from None

    def below(self, count: Array, columns: int | None = None) -> Array:
        """Return which of the first columns lie below a count (N,), bool (N, m); m = K if None."""
        width = self.drafts.shape[1] if columns is None else columns
        found: Array = np.arange(width) < count[:, None]
        return found

    @property
    def every(self) -> Array:
        """The numbers of the entries, (N,)."""
        return np.arange(self.size)

    def where(self, mask: Any) -> Iterator[Any]:
        """Yield the entries that a mask (N,) names, as named tuples."""
        return map(self.entry, np.flatnonzero(mask).tolist())

    def each(self, mask: Array) -> Iterator[tuple[Any, int]]:
        """Yield the entry and the column of each place that a mask (N, m) names."""
        for entry, j in np.argwhere(mask).tolist():
            yield self.entry(entry), j

    def entry(self, number: int) -> Any:
        """Return one entry, as a named tuple."""
        return self._entry(number, *(int(values[number]) for values in self.table.values()))

    @cached_property
    def _entry(self) -> Any:
        return namedtuple("Entry", ["Index", *self.table])

    @cached_property
    def branches(self) -> Branches:
        """How the drafts of each entry branch."""
        return Branches(self.trace)

    @cached_property
    def choices(self) -> Array:
        """The target's choice after each draft, (N, K+1); -1 where the record does not say."""
        return target_choices(self.trace)

    @cached_property
    def is_last(self) -> Array:
        """Whether an entry is the last one of its request, bool (N,)."""
        return self.following < 0

    @cached_property
    def following(self) -> Array:
        """The next entry of the same request, (N,), -1 for its last one."""
        order = np.argsort(self.request, kind="stable")
        follows = np.flatnonzero(np.diff(self.request[order]) == 0)
        found = np.full(self.size, -1)
        found[order[follows]] = order[follows + 1]
        return found

    def next_of(self, values: Array) -> Array:
        """Return `values` (N,) of the same request's next entry; the last entry keeps its own."""
        following: Array = values[np.where(self.following >= 0, self.following, self.every)]
        return following

    @cached_property
    def drafts_first(self) -> Array:
        """Which entries draft in the first round that drafts, bool (N,): where to say once what
        holds for a whole run.
        """
        drafts = self.drafted > 0
        return drafts & (self.round == self.round[drafts].min(initial=self.trace.num_rounds))

    @cached_property
    def ended_not_finite(self) -> Array:
        """Whether an entry is of a request that ended because of NaN or infinity, bool (N,)."""
        statuses = enumerate(self.trace.meta.get("status", ()))
        requests = [request for request, status in statuses if status == "not_finite"]
        found: Array = np.isin(self.request, requests)
        return found

    @cached_property
    def verified_feeds(self) -> TargetFeeds:
        """What the target was fed in the phase verify."""
        feeds, count = self.trace.feeds, self.size
        which = np.flatnonzero((feeds["phase"] == _VERIFY) & (feeds["model"] == _TARGET))
        entry = self.entries_of(which)
        which, entry = which[entry >= 0], entry[entry >= 0]
        # Larger than any slot, so that the minimum below is that of real ones.
        first = np.full(count, np.iinfo(np.int32).max)
        np.minimum.at(first, entry, feeds["visible_start"][which])
        stop = np.full(count, -1)
        np.maximum.at(stop, entry, feeds["visible_stop"][which])
        is_pending = feeds["index"][which] == self.length[entry] - 1
        pending = np.full(count, -1)
        pending[entry[is_pending]] = feeds["slot"][which[is_pending]]
        seen_from = np.where(stop < 0, -1, first)
        return TargetFeeds(which, entry, is_pending, seen_from, stop, pending)

    def entries_of(self, feeds: Array) -> Array:
        """Return the entry of each of these entries of `feeds`, -1 for one outside the batch."""
        entry = self.trace.index.feed_rows[feeds]
        # -1 takes the appended one, which belongs to no request.
        is_own = np.append(self.request, -1)[entry] == self.trace.feeds["request"][feeds]
        return np.where(is_own, entry, -1)

    @cached_property
    def widest(self) -> Array:
        """The most slots that each request's K/V takes before its pending token, holes too, (R,).

        0 for a request without entries.
        """
        found = np.zeros(self.trace.num_requests, np.int64)
        for suffix in ("", "_after"):
            span = self.column(f"pending{suffix}") - self.column(f"start{suffix}")
            np.maximum.at(found, self.request, span)
        return found

    @cached_property
    def status(self) -> Array:
        """How each entry's request ended, as the header says, (N,); "" for all but its last entry,
        and where the header says nothing.
        """
        statuses = self.trace.meta.get("status", ())
        known = np.array([*statuses, *[""] * self.trace.num_requests], object)
        return np.where(self.is_last, known[self.request], "")

    @cached_property
    def has_eos(self) -> Array:
        """Whether the output of each entry's request ends with EOS, bool (N,)."""
        eos = set(self.trace.meta["eos_token_ids"])
        outputs = map(self.trace.output, range(self.trace.num_requests))
        found = np.array([bool(output) and output[-1] in eos for output in outputs], bool)
        return found[self.request]

    # ---- what could have been kept ----

    @cached_property
    def possible(self) -> tuple[Array, Array]:
        """How many tokens each entry could keep at least and at most, both (N,).

        They are equal where the record has the target's choices.
        """
        k = self.drafts.shape[1]
        choices = self.choices
        is_verified = self.below(self.verified)
        is_known: Array = np.all((choices[:, :k] >= 0) | ~is_verified, axis=1)
        agreed = ((self.drafts == choices[:, :k]) & is_verified).cumprod(axis=1).sum(axis=1)
        branches = self.branches
        if branches.any:
            of_tree, last = branches.follow(choices)
            agreed = np.where(branches.is_tree, of_tree, agreed)
            is_on_way = branches.ancestors[self.every, last]
            choices = np.where(branches.is_tree[:, None], _in_order(choices, is_on_way), choices)
        least = np.where(is_known, agreed, self.accepted) + 1
        most = np.where(is_known, agreed, self._most_accepted()) + 1

        to_eos = self.end - self.before
        # Behind what was gained, EOS may lie in what was thrown away.
        is_eos = np.isin(choices, np.array(self.trace.meta["eos_token_ids"], np.int64))
        is_eos &= is_known[:, None]
        to_chosen_eos = np.where(is_eos.any(1), is_eos.argmax(1) + 1, to_eos)
        limit = np.minimum(self.budget - self.before, np.minimum(to_eos, to_chosen_eos))
        return np.minimum(least, limit), np.minimum(most, limit)

    def _most_accepted(self) -> Array:
        """Return how many drafts the target can have accepted if its choices are not known, (N,).

        A draft that was replaced by another token was rejected, and nothing behind it counts.
        """
        k = self.drafts.shape[1]
        emitted = self.emitted[self.every, self.accepted]
        is_own = emitted != self.rejected
        most = np.minimum(self.verified, k)
        branches = self.branches
        if branches.any:
            deepest = np.where(self.below(self.verified), branches.depths[:, 1:], 0).max(
                1, initial=0
            )
            most = np.where(branches.is_tree, deepest, most)
        found: Array = np.where((self.gained > self.accepted) & is_own, self.accepted, most)
        return found

    @cached_property
    def rejected(self) -> Array:
        """The draft that was not accepted behind the accepted ones, (N,), -1 if there is none.

        Of a tree, it is one that equals what was emitted there.
        """
        drafts = np.append(self.drafts, np.full((self.size, 1), -1), axis=1)
        found = drafts[self.every, self.accepted]
        branches = self.branches
        if branches.any:
            emitted = self.emitted[self.every, self.accepted]
            is_child = branches.is_next & (self.drafts == emitted[:, None])
            of_tree = np.where(is_child.any(1), emitted, -1)
            found = np.where(branches.is_tree, of_tree, found)
        return found

    # ---- what happens to a row between two of its rounds ----

    @cached_property
    def reads(self) -> Array:
        """A key for each (round, request) in which the target is fed index 0, sorted."""
        feeds = self.trace.feeds
        is_first = (feeds["model"] == _TARGET) & (feeds["index"] == 0)
        return np.unique(pair(feeds["round"][is_first], feeds["request"][is_first]))

    @cached_property
    def is_read_again(self) -> Array:
        """Whether the K/V of an entry's row is computed again in its next round, bool (N,)."""
        then = self.next_of(self.round)
        return ~self.is_last & np.isin(pair(then, self.request), self.reads)

    @cached_property
    def is_still(self) -> Array:
        """Whether K/V is not moved in the round, and not computed again in the next, bool (N,)."""
        # A request that is read twice: its last K/V may have been given up without a sign.
        nothing_is_read_twice = self.reads.size <= self.trace.num_requests
        begin = self.round * len(PHASES)
        moved = self._moves_into(begin + _SCHEDULE, begin + _SYNCHRONISE)
        return (~self.is_last | nothing_is_read_twice) & ~self.is_read_again & (moved == 0)

    @cached_property
    def stays(self) -> Array:
        """Whether a row goes on in the same cache row, not moved and not computed again, bool (N,).

        That is until its next round ends scheduling.
        """
        same_row = ~self.is_last & (self.next_of(self.row) == self.row)
        end = self.round * len(PHASES) + _SYNCHRONISE
        later = self.next_of(self.round) * len(PHASES) + _SCHEDULE
        return same_row & ~self.is_read_again & (self._moves_into(end, later) == 0)

    @cached_property
    def stays_alone(self) -> Array:
        """`stays`, and no request enters, which may push a batch's common end further."""
        is_first = np.zeros(self.size, bool)
        is_first[np.unique(self.request, return_index=True)[1]] = True
        entered = np.sort(self.round[is_first])
        until = np.searchsorted(entered, self.next_of(self.round), "right")
        return self.stays & (until == np.searchsorted(entered, self.round, "right"))

    def _moves_into(self, after: Array, until: Array) -> Array:
        """Return how many moves come into the target's rows after a stage up to another, (N,)."""
        keys, stages = self._move_keys
        base = self.row * stages
        first = np.searchsorted(keys, base + after, "right")
        return np.searchsorted(keys, base + until, "right") - first

    @cached_property
    def _move_keys(self) -> tuple[Array, int]:
        moves = self.trace.moves
        stages = self.trace.num_rounds * len(PHASES)
        # The accepted drafts of a tree move within their row, which stays where it is.
        is_targets = (moves["model"] == _TARGET) & (moves["phase"] != _ACCEPT)
        stage = moves["round"].astype(np.int64) * len(PHASES) + moves["phase"]
        return np.sort((moves["to_row"] * np.int64(stages) + stage)[is_targets]), stages

    # ---- findings ----

    def has_finding(self, rule: str, phase: str, entry: Any) -> bool:
        """Return whether a rule has found something in the row and phase of an entry already."""
        stage = entry.round * len(PHASES) + PHASES.index(phase)
        return self.findings.has(rule, stage, entry.row, entry.request)

    def report(
        self, rule: str, phase: str, entry: Any, expected: str, found: str, **more: Any
    ) -> None:
        """Add a violation for an entry; more: see `Findings.add`."""
        stage = entry.round * len(PHASES) + PHASES.index(phase)
        self.findings.add(rule, stage, entry.row, entry.request, expected, found, **more)

    def token(self, token: int) -> str:
        """Name a token: its id, and its text where the record has it."""
        is_named = str(token) in self.trace.meta["token_texts"]
        return f"{token} ({self.trace.text(token)!r})" if is_named else f"{token}"


def _ends(trace: Trace) -> Array:
    """Return each request's number of new tokens up to EOS or a stop string, inclusive, (R,)."""
    statuses = trace.meta.get("status", ())
    ends = np.full(trace.num_requests, NO_EOS)
    for request in range(trace.num_requests):
        is_eos = np.isin(trace.output(request), trace.meta["eos_token_ids"])
        if is_eos.any():
            ends[request] = is_eos.argmax() + 1
        elif list(statuses[request : request + 1]) == ["stop"]:
            ends[request] = is_eos.size
    return ends


def _in_order(values: Array, chosen: Array) -> Array:
    """Return the values (N, m) that are chosen, in order and before the others; those are -1."""
    order = np.argsort(~chosen, axis=1, kind="stable")
    ordered: Array = np.take_along_axis(np.where(chosen, values, -1), order, axis=1)
    return ordered
