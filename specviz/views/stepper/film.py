"""`film`: all that the step-through shows of a record, phase by phase, as plain lists, numbers and text that become JSON.

Contract: reads a Trace, runs nothing. Whatever needs to be known about a cell, a mask or a move is settled here; the browser only draws.
Not known here: colours, pixels, notebooks.

There are three lanes (see `lanes`) for a row and phase: its tokens (what is committed, up to the pending token, and the drafts, each in the
slot where the target has or awaits its K/V), and the caches of target and draft.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from specviz.checks.check import check_invariants
from specviz.checks.violations import Violation, Violations
from specviz.metrics import check_recorded
from specviz.record.replay import Frame, Replay, Slots
from specviz.record.schema import MODELS, PHASES, Array
from specviz.record.trace import Trace
from specviz.util.text import visible
from specviz.views.stepper.columns import milliseconds, pending_positions
from specviz.views.stepper.entries import feed_runs, move_entries, pool_entries, row_entries
from specviz.views.stepper.lanes import KINDS, Lanes, foretell, in_cells, is_pending, judge
from specviz.views.stepper.sentences import Narrator

VERSION = 2
MAX_ROWS, MAX_RUNS = (
    20_000,
    1_000_000,
)  # entries of the table `rows` and runs of all lanes: a few seconds, and some 60 MB of JSON
MAX_CELLS = 2**27  # slots of all rows in all rounds, each of which is looked at ten times a round
_ORIGINS = np.array(list("..pab"))  # by state: prompt, accepted draft, bonus
_DRAFT, _VERIFY, _ACCEPT = (PHASES.index(name) for name in ("draft", "verify", "accept"))
_TARGET, _DRAFTER = (MODELS.index(name) for name in ("target", "draft"))

# an option of a strategy says nothing where it has this value, and neither do None and, of what is not named here, False
_USUAL = {
    "refill": True, "bonus": True, "from_round": 0, "window": 32, "fallback": "realign", "max_wait": 8, "group_by": "length",
    "positions": "token", "skip_unpadding": True, "ones_mask": True, "draft_bonus": True,
}  # fmt: skip

Json = dict[str, Any]


def film(trace: Trace, *, judge: bool = True) -> Json:
    """Everything, ready for `json.dumps`. Made for runs that somebody looks at step by step: 64 rows x 35 rounds take half a second and
    4 MB of JSON, and both grow with rows x rounds, with holes faster; what is far beyond that is refused.
    judge: whether to check the invariants, and to say what is wrong; nothing in the film does otherwise.

    Keys:
        version, kinds, phases; meta: the record's header without the texts; options: what the strategy was told but its usual;
            texts: token id -> text with nothing hidden in it.
        requests: prompt (its length), tokens (prompt and output), origins (a letter for each: p prompt, a accepted draft, b bonus), budget.
        lanes: each a list of runs [slot, stop, kind, index, position, request, tokens]; index and position are those of the first slot, -1
            where there is none; tokens is 0 where the request's own tokens at these indices are meant, else a list. The position of a
            pending token is the one that it will be fed with, its index where the run ends before that; in a cache's lane, a pending
            slot tells of what still lies there. A lane that is [number, count, run, ...] begins with the first `count` runs of that lane,
            which is an earlier one.
        holes: what lay hidden from queries, lists of [start, stop]; the first one is empty.
        violations: the fields of `Violation`, phase as its number, model as its number (-1: of neither), and message; null if not judged.
        rounds: slots, decision, ms (of the five phases), rows, pool (exspec; request, row, length, waited, chosen), stages.
            A row has the columns of the record's table `rows`, and target, draft: for each column the leading choices [token, p], p in
            0..1; q, p: probabilities of the drafts.
            A stage is the state after one phase: words, words_of (a sentence for each row), width, lengths, starts, pending, and tokens,
            target, draft (the lane of each row);
            feeds: runs [model, step, row, slot, count, index, position, see, until, holes] of what forwards read: `see` is the first slot
            that the queries saw, `until` where the sight of the first of them stopped (each further one sees one slot more), holes the
            number of a list of what lay hidden;
            moves [model, step, from row, from slot, to row, to slot, length] of copied K/V; violations: their numbers. Rows are numbers
            in the batch, or -1 - r for cache row r that is not in it; the row of a feed is that of the request that was fed, which in a
            pool may have traded places since.

    Raises:
        ValueError: there is no record, or it is too long.
    """
    check_recorded(trace, "trace")
    rows, cells = (
        trace.rows["row"].size,
        int((trace.rounds["batch"].astype(np.int64) * trace.rounds["slots"]).sum()),
    )
    if max(rows, trace.num_rounds) > MAX_ROWS or cells > MAX_CELLS:
        raise _too_long(
            f"{rows:,} rows in {trace.num_rounds:,} rounds; more than {MAX_ROWS:,} are too many to step through"
        )
    with collector_paused():
        return _film(trace, judge)


def _film(trace: Trace, judge: bool) -> Json:
    violations = check_invariants(trace) if judge else Violations()
    camera = _Camera(trace, violations, judge)
    return {
        "version": VERSION,
        "kinds": list(KINDS),
        "phases": list(PHASES),
        "meta": {name: value for name, value in trace.meta.items() if name != "token_texts"},
        "options": {
            name: value
            for name, value in trace.meta["strategy_options"].items()
            if value is not None and value != _USUAL.get(name, False)
        },
        "texts": {token: visible(text) for token, text in trace.meta["token_texts"].items()},
        "requests": [_request(trace, number) for number in range(trace.num_requests)],
        "rounds": [camera.round(number) for number in range(trace.num_rounds)],
        "lanes": camera.lanes.found,
        "holes": camera.holes,
        "violations": [_violation(each) for each in violations] if judge else None,
    }


@contextmanager
def collector_paused() -> Iterator[None]:
    """A film is a million small lists without a cycle: to look through them for garbage, again and again, costs a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _too_long(problem: str) -> ValueError:
    return ValueError(f"trace has {problem}; record fewer prompts or fewer new tokens")


