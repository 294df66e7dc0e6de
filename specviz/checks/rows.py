"""The table `rows` of a record with what the row rules ask of it.

Contract: reads the record alone, and turns masks over its entries into reports. Not known here: the
rules.
"""

from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from specviz.checks.branches import Branches
from specviz.checks.violations import Findings
from specviz.record.schema import MODELS, PHASES, Array
from specviz.record.trace import Trace

NO_EOS = 2**31  # larger than any output
_TARGET = MODELS.index("target")
_VERIFY = PHASES.index("verify")


@dataclass(frozen=True, eq=False)
class TargetFeeds:
    """What the target was fed of each entry of `rows` in the phase verify, all (N,).

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


class Rows:
    """One entry per round and row.

    Attributes:
        trace: the record.
        size: N, the number of entries.
        table: the scalar columns of the table `rows` as int64 (N,), and of each entry's request:
            prompt, output and budget in tokens; before and after, its new tokens before and after
            this round; end, its new tokens up to and including the first EOS, NO_EOS without one.
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
        """Return a column of the table as (N, 1)."""
        values: Array = self.table[name][:, None]
        return values

    def where(self, mask: Any) -> Iterator[Any]:
        """Yield the entries that a mask (N,) names, as named tuples."""
        return map(self.entry, np.flatnonzero(mask).tolist())

    def each(self, mask: Array) -> Iterator[tuple[Any, int]]:
        """Yield the entry and the column of each place that a mask (N, m) names."""
        for entry in self.where(mask.any(1)):
            for j in np.flatnonzero(mask[entry.Index]).tolist():
                yield entry, j

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
    def is_last(self) -> Array:
        """Whether an entry is the last one of its request, bool (N,)."""
        # np.unique returns first places, so it is given the entries from the end.
        found = np.zeros(self.size, bool)
        _, last = np.unique(self.table["request"][::-1], return_index=True)
        found[self.size - 1 - last] = True
        return found

    def has_finding(self, rule: str, phase: int, entry: Any) -> bool:
        """Return whether a rule has found something in the row and phase of an entry already."""
        stage = entry.round * len(PHASES) + phase
        return self.findings.has(rule, stage, entry.row, entry.request)

    @cached_property
    def verified(self) -> TargetFeeds:
        """What the target was fed in the phase verify."""
        feeds, count = self.trace.feeds, self.size
        which = np.flatnonzero((feeds["phase"] == _VERIFY) & (feeds["model"] == _TARGET))
        entry = self.trace.index.feed_rows[which]
        is_own = (entry >= 0) & (feeds["request"][which] == self._of("request", entry))
        which, entry = which[is_own], entry[is_own]
        # Larger than any slot, so that the minimum below is that of real ones.
        first = np.full(count, np.iinfo(np.int32).max)
        np.minimum.at(first, entry, feeds["visible_start"][which])
        stop = np.full(count, -1)
        np.maximum.at(stop, entry, feeds["visible_stop"][which])
        is_pending = feeds["index"][which] == self._of("length", entry) - 1
        pending = np.full(count, -1)
        pending[entry[is_pending]] = feeds["slot"][which[is_pending]]
        seen_from = np.where(stop < 0, -1, first)
        return TargetFeeds(which, entry, is_pending, seen_from, stop, pending)

    def _of(self, name: str, entry: Array) -> Array:
        """Return a column of `rows` for entries (m,), any value where the entry is -1."""
        column = np.append(self.trace.rows[name], -1)
        values: Array = column[entry]
        return values

    @cached_property
    def widest(self) -> Array:
        """The most slots that each request's K/V takes before its pending token, holes too, (R,).

        0 for a request without entries.
        """
        rows = self.trace.rows
        found = np.zeros(self.trace.num_requests, np.int64)
        for suffix in ("", "_after"):
            span = rows[f"pending{suffix}"].astype(np.int64) - rows[f"start{suffix}"]
            np.maximum.at(found, rows["request"], span)
        return found

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
    """Return each request's number of new tokens up to and including the first EOS, (R,)."""
    ends = np.full(trace.num_requests, NO_EOS)
    for request in range(trace.num_requests):
        is_eos = np.isin(trace.output(request), trace.meta["eos_token_ids"])
        if is_eos.any():
            ends[request] = is_eos.argmax() + 1
    return ends
