"""The rules "state" and "window": of layers that do not attend to K/V of all tokens.

A state stands for the text that it was computed from: what its token has read, and before that all
that the states have read which that forward went on from. So it is right if that text is the row's.
Not known here: models, and what a state looks like.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from specviz.checks.table import RoundTable
from specviz.record.index import by_step
from specviz.record.schema import MODELS, PHASES, Array
from specviz.record.windows import window_of, window_offsets
from specviz.util.text import count

_PRIME, _SIZE = 1_000_003, 2**61 - 1


def _read(digest: int, token: int) -> int:
    """Return what stands for a text and a token behind it, from what stands for the text."""
    return (digest * _PRIME + token + 1) % _SIZE


def states_follow_the_row(t: RoundTable) -> None:
    """Check from which states the rows of each forward go on."""
    states, feeds = t.trace.states, t.trace.feeds
    sources = {
        (*key, row): source
        for key, entries in by_step(states).items()
        for row, source in zip(
            states["row"][entries].tolist(), states["feed"][entries].tolist(), strict=True
        )
    }
    models = set(states["model"].tolist())
    walk = _States(t)
    for key, entries in sorted(by_step(feeds).items()) if models else ():
        for row in np.unique(feeds["row"][entries]).tolist() if key[1] in models else ():
            fed = entries[feeds["row"][entries] == row]
            walk.read(sources.get((*key, row)), fed)


class _States:
    """Follows what the states of all rows have read."""

    def __init__(self, t: RoundTable) -> None:
        self._table = t
        trace = t.trace
        self._feeds = trace.feeds
        self._texts = [
            list(accumulate([*trace.prompt(i), *trace.output(i)], _read, initial=0))
            for i in range(trace.num_requests)
        ]
        # By entry of `feeds`: the text behind the states that it left, and whether what is wrong
        # with them has been reported.
        self._left = np.zeros(trace.feeds["index"].size, np.int64)
        self._is_known = np.zeros(self._left.shape, bool)

    def read(self, source: int | None, fed: Array) -> None:
        """Judge one row of one forward.

        Args:
            source: the entry of `feeds` that left the states which the row went on from, -1 for no
                states; None where the record has no such entry.
            fed: what the row was fed, entries of `feeds`.
        """
        digest, is_known = -1 if source is None else 0, False
        if source is not None and source >= 0:
            digest, is_known = int(self._left[source]), bool(self._is_known[source])
        if digest != self._due(int(fed[0])) and not is_known:
            self._report(source, int(fed[0]))
            is_known = True
        last = -1
        for feed in fed.tolist():
            # A draft model that always reads two tokens reads the only one of a text twice.
            if self._feeds["index"][feed] != last:
                digest = _read(digest, int(self._feeds["token"][feed]))
            last = self._feeds["index"][feed]
            self._left[feed] = digest
        self._is_known[fed] = is_known

    def _row_of(self, feed: int) -> tuple[Sequence[int], int]:
        """Return the drafts of the row that a token was fed in, and its length."""
        entry = int(self._table.entries_of(np.array([feed]))[0])
        if entry < 0:  # outside the batch, only committed tokens are read
            return (), len(self._texts[self._feeds["request"][feed]]) - 1
        drafts = self._table.drafts[entry, : self._table.drafted[entry]]
        return drafts.tolist(), int(self._table.length[entry])

    def _due(self, feed: int) -> int:
        """Return what stands for the row's text before a token."""
        index = int(self._feeds["index"][feed])
        drafts, length = self._row_of(feed)
        digest = self._texts[self._feeds["request"][feed]][min(index, length)]
        return list(accumulate(drafts[: max(index - length, 0)], _read, initial=digest))[-1]

    def _report(self, source: int | None, feed: int) -> None:
        feeds = self._feeds
        index = int(feeds["index"][feed])
        expected = "a row should go on from no states, since it begins"
        if index:
            expected = f"a row should go on from its states after index {index - 1}"
        stage = int(feeds["round"][feed]) * len(PHASES) + int(feeds["phase"][feed])
        self._table.findings.add(
            "state", stage, feeds["row"][feed], feeds["request"][feed],
            expected, self._found(source, feed), model=int(feeds["model"][feed]),
        )  # fmt: skip

    def _found(self, source: int | None, feed: int) -> str:
        """Say from which states a row went on."""
        feeds = self._feeds
        if source is None:
            return "the record does not say from which it went on"
        if source < 0:
            return "it went on from none"
        index, request = int(feeds["index"][source]), int(feeds["request"][source])
        if request != feeds["request"][feed]:
            return f"it went on from those of request {request} after index {index}"
        if index != feeds["index"][feed] - 1:
            behind = index - int(feeds["index"][feed]) + 1
            drafts = f", with {count(behind, 'rejected draft')}" if behind > 0 else ""
            return f"it went on from those after index {index}{drafts}"
        return f"those that it went on from have read other tokens up to index {index}"


def windows_hold_the_last_tokens(t: RoundTable) -> None:
    """Check what queries saw in layers with a window."""
    trace = t.trace
    for code, model in enumerate(MODELS):
        window = window_of(trace.meta, model)
        which = np.flatnonzero(trace.feeds["model"] == code)
        if window is None or not which.size:
            continue
        due = window_offsets(trace.index, trace.feeds, which, *window)
        found = trace.feeds["window_offset"][which]
        for at in np.flatnonzero(due != found).tolist():
            start = int(trace.feeds["visible_start"][which[at]])
            slots = start + int(due[at]), start + int(found[at])
            _report_window(t, int(which[at]), *slots, window[1])


def _report_window(t: RoundTable, feed: int, due: int, found: int, width: int) -> None:
    feeds = t.trace.feeds
    stage = int(feeds["round"][feed]) * len(PHASES) + int(feeds["phase"][feed])
    index = feeds["index"][feed]
    t.findings.add(
        "window", stage, feeds["row"][feed], feeds["request"][feed],
        f"index {index} should see from slot {due} on in layers with a window of {width} tokens",
        f"it saw from slot {found} on",
        model=int(feeds["model"][feed]), slots=range(min(due, found), max(due, found)),
    )  # fmt: skip
