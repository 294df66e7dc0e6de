"""The states of layers that are no K/V: which ones a row goes on from, and what a forward leaves.

Contract: reads a Trace; slots of a frame go in, marks and phrases of its rows come out. A state
belongs to no slot: its mark stands in the slot of the last token that it has read. Not known here:
what a state looks like, JSON.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from specviz.checks.violations import Violation
from specviz.record.index import by_step
from specviz.record.replay import Frame, Slots
from specviz.record.schema import MODELS, PHASES, STALE, Array
from specviz.record.trace import Trace
from specviz.util.text import count

# [kind, slot, index, request]; slot: -1 where none of the row's slots has that token.
Mark = list[str | int]
_DRAFT, _VERIFY, _ACCEPT = (PHASES.index(phase) for phase in ("draft", "verify", "accept"))


@dataclass(eq=False)
class _Reading:
    """What a row read in one phase, in one or more forwards.

    Attributes:
        stage: round * 5 + phase.
        source: the entry of `feeds` that left the states which the row went on from; -1: none.
        feeds: the entries of `feeds` that were read.
        is_wrong: whether it went on from wrong states.
    """

    stage: int
    source: int
    feeds: list[int]
    is_wrong: bool


class StateMarks:
    """Marks and phrases about the states of the rows of a frame, for each model that keeps any.

    violations: of all rules; None where nothing is judged.
    """

    def __init__(self, trace: Trace, violations: Iterable[Violation] | None) -> None:
        self._feeds = trace.feeds
        self._judge = violations is not None
        self.models = sorted(set(trace.states["model"].tolist()))
        self._readings: dict[tuple[int, int], list[_Reading]] = {}
        broken = {
            (each.round * len(PHASES) + PHASES.index(each.phase), each.model, each.request)
            for each in violations or ()
            if each.rule == "state"
        }
        feeds = by_step(trace.feeds)
        for (stage, model, step), entries in sorted(by_step(trace.states).items()):
            fed = feeds.get((stage, model, step), np.zeros(0, int))
            rows = trace.feeds["row"][fed]
            for entry in entries.tolist():
                own = fed[rows == trace.states["row"][entry]].tolist()
                if not own:  # a damaged record may say anything
                    continue
                request = int(trace.feeds["request"][own[0]])
                known = self._readings.setdefault((model, request), [])
                if known and known[-1].stage == stage:
                    known[-1].feeds += own
                    continue
                # What was wrong once stays so: a state is never read from the start again.
                is_wrong = (stage, MODELS[model], request) in broken
                is_wrong |= bool(known) and known[-1].is_wrong
                source = int(trace.states["feed"][entry])
                known.append(_Reading(stage, source, own, is_wrong and self._judge))

    def describe(self, frame: Frame) -> tuple[list[list[list[Mark]]], list[str]]:
        """Return by model and row the marks after the frame's phase, and by row a phrase or ""."""
        marks: list[list[list[Mark]]] = [[] for _ in MODELS]
        phrases = [""] * len(frame.requests)
        for model in self.models:
            slots = frame.draft if MODELS[model] == "draft" else frame.target
            for row, request in enumerate(frame.requests.tolist()):
                found, phrase = self._row(frame, model, request)
                marks[model].append([self._placed(slots, row, mark) for mark in found])
                if phrase:
                    phrases[row] += f"; {phrase}"
        return marks, phrases

    def _row(self, frame: Frame, model: int, request: int) -> tuple[list[Mark], str]:
        readings = self._readings.get((model, request), [])
        phase = PHASES.index(frame.phase)
        stage = frame.round * len(PHASES) + phase
        at = bisect_right(readings, stage, key=lambda each: each.stage) - 1
        if at < 0:
            return [], ""
        last = readings[at]
        following = readings[at + 1] if at + 1 < len(readings) else None
        read_round, read_phase = divmod(last.stage, len(PHASES))
        of_target = MODELS[model] == "target"
        it, its = ("it", "its") if of_target else ("the draft model", "the draft model's")
        if read_round < frame.round or read_phase not in (_DRAFT, _VERIFY):
            return self._held(following, request, ()), ""
        if phase < _ACCEPT:
            marks = [*self._marks("open", last.feeds, last.feeds), *self._held(last, request, ())]
            left = f"left {count(len(last.feeds), 'state')}, one after each token"
            phrase = f"{it} went on from {self._source(last, request)} and {left}"
            return marks, phrase if phase == read_phase else ""
        if phase > _ACCEPT:
            held = self._held(following, request, ())
            return held, f"{its} state did not move: it lies in no slot" if held else ""
        held = self._held(following, request, last.feeds)
        taken = {index for _, _, index, _ in held}
        dropped = self._marks("dropped", last.feeds, last.feeds)
        marks = [*(mark for mark in dropped if mark[2] not in taken), *held]
        return marks, self._choice(it, last, following, request)

    def _held(self, reading: _Reading | None, request: int, fresh: Sequence[int]) -> list[Mark]:
        """Return the mark of the states that a reading goes on from, and of those that are due."""
        if reading is None:
            return []
        if reading.is_wrong:
            due = self._due(reading)
            found: list[Mark] = [["due", -1, due, request]] if due >= 0 else []
            return [*found, *self._marks("wrong", [reading.source], fresh)]
        return self._marks("kept", [reading.source], fresh)

    def _marks(self, kind: str, feeds: Iterable[int], fresh: Sequence[int]) -> list[Mark]:
        """Return a mark for each of `feeds`, with the slot of those that are `fresh`."""
        index, request, slot = (self._feeds[name] for name in ("index", "request", "slot"))
        return [
            [kind, int(slot[feed]) if feed in fresh else -1, int(index[feed]), int(request[feed])]
            for feed in feeds
            if feed >= 0
        ]

    def _due(self, reading: _Reading) -> int:
        """Return the index after which a reading should go on; -1 where a row begins."""
        return int(self._feeds["index"][reading.feeds[0]]) - 1

    def _after(self, feed: int) -> str:
        return "no state" if feed < 0 else f"the state after index {self._feeds['index'][feed]}"

    def _source(self, reading: _Reading, request: int) -> str:
        """Say from which state a row goes on, and from which it should."""
        found = self._after(reading.source)
        if not reading.is_wrong:
            return found
        due = self._due(reading)
        right = "none" if due < 0 else f"the one after index {due}"
        index, of = (self._feeds[name][reading.source] for name in ("index", "request"))
        if reading.source >= 0 and of != request:
            return f"that of request {of} after index {index} instead of {right},"
        if reading.source >= 0 and index == due:
            return f"{found}, which has read other tokens,"
        return f"{found} instead of {right},"

    def _choice(self, it: str, last: _Reading, following: _Reading | None, request: int) -> str:
        """Say which of the states that a forward left is kept, and why."""
        states = count(len(last.feeds), "state")
        if following is None:
            return f"{it} needs none of the {states} again"
        if following.is_wrong:
            return f"{it} will go on from {self._source(following, request)}".rstrip(",")
        if following.source < 0:
            return f"{it} will go on from no state"
        index = self._feeds["index"][following.source]
        text = f"of {states} {it} keeps the one after index {index}"
        if not self._judge:
            return text
        drafts = self._due(following) - int(self._feeds["index"][last.feeds[0]])
        read = "the pending token"
        if drafts:
            read += (
                f" and the {'' if drafts == 1 else f'{drafts} '}accepted draft{'s' * (drafts > 1)}"
            )
        return f"{text}, which has read {read} but no rejected one, and drops the rest"

    def _placed(self, slots: Slots, row: int, mark: Mark) -> Mark:
        """Return the mark with the slot of its token, a stale one only if no other has it."""
        kind, slot, index, request = mark
        if slot != -1:
            return mark
        own: Array = (slots.index[row] == index) & (slots.request[row] == request)
        counts = own & (slots.state[row] != STALE)
        found = np.flatnonzero(counts if counts.any() else own)
        return [kind, int(found[-1]) if found.size else -1, index, request]
