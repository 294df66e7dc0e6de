"""Where two runs of the same prompts first differ, and why, in one line.

Contract: records and the violations that their films name go in; a place and a sentence come out.
The runs are called A and B, as on the page. The cause is the first violation of the request that
comes before the difference and can change the text; without one, the rules of `equivalence` say
whether rounding explains it. Not known here: pages, models.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specviz.checks.compare import judge_runs
from specviz.checks.equivalence import NEAR_TIE, UNEXPLAINED, divergence
from specviz.checks.scores import RecordedScores, recorded_scores
from specviz.checks.violations import BROKEN
from specviz.record.replay import Replay
from specviz.record.schema import MODELS, PHASES, has_slots
from specviz.record.trace import Trace
from specviz.util.text import count, visible

RUNS = ("A", "B")
Found = list[dict[str, Any]]  # violations, as a film names them
_ACCEPT = PHASES.index("accept")
_TARGET = MODELS.index("target")
_DRAFT = MODELS.index("draft")
_LONGEST = 24  # characters of a token
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True)
class Parting:
    """The first token that two runs do not share. round: of the first run.

    index: into the request's new tokens.
    """

    round: int
    request: int
    index: int


def first_parting(trace: Trace, other: Trace) -> Parting | None:
    """Return where the texts of two runs first differ, None if they are equal."""
    found = []
    for request, index in enumerate(_partings(trace, other)):
        if index is not None:
            entry = entry_that_emits(trace, request, len(trace.prompt(request)) + index)
            found.append((int(trace.rows["round"][entry]), request, index))
    return Parting(*min(found)) if found else None


def _partings(trace: Trace, other: Trace) -> list[int | None]:
    """Return each request's first new token that differs, None for equal texts."""
    requests = range(trace.num_requests)
    return [divergence(trace.output(each), other.output(each)) for each in requests]


def entry_that_emits(trace: Trace, request: int, index: int) -> int:
    """Return the entry of `rows` that emits a token, or the request's last one."""
    rows = trace.rows
    entries = np.flatnonzero((rows["request"] == request) & (rows["gained"] > 0))
    emits = rows["length"][entries] + rows["gained"][entries] > index
    return int(entries[emits.argmax() if emits.any() else -1]) if entries.size else 0


def stand_apart(traces: Sequence[Trace], request: int, number: int) -> bool:
    """Return whether a request starts in another slot in each run in a round.

    If it has ended by then, its last round counts.
    """
    starts = []
    for trace in traces:
        rows = trace.rows
        entries = np.flatnonzero((rows["request"] == request) & (rows["round"] <= number))
        starts.append(int(rows["start"][entries[-1]]) if entries.size else None)
    return None not in starts and starts[0] != starts[1]


def difference_words(traces: Sequence[Trace], found: Sequence[Found | None]) -> str:
    """Return one line: the first difference of two runs and its cause.

    found: the violations of each run, in order; None where nothing was judged, and then no cause is
    named.
    """
    first = first_parting(*traces)
    texts = traces[0].num_requests
    if first is None:
        return f"All {count(texts, 'text')} are the same{_although(found)}."
    unequal = sum(index is not None for index in _partings(*traces))
    place = f"First difference: request {first.request}, new token {first.index}, round "
    differ = f"{unequal} of {count(texts, 'text')} {'differs' if unequal == 1 else 'differ'}"
    why = _Why(traces, found, first).words()
    return f"{place}{first.round} of A: {why}. {differ}."


def _although(found: Sequence[Found | None]) -> str:
    """Return what is violated in spite of equal texts."""
    rules = [(run, each[0]) for run, each in zip(RUNS, found, strict=True) if each]
    if not rules:
        return ""
    said = [f"{run} breaks {each['rule']} from round {each['round']} on" for run, each in rules]
    return f", although {' and '.join(said)}"


