"""`film`: all that the step-through shows of a record, as plain data that becomes JSON.

Contract: reads a Trace, runs nothing. Everything that the browser needs to know about a cell, a
mask or a move is decided here, and so is what is right and wrong; the browser only draws. Not known
here: colours, pixels, notebooks.

Each row has three lanes in each phase (see `lanes`): its tokens, the target's cache and the draft's
cache. The lane of tokens holds what is committed, up to the pending token, and the drafts, each in
the slot where the target has or awaits its K/V.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from specviz.checks import invariants
from specviz.checks.fates import FATES
from specviz.checks.unchecked import unchecked
from specviz.checks.violations import Violations
from specviz.metrics import check_recorded
from specviz.record.replay import SOURCES
from specviz.record.schema import PHASES
from specviz.record.trace import Trace
from specviz.util.text import visible
from specviz.views.stepper.camera import Camera, Json
from specviz.views.stepper.columns import begins_ms
from specviz.views.stepper.entries import request_entry, violation_entry
from specviz.views.stepper.gaps import gaps
from specviz.views.stepper.lanes import KINDS
from specviz.views.stepper.options import unusual_options
from specviz.views.stepper.runmap import SIGNS, waits

VERSION = 4
# Entries of the table `rows` and runs of all lanes: a few seconds, and some 60 MB of JSON.
MAX_ROWS = 20_000
MAX_RUNS = 1_000_000
MAX_CELLS = 2**27  # slots of all rows in all rounds; each is read ten times a round


def film(trace: Trace, *, judge: bool = True) -> Json:
    """Return everything that the step-through shows, ready for `json.dumps`.

    A film is made for runs that somebody looks at step by step. Time and size grow with rows x
    rounds, and faster with many holes; what is far beyond that is refused.

    Args:
        trace: the record.
        judge: whether to check the invariants and to say what is wrong. If not, nothing in the film
            tells right from wrong.

    Keys:
        version, kinds, phases, fates, signs: the names of numbers below.
        gaps: only in a record that lacks something: see `gaps`.
        begins: only of a lane: when each phase of each round began, ms on the clock of both lanes.
        head, sources: only in a run whose drafts come from a draft head: its name, and the names of
            numbers below.
        meta: the record's header without the texts.
        options: the strategy's options that differ from their usual values.
        texts: token id -> text in which every character can be seen.
        requests: prompt (its length), tokens (prompt and output), origins (a letter for each: p
            prompt, a accepted draft, b bonus), budget.
        lanes: each a list of runs [slot, stop, kind, index, position, request, tokens]; index and
            position are those of the first slot, -1 where there is none; tokens is 0 where the
            request's own tokens at these indices are meant, else a list. The position of a pending
            token is the one that it will be fed with, its index where the run ends before that. In
            a cache's lane, a pending slot describes what still lies there. A lane that is [number,
            count, run, ...] begins with the first `count` runs of that earlier lane.
        waits: [request, first round, stop] of the rounds in which a request waits, for the run map.
        holes: what was hidden from queries, lists of [start, stop]; the first one is empty.
        violations: the fields of `Violation` but head, phase as its number, model as its number
            (-1: neither), and message; null if not judged.
        rounds: slots, decision, ms (of the five phases), rows, pool (exspec; request, row, length,
            waited, chosen), stages; capacity in a run with a selector (how many drafts the round
            may verify); bytes of K/V that were copied, null where a log does not say it; map: of
            each row [accepted, own, thrown away, signs], as in `map_entries`.

    A row has the columns of the record's table `rows`, and:
        target, draft: for each column the leading choices [token, p], p in 0..1.
        q, p: probabilities of the drafts.
        fates: numbers, for each draft that the target verifies, for the token behind the last of
            them, and for each draft that it does not verify.
        scores: of each draft, null for none; only where a selector gave scores.
        parents, path, end: only in a run with trees: the draft that each draft follows (-1: the
            pending token), the accepted drafts in order, and the slot of the last token after the
            acceptance.

    A stage is the state after one phase:
        words, words_of: a sentence, and one for each row.
        width, lengths, starts, pending: as in `Frame`.
        tokens, target, draft: the number of each row's lane.
        feeds: runs [model, step, row, slot, count, index, position, see, until, holes] of what
            forwards read; `see` is the first slot that the queries saw, `until` where the sight of
            the first of them stopped (each further one sees one slot more), holes the number of a
            list. In a run with trees, last comes the node of the first token, 1 + the number of a
            draft; each further one is the next draft. It is 0 where there are no drafts.
        faults: [step, row, index, count, leaks, holes, lost]: `count` queries from `index` on in
            forward `step` that saw wrong slots, as in `WrongQueries`. In a run with trees, last
            comes the node of the first one.
        moves: [model, step, from row, from slot, to row, to slot, length] of copied K/V.
        guessed: only where a draft head drafts: for each row [slot, stop, source] of the head's K/V
            that was not made from the target's features. source is a number of `sources`.
        violations: their numbers.
        windows: only where a model has layers with a window: for each of `feeds` the first slots
            that its queries saw there, {starts, due}, or null; due only where others are due.
        states: only where a model keeps states: for each model and row [kind, slot, index,
            request] of states, in the slot of the last token that they have read, -1 for none.
            kind: open (a forward of this round left it), kept (the row goes on from it), dropped,
            wrong (the row goes on from it, but should not), due (it should go on from this one).
    Rows are numbers in the batch, or -1 - r for cache row r that is not in it. The row of a feed is
    that of the request that was fed, which in a pool may have traded places since.

    Raises:
        ValueError: there is no record, or it is too long.
    """
    with collector_paused():
        shooting = Shooting(trace, judge=judge)
        rounds = list(shooting.rounds())
        return shooting.rest() | {"rounds": rounds}


class Shooting:
    """A film in the making: first its rounds, one by one, then the rest of it.

    Raises ValueError as `film` does, also between two rounds.
    """

    def __init__(self, trace: Trace, *, judge: bool) -> None:
        _check_size(trace)
        self._trace = trace
        self._judge = judge
        self._violations, wrong = Violations(), None
        if judge:
            findings, forwards = invariants.check(trace)
            self._violations = findings.sorted(unchecked(trace.meta))
            wrong = forwards.wrong
            del forwards  # its accounts of the caches are as large as those of the replay
        self._camera = Camera(trace, self._violations, wrong)

    def rounds(self) -> Iterator[Json]:
        """Yield the rounds, in order."""
        for number in range(self._trace.num_rounds):
            if self._camera.lanes.runs > MAX_RUNS:
                raise _too_long(
                    f"more than {MAX_RUNS:,} blocks of slots by round {number}, "
                    "which is too much to step through"
                )
            yield self._camera.round(number)

    def rest(self) -> Json:
        """Return all keys but `rounds`. The camera has met all lanes once `rounds` has ended."""
        trace = self._trace
        camera = self._camera
        violations = self._violations
        meta = dict(trace.meta)
        texts = meta.pop("token_texts")
        meta.pop("begins_ms", None)
        run: Json = {
            "version": VERSION,
            "kinds": list(KINDS),
            "phases": list(PHASES),
            "fates": list(FATES),
            "meta": meta,
            "options": unusual_options(meta["strategy_options"]),
            "texts": {token: visible(text) for token, text in texts.items()},
            "requests": [request_entry(trace, number) for number in range(trace.num_requests)],
            "signs": list(SIGNS),
            "waits": waits(trace),
            "lanes": camera.lanes.found,
            "holes": camera.feeds.holes,
            "violations": [violation_entry(each) for each in violations] if self._judge else None,
        }
        optional = {"begins": begins_ms(trace), "gaps": gaps(trace, violations.unchecked)}
        run |= {name: each for name, each in optional.items() if each is not None}
        if camera.head is not None:
            run |= {"head": camera.head, "sources": list(SOURCES)}
        return run


@contextmanager
def collector_paused() -> Iterator[None]:
    # A film is a million small lists without a cycle; searching them for garbage again and again
    # costs a third of the time.
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _check_size(trace: Trace) -> None:
    check_recorded(trace, "trace")
    rows = trace.rows["row"].size
    batch = trace.rounds["batch"].astype(np.int64)
    cells = int((batch * trace.rounds["slots"]).sum())
    if max(rows, trace.num_rounds) > MAX_ROWS or cells > MAX_CELLS:
        raise _too_long(
            f"{rows:,} rows in {trace.num_rounds:,} rounds; "
            f"more than {MAX_ROWS:,} are too many to step through"
        )


def _too_long(problem: str) -> ValueError:
    return ValueError(f"trace has {problem}; record fewer prompts or fewer new tokens")
