"""The counts of a run, per round and row, and its finished outputs. They are always kept.

A tally costs no copy and no wait for the device: it reads what the loop has copied to the host
anyway.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from specviz.engine.events import Event
from specviz.engine.run import Run
from specviz.record.schema import COLUMNS, PHASES, Table

_Columns = dict[str, list[int]]


class Tally:
    """Counts per round and row, and the finished outputs.

    Attributes:
        outputs: new tokens of each finished request, by its index.
        nonfinite: finished requests whose logits were non-finite.
    """

    def __init__(self) -> None:
        self.outputs: dict[int, list[int]] = {}
        self.nonfinite: set[int] = set()
        self._rounds: _Columns = defaultdict(list)
        self._rows: _Columns = defaultdict(list)
        self._pool: _Columns = defaultdict(list)

    def observe(self, event: Event) -> None:
        """Take one phase event."""
        if event.phase == "schedule":
            self._observe_schedule(event)
            self._observe_pool(event)
        elif event.phase == "accept":
            self._observe_accept(event)
        elif event.phase == "synchronise":
            layout = event.state.layout
            for i, row in enumerate(event.state.batch.rows):
                pending = layout.pending(i, row.length)
                _append(self._rows, start_after=layout.starts[i], pending_after=pending)

    def _observe_schedule(self, event: Event) -> None:
        state = event.state
        _append(
            self._rounds,
            batch=len(state.batch),
            slots=state.window,
            decision=state.decision,
        )
        for i, row in enumerate(state.batch.rows):
            _append(
                self._rows,
                round=event.round,
                row=i,
                request=row.request.index,
                length=row.length,
                start=state.layout.starts[i],
                pending=state.layout.pending(i, row.length),
            )

    def _observe_pool(self, event: Event) -> None:
        """Note the batch and the rows that wait; only strategies with a pool fill `passed_over`."""
        state = event.state
        if not state.passed_over:
            return
        for i, row in enumerate(state.batch.live):
            _append(
                self._pool,
                round=event.round,
                row=i,
                request=row.request.index,
                length=row.length,
                waited=state.passed_over[row.request.index],
                chosen=i < len(state.batch),
            )

    def _observe_accept(self, event: Event) -> None:
        state = event.state
        _append(self._rounds, capacity=state.draft_capacity)
        for row in state.batch.rows:
            _append(
                self._rows,
                drafted=state.num_draft_tokens if row.gained else 0,
                verified=row.verified,
                accepted=row.accepted,
                gained=row.gained,
                discarded=row.discarded,
                finished=row.finished,
            )
            if row.finished:
                self.outputs[row.request.index] = row.output
                if row.ended_nonfinite:
                    self.nonfinite.add(row.request.index)

    def cut(self, rounds: int) -> None:
        """Forget what came after the first `rounds` rounds, half-noted rounds included."""
        # A round that failed half-way has filled some columns of `rows` and not the others.
        entries = sum(self._rounds["batch"][:rounds])
        members = sum(number < rounds for number in self._pool["round"])
        _cut(self._rounds, rounds)
        _cut(self._rows, entries)
        _cut(self._pool, members)
        ended = zip(self._rows["request"], self._rows["finished"], strict=True)
        finished = {request for request, has_finished in ended if has_finished}
        self.outputs = {i: self.outputs[i] for i in self.outputs.keys() & finished}
        self.nonfinite &= finished

    def written(self, run: Run) -> dict[int, list[int]]:
        """Return the new tokens of each request so far, by its index.

        They are those of finished requests and of the requests of `run`, as far as the rounds noted
        here go.
        """
        # From the oldest knowledge to the newest: before this run, in its live rows, finished.
        texts = {request.index: list(request.written) for request in run.requests}
        texts |= {row.request.index: row.output for row in run.state.batch.live}
        texts |= self.outputs
        # A live row may hold tokens of a round that failed later, which the tally has forgotten.
        counts = self.gained()
        return {index: tokens[: counts[index]] for index, tokens in texts.items()}

    def gained(self) -> Counter[int]:
        """Return how many tokens each request has gained in the rounds noted here, by its index."""
        counts: Counter[int] = Counter()
        for request, gained in zip(self._rows["request"], self._rows["gained"], strict=True):
            counts[request] += gained
        return counts

    def rounds(self, milliseconds: np.ndarray) -> Table:
        """Return the table `rounds` of a trace. `milliseconds` (rounds, 5): of each phase."""
        table = _table("rounds", self._rounds, ("batch", "slots", "capacity", "decision"))
        for i, phase in enumerate(PHASES):
            table[f"{phase}_ms"] = milliseconds[:, i].copy()
        return table

    def rows(self) -> Table:
        """Return the columns of a trace's table `rows` that are known without recording."""
        names = [name for name, form in COLUMNS["rows"].items() if form.shape == ("N",)]
        return _table("rows", self._rows, names)

    def pool(self) -> Table:
        """Return the table `pool` of a trace."""
        return _table("pool", self._pool, list(COLUMNS["pool"]))


def _append(columns: _Columns, **values: Any) -> None:
    for name, value in values.items():
        columns[name].append(value)


def _cut(columns: _Columns, count: int) -> None:
    for column in columns.values():
        del column[count:]


def _table(name: str, columns: Mapping[str, list[int]], wanted: Sequence[str]) -> Table:
    """Return the columns `wanted` as arrays, with the dtypes of the schema's table `name`."""
    forms = COLUMNS[name]
    return {column: np.array(columns[column], forms[column].dtype) for column in wanted}