class _Why:
    """What is known of one difference."""

    def __init__(
        self, traces: Sequence[Trace], found: Sequence[Found | None], first: Parting
    ) -> None:
        self._traces = traces
        self._found = found
        self._first = first
        outputs = [trace.output(first.request) for trace in traces]
        self._tokens = [each[first.index] if first.index < len(each) else None for each in outputs]
        self._scores = [recorded_scores(trace)[first.request] for trace in traces]

    def words(self) -> str:
        """Return cause → effect → the two tokens."""
        if None in self._found:
            return self._instead(0)
        known = [each for each in map(self._fault, (0, 1)) if each is not None]
        if not known:
            return " → ".join([self._without_fault(), self._instead(0)])
        _, run, fault = min(known, key=lambda each: each[:2])
        parts = [self._cause(run, fault)]
        if fault["rule"] not in ("bonus", "acceptance"):
            parts += self._chances(run)
        return " → ".join([*parts, self._instead(run)])

    def _fault(self, run: int) -> tuple[int, int, dict[str, Any]] | None:
        """Return (stage, run, violation) of what first went wrong before the token, if anything."""
        index, rounds = self._first.index, self._scores[run].rounds
        known = index < len(rounds) and rounds[index] >= 0
        last = int(rounds[index]) * len(PHASES) + _ACCEPT if known else math.inf
        for each in self._found[run] or []:
            stage = each["round"] * len(PHASES) + each["phase"]
            is_texts = each["model"] != _DRAFT and each["rule"] != "caches"
            if each["request"] == self._first.request and is_texts and stage <= last:
                return stage, run, each
        return None

    # -- the cause

    def _cause(self, run: int, fault: dict[str, Any]) -> str:
        row, number = fault["row"], fault["round"]
        since = f"in {RUNS[run]} since round {number}"
        if fault["rule"] == "positions":
            drift = self._drift(run, fault)
            if drift:
                way = "high" if drift > 0 else "low"
                return f"position ids of row {row} are {abs(drift)} too {way} {since}"
        if fault["rule"] == "kv":
            off = self._offset(run, fault)
            if off:
                return f"K/V of row {row} is {_slots(abs(off))} off {since}"
        if fault["rule"] in ("bonus", "acceptance"):
            return f"{BROKEN[fault['rule']]} (row {row} in {RUNS[run]}, round {number})"
        return f"{BROKEN[fault['rule']]} (row {row} {since})"

    def _drift(self, run: int, fault: dict[str, Any]) -> int:
        """Return by how much the target's first wrong position lies above its index."""
        feeds = self._traces[run].feeds
        here = (feeds["round"] == fault["round"]) & (feeds["phase"] == fault["phase"])
        here &= (feeds["request"] == fault["request"]) & (feeds["model"] == _TARGET)
        drifts = (feeds["position"] - feeds["index"])[here & (feeds["position"] >= 0)]
        wrong = drifts[drifts != 0]
        return int(wrong[0]) if wrong.size else 0

    def _offset(self, run: int, fault: dict[str, Any]) -> int:
        """Return how many slots the K/V lies to the right of its place; 0 if that is not known."""
        trace, row, slot = self._traces[run], fault["row"], fault["slot"]
        if slot is None or not has_slots(trace.meta):
            return 0
        frame = Replay(trace).frame(fault["round"], PHASES[fault["phase"]])
        start, pending = int(frame.starts[row]), int(frame.pending[row])
        is_dense = pending - start == int(frame.lengths[row]) - 1
        held = int(frame.target.index[row, slot])
        return slot - start - held if is_dense and held >= 0 else 0

    def _without_fault(self) -> str:
        if None in self._tokens:
            return "no invariant is broken before it, but one text ends there"
        headers = [trace.meta for trace in self._traces]
        targets = [meta["target"] for meta in headers]
        if targets[0] != targets[1]:
            return f"the targets are {visible(targets[0])} and {visible(targets[1])}"
        sampling = headers[0]["sampling"] or headers[1]["sampling"]
        if sampling is not None and sampling["coupling"] != "gumbel":
            return "tokens are drawn at random, and equal texts are not promised"
        cause = judge_runs(self._traces[0], self._traces[1]).causes[self._first.request]
        if cause == NEAR_TIE:
            return "no invariant is broken; a near tie, which rounding decides"
        if cause == UNEXPLAINED:
            return "no invariant is broken before it, and rounding does not explain it"
        return "no invariant is broken before it; the records do not show whether rounding does it"

    # -- the effect

    def _chances(self, run: int) -> list[str]:
        """Return the other run's token with its probability in both, and that of the own token."""
        token = self._tokens[1 - run]
        if token is None:
            return []
        before, after = (self._chance(each, token) for each in (1 - run, run))
        if not before or not after or before == after:
            return []
        words = f"p of {self._text(1 - run, token)} is {after} instead of {before}"
        wrote = self._tokens[run]
        own = "" if wrote is None else self._chance(run, wrote)
        if wrote is not None and own:
            words += f", that of {self._text(run, wrote)} {own}"
        return [words]

    def _chance(self, run: int, token: int) -> str:
        scores: RecordedScores = self._scores[run]
        if self._first.index >= len(scores.ids):
            return ""
        ids, logprobs = scores.ids[self._first.index], scores.logprobs[self._first.index]
        kept = (ids >= 0) & ~np.isnan(logprobs)
        if not kept.any():
            return ""
        own = np.exp(logprobs[kept & (ids == token)])
        if own.size:
            return _rounded(float(own[0]))
        return f"below {_rounded(float(np.exp(logprobs[kept].min())))}"

    def _instead(self, run: int) -> str:
        wrote, meant = self._tokens[run], self._tokens[1 - run]
        if wrote is None or meant is None:
            ended, other = (run, 1 - run) if wrote is None else (1 - run, run)
            token = self._tokens[other]
            assert token is not None
            return f"{RUNS[ended]} ends, {RUNS[other]} writes {self._text(other, token)}"
        text, other_text = self._text(run, wrote), self._text(1 - run, meant)
        if None in self._found:
            return f"A writes {text}, B writes {other_text}"
        return f"{RUNS[run]} writes {text} instead of {other_text}"

    def _text(self, run: int, token: int) -> str:
        text = visible(self._traces[run].text(token))
        return f"“{text}”" if len(text) <= _LONGEST else f"“{text[: _LONGEST - 1]}…”"


def _slots(number: int) -> str:
    word = _NUMBERS[number] if number < len(_NUMBERS) else str(number)
    return f"{word} slot{'' if number == 1 else 's'}"


def _rounded(p: float) -> str:
    return f"{p:.2f}" if p >= 0.01 else f"{p:.1g}"
