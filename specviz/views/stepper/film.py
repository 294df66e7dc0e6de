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
from typing import Any

import numpy as np

from specviz.checks.attention import Attention
from specviz.checks.check import check_invariants
from specviz.checks.fates import FATES
from specviz.checks.violations import Violations
from specviz.metrics import check_recorded
from specviz.record.heads import SOURCES, head_name
from specviz.record.missing import sees
from specviz.record.replay import Frame, Replay, Slots
from specviz.record.schema import PHASES
from specviz.record.trace import Trace
from specviz.util.text import visible
from specviz.views.stepper.columns import begins_ms, has_selector, has_trees, milliseconds
from specviz.views.stepper.entries import (
    feed_runs,
    move_entries,
    pool_entries,
    request_entry,
    row_entries,
    violation_entry,
)
from specviz.views.stepper.gaps import gaps
from specviz.views.stepper.heads import guessed_slots
from specviz.views.stepper.lanes import KINDS, Lanes, cache_cells
from specviz.views.stepper.options import unusual_options
from specviz.views.stepper.runmap import SIGNS, copied_bytes, map_entries, waits
from specviz.views.stepper.sentences import Narrator
from specviz.views.stepper.tokens import TokenCells

VERSION = 4
# Entries of the table `rows` and runs of all lanes: a few seconds, and some 60 MB of JSON.
MAX_ROWS = 20_000
MAX_RUNS = 1_000_000
MAX_CELLS = 2**27  # slots of all rows in all rounds; each is read ten times a round
# The model whose queries the mask of a phase shows.
_READERS = {"schedule": "target", "draft": "draft", "verify": "target"}

