"""The numbers of one round that a sentence about it needs: who came and left, what was fed, moved and waited for.

Contract: reads a Trace and counts. `Scenes` prepares whole columns once, so that going through all rounds is cheap. Not known here: words.
"""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from specviz.metrics import check_recorded
from specviz.record.replay import Timeline
from specviz.record.schema import MODELS, PHASES, Array, Table
from specviz.record.trace import Trace

SCHEDULE, DRAFT, VERIFY, ACCEPT, SYNCHRONISE = range(len(PHASES))
TARGET, DRAFTER = (MODELS.index(name) for name in ("target", "draft"))


@dataclass(frozen=True)
class BatchRow:
    """One row of the batch in a round: the columns of the record's table `rows` that sentences need."""

    request: int
    length: int
    drafted: int
    accepted: int
    gained: int
    finished: bool
    discarded: int
    start: int
    start_after: int
    pending: int
    pending_after: int


@dataclass(frozen=True)
class Waiting:
    """One row of the pool: its request and length, how many rounds it had been passed over, whether it is in this round's batch."""

    request: int
    length: int
    waited: int
    chosen: bool


@dataclass(frozen=True)
class Motion:
    """What one phase copied inside the caches.

    size: bytes; shifts: by row of the batch, how many slots to the right its own K/V went in the target's cache.
    """

    size: int
    shifts: dict[int, int]


@dataclass(frozen=True)
class Scene:
    """One round.

    Attributes:
        number, slots, decision, ms: as in the record's table `rounds`; ms of each phase.
        rows: the rows of the batch; before, after: those of the rounds around it.
        new: requests that came in this round, into the batch or the pool; prefilled: how many of their tokens were fed, by request.
        pool: its rows, empty without one.
        forwards: how many there were, by phase and model.
        motion: by phase; only those phases that copied something.
        doubts: by row, the probabilities that the draft gave its drafts; NaN where it told none.
        next_positions: by row, the position id that its last token is given after this round.
        ended: by row, whether its last token is EOS.
        judge: whether it may be said that a position is not its token's index, or a token the target's own.
        foreign: by row, whether its last token is known not to be the target's choice.
    """

    number: int
    slots: int
    decision: str
    ms: list[float]
    rows: list[BatchRow]
    before: list[BatchRow]
    after: list[BatchRow]
    new: frozenset[int]
    prefilled: dict[int, int]
    pool: list[Waiting]
    forwards: dict[tuple[int, int], int]
    motion: dict[int, Motion]
    doubts: list[list[float]]
    next_positions: list[int]
    ended: list[bool]
    judge: bool
    foreign: list[bool]

    @cached_property
    def staying(self) -> list[int]:
        """The rows whose requests go on after this round."""
        later = {row.request for row in self.after}
        return [at for at, row in enumerate(self.rows) if row.request in later or not row.finished]

    @cached_property
    def ends(self) -> dict[int, int]:
        """By row that stays, the slot where its last token goes right after the acceptance, before anything is moved."""
        return {at: self.rows[at].pending + self.rows[at].gained for at in self.staying}

    @cached_property
    def level(self) -> bool:
        """Whether the rows that stay ended in one column when the round began."""
        return len({self.rows[at].pending for at in self.staying}) == 1

    @property
    def own(self) -> bool:
        """Whether the token that each row gains behind its accepted drafts may be called the target's own."""
        return self.judge and not any(self.foreign)

    def onward(self, at: int) -> int | None:
        """The slot where a row's last token goes past what was rejected, though nothing moves; None where it goes right behind the row."""
        row = self.rows[at]
        return (
            None
            if row.start_after != row.start or row.pending_after == self.ends[at]
            else row.pending_after
        )

    def holes(self, at: int) -> int:
        """Slots between a row's first and last token that hold none of its tokens, after synchronising."""
        row = self.rows[at]
        return row.pending_after - row.start_after + 1 - row.length - row.gained

    def drift(self, at: int) -> int:
        """By how much the position of the row's next token will differ from its index; 0 where that may not be said."""
        return (
            self.next_positions[at] - (self.rows[at].length + self.rows[at].gained - 1)
            if self.judge
            else 0
        )


