"""`Scenes`: the rounds of a record as `Scene`s.

Contract: reads a Trace and counts. Prepares whole columns once, so that going through all rounds is
cheap. Not known here: words.
"""

from dataclasses import fields

import numpy as np

from specviz.metrics import check_recorded
from specviz.record.schema import MODELS, PHASES, Array
from specviz.record.trace import Trace
from specviz.views.stepper.columns import milliseconds, pending_positions
from specviz.views.stepper.scene import (
    DRAFT,
    SCHEDULE,
    TARGET,
    VERIFY,
    BatchRow,
    Motion,
    PoolEntry,
    Scene,
)


class Scenes:
    """The rounds of a record, by number. judge: see `Scene`.

    Raises ValueError where there is no record, or no such round.
    """

    def __init__(self, trace: Trace, *, judge: bool = True) -> None:
        check_recorded(trace, "trace")
        self._trace = trace
        self._judge = judge
        rows = trace.rows
        columns = [rows[field.name].tolist() for field in fields(BatchRow)]
        self._rows = [BatchRow(*values) for values in zip(*columns, strict=True)]
        self._feeds = trace.index.feeds_by_stage
        self._moves = trace.index.moves_by_stage
        self._entered = _first_rounds(trace)
        self._ms = milliseconds(trace)
        self._draft_probabilities = np.exp(rows["draft_logprob"]).tolist()
        self._next_positions = pending_positions(trace)[1].tolist()
        last = np.maximum(rows["gained"] - 1, 0)[:, None]  # (N, 1) index into what was emitted
        emitted = np.take_along_axis(rows["emitted"], last, axis=1)[:, 0]
        choice = np.take_along_axis(rows["target_top_ids"][:, :, 0], last, axis=1)[:, 0]
        is_eos = np.isin(emitted, trace.meta["eos_token_ids"])
        self._ended_with_eos = (is_eos & (rows["gained"] > 0)).tolist()
        # only without sampling is the target's choice known: its most probable token
        is_greedy = trace.meta["sampling"] is None
        has_bonus = rows["gained"] > rows["accepted"]
        differs = (emitted != choice) & (choice >= 0)
        self._not_targets_choice = (is_greedy & differs & has_bonus).tolist()

    def __getitem__(self, number: int) -> Scene:
        trace = self._trace
        if not 0 <= number < trace.num_rounds:
            raise ValueError(f"round must be from 0 to {trace.num_rounds - 1}, got {number}")
        entries_of = trace.index.rows_of
        here = entries_of(number)
        return Scene(
            number=number,
            slots=int(trace.rounds["slots"][number]),
            decision=trace.meta["decisions"][trace.rounds["decision"][number]],
            ms=self._ms[number],
            rows=self._rows[here],
            before=self._rows[entries_of(number - 1)] if number > 0 else [],
            after=self._rows[entries_of(number + 1)] if number + 1 < trace.num_rounds else [],
            new=frozenset(np.flatnonzero(self._entered == number).tolist()),
            prefilled=self._prefilled(number),
            pool=self._pool(number),
            forwards=self._forwards(number),
            motion=self._motions(number),
            draft_probabilities=self._draft_probabilities[here],
            next_positions=self._next_positions[here],
            ended_with_eos=self._ended_with_eos[here],
            judge=self._judge,
            not_targets_choice=self._not_targets_choice[here],
        )

    def _prefilled(self, number: int) -> dict[int, int]:
        feeds = self._trace.feeds
        fed = self._feeds.at(number * len(PHASES) + SCHEDULE)
        fed = fed[feeds["model"][fed] == TARGET]
        requests, counts = np.unique(feeds["request"][fed], return_counts=True)
        return dict(zip(requests.tolist(), counts.tolist(), strict=True))

    def _pool(self, number: int) -> list[PoolEntry]:
        pool = self._trace.pool
        here = self._trace.index.pool_by_round.at(number)
        columns = [pool[name][here].tolist() for name in ("request", "length", "waited", "chosen")]
        return [
            PoolEntry(request, length, waited, bool(chosen))
            for request, length, waited, chosen in zip(*columns, strict=True)
        ]

    def _forwards(self, number: int) -> dict[tuple[int, int], int]:
        feeds = self._trace.feeds
        counts: dict[tuple[int, int], int] = {}
        for phase in (DRAFT, VERIFY):
            fed = self._feeds.at(number * len(PHASES) + phase)
            for model in range(len(MODELS)):
                steps = feeds["step"][fed][feeds["model"][fed] == model]
                counts[phase, model] = len(np.unique(steps))
        return counts

    def _motions(self, number: int) -> dict[int, Motion]:
        motions = {}
        for phase in range(len(PHASES)):
            moves = self._moves.at(number * len(PHASES) + phase)
            if moves.size:
                motions[phase] = self._motion(number, moves)
        return motions

    def _motion(self, number: int, entries: Array) -> Motion:
        """entries: those of the table `moves` in one phase."""
        moves = {name: values[entries] for name, values in self._trace.moves.items()}
        size_bytes = 0
        for model, name in enumerate(MODELS):
            slots = int(moves["length"][moves["model"] == model].sum())
            size_bytes += slots * int(self._trace.meta["kv_bytes_per_slot"][name])
        # slots that moved within a row of the target's cache; other moves go from row to row
        within = (moves["model"] == TARGET) & (moves["from_row"] == moves["to_row"])
        cache_rows = moves["to_row"][within].tolist()
        distances = (moves["to_slot"] - moves["from_slot"])[within].tolist()
        batch = self._trace.rows["row"][self._trace.index.rows_of(number)].tolist()
        row_of = {cache_row: row for row, cache_row in enumerate(batch)}
        shifts: dict[int, int] = {}
        for cache_row, distance in zip(cache_rows, distances, strict=True):
            if cache_row in row_of:
                row = row_of[cache_row]
                shifts[row] = shifts.get(row, 0) + distance
        return Motion(size_bytes, {row: shift for row, shift in shifts.items() if shift})


def _first_rounds(trace: Trace) -> Array:
    """By request, the round in which it entered the batch or the pool."""
    first = np.full(trace.num_requests, trace.num_rounds)
    for table in (trace.rows, trace.pool):
        np.minimum.at(first, table["request"], table["round"])
    return first