Json = dict[str, Any]


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
    Rows are numbers in the batch, or -1 - r for cache row r that is not in it. The row of a feed is
    that of the request that was fed, which in a pool may have traded places since.

    Raises:
        ValueError: there is no record, or it is too long.
    """
    check_recorded(trace, "trace")
    rows = trace.rows["row"].size
    batch = trace.rounds["batch"].astype(np.int64)
    cells = int((batch * trace.rounds["slots"]).sum())
    if max(rows, trace.num_rounds) > MAX_ROWS or cells > MAX_CELLS:
        raise _too_long(
            f"{rows:,} rows in {trace.num_rounds:,} rounds; "
            f"more than {MAX_ROWS:,} are too many to step through"
        )
    with collector_paused():
        violations = check_invariants(trace) if judge else Violations()
        camera = _Camera(trace, violations, judge)
        meta = dict(trace.meta)
        texts = meta.pop("token_texts")
        meta.pop("begins_ms", None)
        told = {
            "version": VERSION,
            "kinds": list(KINDS),
            "phases": list(PHASES),
            "fates": list(FATES),
            "meta": meta,
            "options": unusual_options(meta["strategy_options"]),
            "texts": {token: visible(text) for token, text in texts.items()},
            "requests": [request_entry(trace, number) for number in range(trace.num_requests)],
            "rounds": [camera.round(number) for number in range(trace.num_rounds)],
            "signs": list(SIGNS),
            "waits": waits(trace),
            # The camera has met all lanes once all rounds are recorded.
            "lanes": camera.lanes.found,
            "holes": camera.feeds.holes,
            "violations": [violation_entry(each) for each in violations] if judge else None,
        }
        optional = {"begins": begins_ms(trace), "gaps": gaps(trace, violations.unchecked)}
        told |= {name: each for name, each in optional.items() if each is not None}
        if camera.head is not None:
            told |= {"head": camera.head, "sources": list(SOURCES)}
        return told


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


def _too_long(problem: str) -> ValueError:
    return ValueError(f"trace has {problem}; record fewer prompts or fewer new tokens")


class _Camera:
    """Records round after round; walks forward through the record once."""

    def __init__(self, trace: Trace, violations: Violations, judge: bool) -> None:
        self._trace = trace
        self.head = head_name(trace)
        self._replay = Replay(trace)
        texts = trace.index.committed
        self.lanes = Lanes(texts)
        self._tokens = TokenCells(trace, texts)
        self._attention = Attention(trace) if judge else None
        self._narrator = Narrator(trace, violations, judge=judge)
        self._rows = row_entries(trace, judge=judge)
        self._pool = pool_entries(trace)
        self._moves = move_entries(trace)
        self.feeds = feed_runs(trace)
        self._ms = milliseconds(trace)
        self._bytes = copied_bytes(trace)
        self._map = map_entries(trace, violations)
        self._has_trees = has_trees(trace)
        self._cached: dict[str, tuple[Slots, list[int]]] = {}
        self._violations: dict[tuple[int, str], list[int]] = {}
        for number, each in enumerate(violations):
            self._violations.setdefault((each.round, each.phase), []).append(number)

    def round(self, number: int) -> Json:
        """Return a round and its stages."""
        rounds = self._trace.rounds
        if self.lanes.runs > MAX_RUNS:
            raise _too_long(
                f"more than {MAX_RUNS:,} blocks of slots by round {number}, "
                "which is too much to step through"
            )
        told = {
            "slots": int(rounds["slots"][number]),
            "decision": self._trace.meta["decisions"][rounds["decision"][number]],
            "ms": self._ms[number],
            "bytes": self._bytes[number],
            "map": self._map[number],
            "rows": self._rows[number],
            "pool": self._pool[number],
            "stages": [self._stage(number, phase) for phase in PHASES],
        }
        if has_selector(self._trace):
            told["capacity"] = int(rounds["capacity"][number])
        return told

    def _stage(self, number: int, phase: str) -> Json:
        # In order: a replay walks forward, and going back would begin anew.
        frame = self._replay.frame(number, phase)
        stage = number * len(PHASES) + PHASES.index(phase)
        words, words_of = self._narrator.describe(number, phase)
        told: Json = {
            "words": words,
            "words_of": words_of,
            "width": int(frame.target.state.shape[1]),
            "lengths": frame.lengths.tolist(),
            "starts": frame.starts.tolist(),
            "pending": frame.pending.tolist(),
            "tokens": self.lanes.add("tokens", self._tokens.after(frame)),
            "target": self._cache("target", frame.target),
            "draft": self._cache("draft", frame.draft),
            "feeds": self.feeds.runs[stage],
            "faults": self._faults(frame),
            "moves": self._moves[stage],
            "violations": self._violations.get((number, phase), []),
        }
        if self.head is not None:
            told["guessed"] = guessed_slots(frame.draft)
        return told

    def _cache(self, model: str, slots: Slots) -> list[int]:
        # A replay returns the same slots as long as nothing has changed.
        before, lanes = self._cached.get(model, (None, []))
        if before is not slots:
            lanes = self.lanes.add(model, cache_cells(slots))
            self._cached[model] = slots, lanes
        return lanes

    def _faults(self, frame: Frame) -> list[list[Any]]:
        model = _READERS.get(frame.phase)
        if self._attention is None or model is None or not sees(self._trace.meta, model):
            return []
        steps = self._trace.feeds["step"]
        indices = self._trace.feeds["index"]
        return [
            [
                int(steps[each.feed]),
                int(self.feeds.rows[each.feed]),
                int(indices[each.feed]),
                each.count,
                [list(leak) for leak in each.leaks],
                [list(hole) for hole in each.holes],
                each.lost,
                *self._node_of(each.feed),
            ]
            for each in self._attention.wrong(frame, model)
            if self._is_known(each.feed)
        ]

    def _is_known(self, feed: int) -> bool:
        """Whether the record says what a query should see.

        It does not say what a draft follows that was read but not proposed.
        """
        entry = self._trace.index.feed_rows[feed]
        drafted = self._trace.rows["drafted"][entry]
        return not self._has_trees or int(self._trace.feeds["node"][feed]) <= int(drafted)

    def _node_of(self, feed: int) -> list[int]:
        # Several drafts of a tree have the same index.
        return [int(self._trace.feeds["node"][feed])] if self._has_trees else []
