"""What a sentence about one round needs: who entered and left, what was fed, moved, waited for.

Contract: reads a Trace and counts. `Scenes` prepares whole columns once, so that going through all
rounds is cheap. Not known here: words.
"""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from specviz.metrics import check_recorded
from specviz.record.replay import head_name
from specviz.record.schema import MODELS, PHASES, Array, has_slots, missing_in
from specviz.record.trace import Trace
from specviz.views.stepper.batchrow import BatchRow, batch_rows
from specviz.views.stepper.columns import has_selector, milliseconds
from specviz.views.stepper.heads import accepted_read
from specviz.views.stepper.motion import Motion, motion_of

SCHEDULE, DRAFT, VERIFY, ACCEPT, SYNCHRONISE = range(len(PHASES))
TARGET = MODELS.index("target")
DRAFTER = MODELS.index("draft")


@dataclass(frozen=True)
class PoolEntry:
    """One sequence of the pool. waited: rounds in which it was passed over before this one."""

    request: int
    length: int
    waited: int
    chosen: bool


class Scene:
    """One round of a record. Rows are numbers in the batch.

    Attributes:
        number, slots, decision: as in the record's table `rounds`.
        head: the name of the draft head that drafts, None for other drafters; draft_kv: as in the
            record's header; features_read: of each row, how many accepted drafts the head read with
            the target's features for the first time.
        capacity: how many drafts the round may verify; None in a run without a selector.
        lacking: names of what the record lacks; has_slots: whether it says where the target's K/V
            lies.
        ms: time of each phase.
        rows: the rows of the batch; before, after: those of the previous and the next round.
        new: requests that entered in this round, into the batch or the pool.
        prefilled: by request, how many of its tokens were fed in this round's schedule phase.
        pool: its sequences; empty without a pool.
        forwards: their number, by phase and model.
        motion: by phase; only phases that copied something.
        compacted: by model and row, how accepted drafts moved within the row in the phase accept,
            as pairs of slots (from, to).
    """

    def __init__(self, scenes: "Scenes", number: int) -> None:
        trace = scenes.trace
        rows_of = trace.index.rows_of
        here = rows_of(number)
        last = number + 1 == trace.num_rounds
        self.number = number
        self.slots = int(trace.rounds["slots"][number])
        self.decision: str = trace.meta["decisions"][trace.rounds["decision"][number]]
        self.head = scenes.head
        self.draft_kv: str = trace.meta.get("draft_kv", "kept")
        self.lacking = missing_in(trace.meta)
        self.has_slots = has_slots(trace.meta)
        self.features_read = scenes.features_read[here]
        capacity = int(trace.rounds["capacity"][number])
        self.capacity = capacity if has_selector(trace) else None
        self.ms = scenes.ms[number]
        self.rows = scenes.rows[here]
        self.before = scenes.rows[rows_of(number - 1)] if number else []
        self.after = [] if last else scenes.rows[rows_of(number + 1)]
        self.new = set(np.flatnonzero(scenes.entered == number).tolist())
        self.prefilled = scenes.prefilled(number)
        self.pool = scenes.pool(number)
        self.forwards = scenes.forwards(number)
        self.motion = scenes.motions(number)
        self.compacted = scenes.compacted(number)

    @property
    def drafter(self) -> str:
        """What the model that drafts is called."""
        return self.head or "draft model"

    @cached_property
    def selects(self) -> bool:
        """Whether the target verifies some of the drafts and not all."""
        return any(row.verified < row.drafted for row in self.rows)

    @cached_property
    def branching(self) -> list[BatchRow]:
        """The rows whose drafts are no chain."""
        return [row for row in self.rows if row.branches > 1]

    @cached_property
    def continuing(self) -> list[BatchRow]:
        """The rows whose requests go on after this round."""
        later = {row.request for row in self.after}
        return [row for row in self.rows if row.request in later or not row.finished]

    @cached_property
    def furthest(self) -> BatchRow:
        """Of the rows that continue, the first one of those that reach furthest to the right."""
        return max(self.continuing, key=lambda row: row.end)

    @cached_property
    def began_aligned(self) -> bool:
        """Whether the continuing rows ended in one column when the round began."""
        return len({row.pending for row in self.continuing}) == 1


class Scenes:
    """The rounds of a record, by number.

    judge: whether to report that a position differs from its token's index, and to call a token
    the target's own.

    Raises ValueError where there is no record, or no such round.
    """

    def __init__(self, trace: Trace, *, judge: bool = True) -> None:
        check_recorded(trace, "trace")
        self.trace = trace
        self.feeds = trace.index.feeds_by_stage
        self.moves = trace.index.moves_by_stage
        self.entered = _first_rounds(trace)
        self.ms = milliseconds(trace)
        self.rows = batch_rows(trace, judge)
        self.head = head_name(trace)
        self.features_read: list[int] = accepted_read(trace).tolist()

    def __getitem__(self, number: int) -> Scene:
        if not 0 <= number < self.trace.num_rounds:
            last = self.trace.num_rounds - 1
            raise ValueError(f"round must be from 0 to {last}, got {number}; pass one of these")
        return Scene(self, number)

    def prefilled(self, number: int) -> dict[int, int]:
        feeds = self.trace.feeds
        fed = self.feeds.at(number * len(PHASES) + SCHEDULE)
        fed = fed[feeds["model"][fed] == TARGET]
        requests, counts = np.unique(feeds["request"][fed], return_counts=True)
        return dict(zip(requests.tolist(), counts.tolist(), strict=True))

    def pool(self, number: int) -> list[PoolEntry]:
        here = self.trace.index.pool_by_round.at(number)
        columns = [self.trace.pool[field.name][here].tolist() for field in fields(PoolEntry)]
        return [PoolEntry(*values) for values in zip(*columns, strict=True)]

    def forwards(self, number: int) -> dict[tuple[int, int], int]:
        feeds = self.trace.feeds
        counts: dict[tuple[int, int], int] = {}
        for phase in (DRAFT, VERIFY):
            fed = self.feeds.at(number * len(PHASES) + phase)
            for model in range(len(MODELS)):
                steps = feeds["step"][fed][feeds["model"][fed] == model]
                counts[phase, model] = len(np.unique(steps))
        return counts

    def compacted(self, number: int) -> dict[int, dict[int, list[tuple[int, int]]]]:
        entries = self.moves.at(number * len(PHASES) + ACCEPT)
        found: dict[int, dict[int, list[tuple[int, int]]]] = {TARGET: {}, DRAFTER: {}}
        names = ("model", "from_row", "to_row", "from_slot", "to_slot", "length")
        moves = zip(*(self.trace.moves[name][entries].tolist() for name in names), strict=True)
        batch = self.trace.rows["row"][self.trace.index.rows_of(number)].tolist()
        for model, from_row, to_row, from_slot, to_slot, length in moves:
            if from_row == to_row and to_row in batch:
                pairs = found[model].setdefault(batch.index(to_row), [])
                pairs += [(from_slot + k, to_slot + k) for k in range(length)]
        return found

    def motions(self, number: int) -> dict[int, Motion]:
        first = number * len(PHASES)
        moves = {phase: self.moves.at(first + phase) for phase in range(len(PHASES))}
        return {
            phase: motion_of(self.trace, number, entries)
            for phase, entries in moves.items()
            if entries.size
        }


def _first_rounds(trace: Trace) -> Array:
    """Return for each request the round in which it entered the batch or the pool."""
    first = np.full(trace.num_requests, trace.num_rounds)
    for table in (trace.rows, trace.pool):
        np.minimum.at(first, table["request"], table["round"])
    return first
