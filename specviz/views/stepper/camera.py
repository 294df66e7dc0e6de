"""`Camera`: the rounds of a film, one after another.

Contract: walks forward through a record once. What it returns is described in `film`. Not known
here: how large a film may be.
"""

from collections.abc import Mapping
from typing import Any

from specviz.checks.forward_rules import WrongQueries
from specviz.checks.violations import Violations
from specviz.record.replay import Replay, Slots, head_name
from specviz.record.schema import MODELS, PHASES
from specviz.record.trace import Trace
from specviz.views.stepper.columns import has_selector, has_trees, milliseconds
from specviz.views.stepper.entries import feed_runs, move_entries, pool_entries, row_entries
from specviz.views.stepper.heads import guessed_slots
from specviz.views.stepper.lanes import Lanes, cache_cells
from specviz.views.stepper.runmap import copied_bytes, map_entries
from specviz.views.stepper.sentences import Narrator
from specviz.views.stepper.states import StateMarks
from specviz.views.stepper.tokens import TokenCells

# The model whose queries the mask of a phase shows.
_READERS = {"schedule": "target", "draft": "draft", "verify": "target"}

Json = dict[str, Any]
Wrong = Mapping[tuple[int, int], list[WrongQueries]]


class Camera:
    """Records round after round; walks forward through the record once.

    wrong: by stage and model, the queries that saw wrong slots; None where nothing is judged.
    """

    def __init__(self, trace: Trace, violations: Violations, wrong: Wrong | None) -> None:
        self._trace = trace
        self.head = head_name(trace)
        self._replay = Replay(trace)
        texts = trace.index.committed
        self.lanes = Lanes(texts)
        self._tokens = TokenCells(trace, texts)
        self._wrong = wrong
        judge = wrong is not None
        self._narrator = Narrator(trace, violations, judge=judge)
        self._rows = row_entries(trace, judge=judge)
        self._pool = pool_entries(trace)
        self._moves = move_entries(trace)
        self.feeds = feed_runs(trace, judge=judge)
        self._states = StateMarks(trace, violations if judge else None)
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
        entry = {
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
            entry["capacity"] = int(rounds["capacity"][number])
        return entry

    def _stage(self, number: int, phase: str) -> Json:
        # In order: a replay walks forward, and going back would start it again.
        frame = self._replay.frame(number, phase)
        stage = number * len(PHASES) + PHASES.index(phase)
        words, words_of = self._narrator.describe(number, phase)
        entry: Json = {
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
            "faults": self._faults(stage, phase),
            "moves": self._moves[stage],
            "violations": self._violations.get((number, phase), []),
        }
        if self.head is not None:
            entry["guessed"] = guessed_slots(frame.draft)
        if self.feeds.windows is not None:
            entry["windows"] = self.feeds.windows[stage]
        if self._states.models:
            entry["states"], phrases = self._states.describe(frame)
            entry["words_of"] = [f"{a}{b}" for a, b in zip(words_of, phrases, strict=True)]
        return entry

    def _cache(self, model: str, slots: Slots) -> list[int]:
        # A replay returns the same slots as long as nothing has changed.
        before, lanes = self._cached.get(model, (None, []))
        if before is not slots:
            lanes = self.lanes.add(model, cache_cells(slots))
            self._cached[model] = slots, lanes
        return lanes

    def _faults(self, stage: int, phase: str) -> list[list[Any]]:
        model = _READERS.get(phase)
        if self._wrong is None or model is None:
            return []
        steps = self._trace.feeds["step"]
        indices = self._trace.feeds["index"]
        faults = []
        for each in self._wrong.get((stage, MODELS.index(model)), ()):
            if not self._is_known(each.feed):
                continue
            fault = [
                int(steps[each.feed]),
                int(self.feeds.rows[each.feed]),
                int(indices[each.feed]),
                each.count,
                [list(leak) for leak in each.leaks],
                [list(hole) for hole in each.holes],
                each.lost,
                *self._node_of(each.feed),
            ]
            faults.append(fault)
        return faults

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