def _request(trace: Trace, number: int) -> Json:
    tokens = trace.prompt(number) + trace.output(number)
    origins = "".join(_ORIGINS[trace.origins(number)])
    budget = int(trace.requests["budget"][number])
    return {
        "prompt": len(trace.prompt(number)),
        "tokens": tokens,
        "origins": origins,
        "budget": budget,
    }


def _violation(each: Violation) -> Json:
    model = -1 if each.model is None else MODELS.index(each.model)
    names = ("round", "row", "request", "rule", "slot", "count", "expected", "found", "message")
    return {name: getattr(each, name) for name in names} | {
        "phase": PHASES.index(each.phase),
        "model": model,
    }


class _Camera:
    """Takes round after round; walks forward through the record once."""

    def __init__(self, trace: Trace, violations: Violations, judge: bool) -> None:
        self._trace = trace
        self._replay = Replay(trace)
        self._texts = trace.index.committed
        self.lanes = Lanes(self._texts)
        self._narrator, self._positions = (
            Narrator(trace, violations, judge=judge),
            pending_positions(trace),
        )
        self._rows, self._pool, self._moves, self._drafts = (
            row_entries(trace),
            pool_entries(trace),
            move_entries(trace),
            _drafts(trace),
        )
        self._feeds, self.holes = feed_runs(trace)
        self._ms = milliseconds(trace)
        self._shot: dict[int, tuple[Slots, list[int]]] = {}
        self._violations: dict[tuple[int, str], list[int]] = {}
        for number, each in enumerate(violations):
            self._violations.setdefault((each.round, each.phase), []).append(number)

    def round(self, number: int) -> Json:
        """A round and its stages."""
        rounds = self._trace.rounds
        if self.lanes.runs > MAX_RUNS:
            raise _too_long(
                f"more than {MAX_RUNS:,} blocks of slots by round {number}, which is too much to step through"
            )
        return {
            "slots": int(rounds["slots"][number]),
            "decision": self._trace.meta["decisions"][rounds["decision"][number]],
            "ms": self._ms[number],
            "rows": self._rows[number],
            "pool": self._pool[number],
            "stages": [self._stage(number, phase) for phase in range(len(PHASES))],
        }

    def _stage(self, number: int, phase: int) -> Json:
        frame, stage = self._replay.frame(number, PHASES[phase]), number * len(PHASES) + phase
        words, words_of = self._narrator.describe(number, PHASES[phase])
        return {
            "words": words,
            "words_of": words_of,
            "width": int(frame.target.state.shape[1]),
            **{name: getattr(frame, name).tolist() for name in ("lengths", "starts", "pending")},
            "tokens": self.lanes.add("tokens", self._tokens(frame, phase)),
            "target": self._cache(_TARGET, frame.target),
            "draft": self._cache(_DRAFTER, frame.draft),
            "feeds": self._feeds[stage],
            "moves": self._moves[stage],
            "violations": self._violations.get((number, PHASES[phase]), []),
        }

    def _cache(self, model: int, slots: Slots) -> list[int]:
        """The lanes of a model's cache; those of the phase before where nothing has changed, which is often so."""
        if self._shot.get(model, (None,))[0] is not slots:
            self._shot[model] = slots, self.lanes.add(MODELS[model], in_cells(slots))
        return self._shot[model][1]

    def _tokens(self, frame: Frame, phase: int) -> Array:
        """The lane of tokens: the target's cache, with what is pending or drafted but not in there yet, and what this round made of it."""
        cells = in_cells(frame.target)
        entries = self._trace.index.rows_of(frame.round)
        rows = np.flatnonzero(is_pending(cells, frame.pending))
        request, index = frame.requests[rows], frame.lengths[rows] - 1
        position = self._positions[phase >= _ACCEPT][entries][rows]
        token = self._texts.tokens[self._texts.first[request] + index]
        foretell(
            cells, rows, frame.pending[rows], "pending", np.stack([index, position, request, token])
        )
        row, slot, *drafted = drafts = self._drafts[frame.round][
            :, self._drafts[frame.round][1] < cells.shape[2]
        ]
        if phase == _DRAFT:
            index, position, token = drafted
            foretell(
                cells, row, slot, "drafted", np.stack([index, position, frame.requests[row], token])
            )
        if phase >= _ACCEPT:
            judge(
                cells,
                {name: column[entries] for name, column in self._trace.rows.items()},
                frame.requests,
                drafts,
            )
        return cells


def _drafts(trace: Trace) -> list[Array]:
    """By round, row number, slot, index, position and token (5, n) of the drafts that the target's verification reads."""
    feeds = trace.feeds
    fed = np.flatnonzero((feeds["phase"] == _VERIFY) & (feeds["model"] == _TARGET))
    entry = trace.index.feed_rows[fed]
    fed, entry = fed[entry >= 0], entry[entry >= 0]
    beyond = feeds["index"][fed] >= trace.rows["length"][entry]
    fed, entry = fed[beyond], entry[beyond]
    order = np.argsort(feeds["round"][fed], kind="stable")
    fed, entry = fed[order], entry[order]
    columns = np.stack(
        [
            entry - trace.index.row_bounds[feeds["round"][fed]],
            *(feeds[name][fed] for name in ("slot", "index", "position", "token")),
        ]
    )
    return np.split(
        columns, np.searchsorted(feeds["round"][fed], np.arange(1, trace.num_rounds)), axis=1
    )