class Scenes:
    """The rounds of a record. Raises ValueError where there is no record, or no such round."""

    def __init__(self, trace: Trace, *, judge: bool = True) -> None:
        check_recorded(trace, "trace")
        self._trace, self._judge, rows = trace, judge, trace.rows
        self._rows = [
            BatchRow(*values)
            for values in zip(
                *(rows[field.name].tolist() for field in fields(BatchRow)), strict=True
            )
        ]
        self._edges = np.searchsorted(rows["round"], np.arange(trace.num_rounds + 1)).tolist()
        self._feeds, self._moves = Timeline(trace.feeds), Timeline(trace.moves)
        self._came = np.full(trace.num_requests, trace.num_rounds)
        for table in (rows, trace.pool):
            np.minimum.at(self._came, table["request"], table["round"])
        self._ms = milliseconds(trace)
        self._doubts = np.exp(rows["draft_logprob"]).tolist()
        self._next_positions = pending_positions(trace)[1].tolist()
        at = np.maximum(rows["gained"] - 1, 0)[:, None]
        last, choice = (
            np.take_along_axis(values, at, axis=1)[:, 0]
            for values in (rows["emitted"], rows["target_top_ids"][:, :, 0])
        )
        self._ended = (np.isin(last, trace.meta["eos_token_ids"]) & (rows["gained"] > 0)).tolist()
        greedy = trace.meta["sampling"] is None
        self._foreign = (
            greedy & (last != choice) & (choice >= 0) & (rows["gained"] > rows["accepted"])
        ).tolist()

    def __getitem__(self, number: int) -> Scene:
        trace = self._trace
        if not 0 <= number < trace.num_rounds:
            raise ValueError(
                f"there is no round {number}: rounds run from 0 to {trace.num_rounds - 1}"
            )
        here = slice(*self._edges[number : number + 2])
        entering = self._feeds.at(number * len(PHASES) + SCHEDULE)
        entering = entering[trace.feeds["model"][entering] == TARGET]
        requests, counts = np.unique(trace.feeds["request"][entering], return_counts=True)
        phases = range(len(PHASES))
        motion = {
            phase: self._motion(number, phase)
            for phase in phases
            if self._moves.at(number * len(PHASES) + phase).size
        }
        return Scene(
            number=number,
            slots=int(trace.rounds["slots"][number]),
            decision=trace.meta["decisions"][trace.rounds["decision"][number]],
            ms=self._ms[number],
            rows=self._rows[here],
            before=self._rows[self._edges[number - 1] : self._edges[number]] if number else [],
            after=self._rows[slice(*self._edges[number + 1 : number + 3])]
            if number + 1 < trace.num_rounds
            else [],
            new=frozenset(np.flatnonzero(self._came == number).tolist()),
            prefilled=dict(zip(requests.tolist(), counts.tolist(), strict=True)),
            pool=_pool(trace.pool, number),
            forwards=self._forwards(number),
            motion=motion,
            doubts=self._doubts[here],
            next_positions=self._next_positions[here],
            ended=self._ended[here],
            judge=self._judge,
            foreign=self._foreign[here],
        )

    def _forwards(self, number: int) -> dict[tuple[int, int], int]:
        found: dict[tuple[int, int], int] = {}
        for phase in (DRAFT, VERIFY):
            fed = self._feeds.at(number * len(PHASES) + phase)
            model, step = self._trace.feeds["model"][fed], self._trace.feeds["step"][fed]
            found |= {(phase, m): len(np.unique(step[model == m])) for m in range(len(MODELS))}
        return found

    def _motion(self, number: int, phase: int) -> Motion:
        moves, entries = self._trace.moves, self._moves.at(number * len(PHASES) + phase)
        size = sum(
            int(moves["length"][entries][moves["model"][entries] == m].sum()) * self._bytes(m)
            for m in range(len(MODELS))
        )
        rows = self._trace.rows["row"][slice(*self._edges[number : number + 2])].tolist()
        numbers = {row: at for at, row in enumerate(rows)}
        shifts: dict[int, int] = {}
        names = ("from_row", "to_row", "from_slot", "to_slot", "model")
        for source, row, before, after, model in zip(
            *(moves[name][entries].tolist() for name in names), strict=True
        ):
            if row in numbers and source == row and model == TARGET:
                shifts[numbers[row]] = shifts.get(numbers[row], 0) + after - before
        return Motion(size, {row: shift for row, shift in shifts.items() if shift})

    def _bytes(self, model: int) -> int:
        return int(self._trace.meta["kv_bytes_per_slot"][MODELS[model]])


def _pool(pool: Table, number: int) -> list[Waiting]:
    here = np.flatnonzero(pool["round"] == number)
    columns = (pool[name][here].tolist() for name in ("request", "length", "waited", "chosen"))
    return [
        Waiting(request, length, waited, bool(chosen))
        for request, length, waited, chosen in zip(*columns, strict=True)
    ]


def milliseconds(trace: Trace) -> list[list[float]]:
    """Of each round, what its phases took; 0 for what is no number."""
    ms = np.stack([trace.rounds[f"{phase}_ms"].astype(np.float64) for phase in PHASES], axis=1)
    return [
        [round(value, 3) for value in values]
        for values in np.where(np.isfinite(ms), ms, 0).tolist()
    ]


def pending_positions(trace: Trace) -> tuple[Array, Array]:
    """The position id that each entry of the table `rows` has its pending token fed with, before and after the round (N,): the target
    reads it in the verification of this round, and of the request's next one; its index where there is none.
    """
    rows, feeds = trace.rows, trace.feeds
    fed = np.flatnonzero((feeds["phase"] == VERIFY) & (feeds["model"] == TARGET))
    at = entries_of(trace, feeds["round"][fed], feeds["row"][fed])
    fed, at = fed[at >= 0], at[at >= 0]
    pending = (rows["length"][at] - 1 == feeds["index"][fed]) & (
        rows["request"][at] == feeds["request"][fed]
    )
    now = rows["length"] - 1
    now[at[pending]] = feeds["position"][fed[pending]]
    later, order = rows["length"] + rows["gained"] - 1, np.argsort(rows["request"], kind="stable")
    ours, follows = order[:-1], rows["request"][order[:-1]] == rows["request"][order[1:]]
    later[ours[follows]] = now[order[1:][follows]]
    return now, later


def entries_of(trace: Trace, rounds: Array, values: Array, column: str = "row") -> Array:
    """Which entry of the table `rows` has these values (n,), by default rows of the cache, in these rounds (n,); -1 where none has."""
    table = trace.rows
    keys, wanted = (
        first.astype(np.int64) << 32 | second
        for first, second in ((table["round"], table[column]), (rounds, values))
    )
    if keys.size == 0:
        return np.full(wanted.shape, -1)
    order = np.argsort(keys, kind="stable")
    at = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), keys.size - 1)]
    return np.where(keys[at] == wanted, at, -1)
