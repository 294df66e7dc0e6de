"""The machine of the simulation: many devices at once, each with its own queue, rows and clock; a step is a round of every one of them.

A lane is one device of one replica. Its rows lie in places as in the engine's slabs, those of the batch first, so that moves come out
as they are recorded. Not known here: where acceptances and costs come from, and who sends requests to which lane.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from specviz.record.schema import PHASES, Array
from specviz.simulation.costs import CostTable
from specviz.simulation.policy import GROUPED, Policy, choose, service_order
from specviz.simulation.workload import Workload

REQUEST, LENGTH, LEFT, POINTER, START, CAME, SERVED = range(7)
_SCHEDULE, _SYNCHRONISE = PHASES.index("schedule"), PHASES.index("synchronise")
_FRESH = -1  # start of a row whose K/V has no place yet


class Totals:
    """Sums over the rounds of each lane (L,). seconds (5, L): of each phase; longest_wait_rounds: passed over in one go, in a pool."""

    def __init__(self, lanes: int) -> None:
        self.seconds = np.zeros((len(PHASES), lanes))
        self.rounds, self.row_rounds, self.full_rounds, self.grouped_rounds = np.zeros(
            (4, lanes), np.int64
        )
        self.finished, self.gained_tokens, self.realigned_slots, self.compacted_slots = np.zeros(
            (4, lanes), np.int64
        )
        self.longest_wait_rounds = np.zeros(lanes, np.int64)


class Lanes:
    """L lanes that serve what is put into their queues.

    Attributes:
        clock: (L,) seconds; queue (L, Q): requests in order, those from `head` up to `tail` (L,) wait.
        rows: (7, L, P) int64, what is known of the row in each place; the first `count` (L,) places hold live rows,
            `working` (L,) of them with tokens to go.
        admitted_s, finished_s: (R,) by request; own_rounds and pool_rounds: rounds in which it decoded, and was live.
    """

    def __init__(
        self,
        workload: Workload,
        policy: Policy,
        table: CostTable,
        queue: Array,
        tail: Array,
        series: bool,
    ) -> None:
        self.policy, self.table = policy, table
        self.prompt, self.budget, self.arrival, self.first = (
            values.ravel()
            for values in (
                workload.prompt_tokens,
                workload.new_tokens,
                workload.arrival_s,
                workload.first,
            )
        )
        self.accepted, self.room = workload.accepted, workload.longest + 1
        self.queue, self.tail, self.head = queue, tail, np.zeros_like(tail)
        lanes, places = len(tail), min(policy.capacity, workload.prompt_tokens.shape[1])
        self.width = min(policy.batch_size, places)  # rows in a round at the most
        self.clock, self.count, self.working = (
            np.zeros(lanes),
            np.zeros(lanes, np.int64),
            np.zeros(lanes, np.int64),
        )
        self.rows = np.zeros((7, lanes, places), np.int64)
        self.admitted_s, self.finished_s = (
            np.full(self.prompt.shape, np.nan),
            np.full(self.prompt.shape, np.nan),
        )
        self.own_rounds, self.pool_rounds = (
            np.zeros(self.prompt.shape, np.int64),
            np.zeros(self.prompt.shape, np.int64),
        )
        self.series: dict[str, list[Array]] | None = defaultdict(list) if series else None
        self.totals = Totals(lanes)
        self._place, self._lane = np.arange(places), np.arange(lanes)

    def put(self, lane: int, request: int) -> None:
        """Let `request` join the queue of a lane."""
        if self.tail[lane] == self.queue.shape[1]:
            self.queue = np.concatenate([self.queue, np.zeros_like(self.queue)], 1)
        self.queue[lane, self.tail[lane]] = request
        self.tail[lane] += 1

    def run(self, until: float = np.inf) -> None:
        """Let every lane do the rounds that begin before `until` seconds."""
        while self._step(until):
            pass

    def _step(self, until: float) -> bool:
        """One round of each lane that has something to do before `until`; whether there was one."""
        waiting, idle = self.head < self.tail, self.working == 0
        nxt = self.queue[self._lane, np.minimum(self.head, self.queue.shape[1] - 1)]
        self.clock = np.where(
            idle & waiting, np.maximum(self.clock, self.arrival[nxt]), self.clock
        )  # an idle lane waits for work
        active = (waiting | ~idle) & (self.clock < until)
        if not active.any():
            return False
        entering = (
            active
            & waiting
            & (self.arrival[nxt] <= self.clock)
            & (self.working < len(self._place) if self.policy.refill else idle)
        )
        fresh, tokens = self._enter(np.flatnonzero(entering))
        compacted = self._close_gaps(
            np.flatnonzero(active & (self.working < self.count) & (idle | self.policy.refill))
        )
        rows, decision, swapped, realigned = self._gather(active, fresh)
        slots = self._ends(rows).max(1) + self.policy.drafted
        gained, done = self._accept(rows)
        moved = (
            self._realign(rows, self.policy.refill)
            if self.policy.strategy == "eqspec"
            else np.zeros_like(rows)
        )
        seconds = self.table.phases[
            :, rows, np.minimum(slots // self.table.stride, self.table.phases.shape[2] - 1)
        ]  # (5, L)
        seconds[_SCHEDULE] += self.table.prefill[
            fresh, np.minimum(tokens // self.table.stride, self.table.prefill.shape[1] - 1)
        ]
        seconds[_SCHEDULE] += self.table.move_s * (compacted + swapped + realigned)
        seconds[_SYNCHRONISE] += self.table.move_s * moved
        begin, self.clock = self.clock, self.clock + seconds.sum(0)
        self._finish(done)
        told = {"rows": rows, "slots": slots, "decision": decision, "gained_tokens": gained.sum(1)}
        self._count(
            active,
            begin,
            seconds,
            told | {"realigned_slots": realigned + moved, "compacted_slots": compacted + swapped},
        )
        return True

    def _enter(self, lanes: Array) -> tuple[Array, Array]:
        """In each of `lanes`, requests that have arrived take the places of finished rows, and those behind the last row.

        Returns how many enter (L,), and what the longest of their prompts has to read, in tokens.
        """
        entered, tokens = np.zeros_like(self.count), np.zeros_like(self.count)
        free = (self._place >= self.count[lanes, None]) | (self.rows[LEFT, lanes] == 0)
        nth = (
            self.head[lanes, None] + free.cumsum(1) - 1
        )  # the first free place takes the first that waits
        request = self.queue[lanes[:, None], np.minimum(nth, self.queue.shape[1] - 1)]
        lane, place = np.nonzero(
            free
            & (nth < self.tail[lanes, None])
            & (self.arrival[request] <= self.clock[lanes, None])
        )
        request, turn, lane = request[lane, place], nth[lane, place], lanes[lane]
        entered[:] = np.bincount(lane, minlength=len(entered))
        np.maximum.at(tokens, lane, self.prompt[request] - 1)
        self.head += entered
        self.working += entered
        start = _FRESH if self.policy.strategy == "eqspec" else 0
        order = service_order(
            self.totals.rounds[lane],
            turn - (self.head - entered)[lane],
            len(self._place),
            entering=True,
        )
        self.rows[:, lane, place] = np.stack(
            [
                request,
                self.prompt[request],
                self.budget[request],
                self.first[request],
                np.full_like(turn, start),
                turn,
                order,
            ]
        )
        np.maximum.at(self.count, lane, place + 1)
        self.admitted_s[request], self.pool_rounds[request] = (
            self.clock[lane],
            -self.totals.rounds[lane],
        )
        return entered, tokens

    def _close_gaps(self, lanes: Array) -> Array:
        """In each of `lanes` finished rows leave, and the last live rows take their places; returns the slots that moved (L,)."""
        live = (self._place < self.count[lanes, None]) & (self.rows[LEFT, lanes] > 0)
        self.count[lanes] = self.working[lanes]
        inside = self._place < self.count[lanes, None]
        lane, to = np.nonzero(inside & ~live)
        _, place = np.nonzero(live & ~inside)
        lane = lanes[lane]
        self.rows[:, lane, to] = self.rows[:, lane, place]
        return _summed(lane, self.rows[LENGTH, lane, to] - 1, len(self.count))

    def _gather(self, active: Array, fresh: Array) -> tuple[Array, Array, Array, Array]:
        """The batch of each lane, in the first places. Returns rows, decision, and the slots swapped and realigned for it, all (L,)."""
        none = np.zeros_like(self.count)
        if not self.policy.pooled:
            rows = np.where(active, self.count, 0)
            return (
                rows,
                none,
                none,
                self._realign(np.where(fresh > 0, rows, 0))
                if self.policy.strategy == "eqspec"
                else none,
            )
        order = self.rows[SERVED]
        chosen, rows, decision = choose(
            self.policy, self.totals.rounds, self.count, self.rows[LENGTH], self.rows[CAME], order
        )
        rows = np.where(active, rows, 0)
        lane, turn = np.nonzero(self._taken(rows))
        place = chosen[lane, turn]
        waited = self.totals.rounds[lane] - order[lane, place] // (2 * len(self._place))
        np.maximum.at(self.totals.longest_wait_rounds, lane, waited)
        order[lane, place] = service_order(
            self.totals.rounds[lane], turn, len(self._place), entering=False
        )
        return (
            rows,
            decision,
            self._bring_to_front(rows, lane, place),
            self._end_in_one_column(rows),
        )

    def _bring_to_front(self, rows: Array, lane: Array, place: Array) -> Array:
        """Rows of the batch that are not among the first trade places with those that are and should not; returns slots moved (L,)."""
        picked, front = np.zeros(self.rows.shape[1:], bool), self._place < rows[:, None]
        picked[lane, place] = True
        lane, out = np.nonzero(front & ~picked)
        _, into = np.nonzero(picked & ~front)
        self.rows[:, lane, out], self.rows[:, lane, into] = (
            self.rows[:, lane, into],
            self.rows[:, lane, out],
        )
        return _summed(
            lane, self.rows[LENGTH, lane, out] + self.rows[LENGTH, lane, into] - 2, len(rows)
        )

    def _end_in_one_column(self, rows: Array) -> Array:
        """Where half of the batch or more ends already, else as far left as its longest row allows; returns slots moved (L,)."""
        taken, ends = self._taken(rows), self._ends(rows)
        same = np.zeros_like(ends)
        for other in ends.T:
            same += ends == other[:, None]
        same *= taken
        common = same.argmax(1)
        end, there = ends[self._lane, common], same[self._lane, common]
        longest = (self.rows[LENGTH, :, : taken.shape[1]] * taken).max(1, initial=0)
        stays = (2 * there >= rows) & (longest <= end) & (end <= self.room)
        return self._move(taken, np.where(stays, end, longest))

    def _realign(self, rows: Array, leaving: bool = True) -> Array:
        """Rows end in the column of the longest, but for finished ones that are about to leave; returns slots moved (L,)."""
        taken = self._taken(rows)
        if leaving:
            taken &= self.rows[LEFT, :, : taken.shape[1]] > 0
        return self._move(taken, (self.rows[LENGTH, :, : taken.shape[1]] * taken).max(1, initial=0))

    def _move(self, taken: Array, end: Array) -> Array:
        """Let the rows `taken` (L, B) end in column `end` (L,); K/V that lies elsewhere moves, all but the pending token's."""
        length, start = (
            self.rows[LENGTH, :, : taken.shape[1]],
            self.rows[START, :, : taken.shape[1]],
        )
        new = end[:, None] - length
        moved = np.where(taken & (start != new) & (start != _FRESH), length - 1, 0).sum(1)
        start[...] = np.where(taken, new, start)
        return moved

    def _taken(self, rows: Array) -> Array:
        """(L, b): whether the batch of a lane reaches to a place; b rows has the largest of them."""
        return self._place[: rows.max()] < rows[:, None]

    def _ends(self, rows: Array) -> Array:
        """(L, B): the column behind each row of the batch, -1 where there is none."""
        taken = self._taken(rows)
        return np.where(
            taken,
            self.rows[START, :, : taken.shape[1]] + self.rows[LENGTH, :, : taken.shape[1]],
            -1,
        )

    def _accept(self, rows: Array) -> tuple[Array, Array]:
        """What rows gain (L, b): accepted drafts and a bonus, up to what was asked for; and whether that ends them (L, b)."""
        at_work = self._taken(rows)
        length, left, pointer = (
            self.rows[which, :, : at_work.shape[1]] for which in (LENGTH, LEFT, POINTER)
        )
        at_work &= left > 0
        accepted = (
            np.minimum(self.accepted[pointer * at_work], self.policy.drafted)
            if self.policy.drafted
            else 0
        )
        gained = np.minimum(accepted + 1, left) * at_work
        length += gained
        left -= gained
        pointer += at_work
        return gained, at_work & (left == 0)

    def _finish(self, done: Array) -> None:
        lane, place = np.nonzero(done)
        request = self.rows[REQUEST, lane, place]
        self.finished_s[request] = self.clock[lane]
        self.own_rounds[request] = self.rows[POINTER, lane, place] - self.first[request]
        self.pool_rounds[request] += self.totals.rounds[lane] + 1
        self.totals.finished += done.sum(1)
        self.working -= done.sum(1)

    def _count(self, active: Array, begin: Array, seconds: Array, told: dict[str, Array]) -> None:
        """Add a round of the lanes that are `active` to the totals, and to the series if there is one; `told` (L,) is what it was."""
        totals, full = self.totals, active & (told["rows"] == self.policy.batch_size)
        if self.series is not None:
            columns = {
                "lane": self._lane,
                "round": totals.rounds,
                "start_s": begin,
                "seconds": seconds.sum(0),
                "live": self.count,
            }
            for name, values in {**columns, "queued": self.tail - self.head, **told}.items():
                self.series[name].append(values[active])
        totals.seconds += seconds
        totals.rounds += active
        totals.row_rounds += told["rows"]
        totals.full_rounds += full
        totals.grouped_rounds += full & (told["decision"] == GROUPED) & self.policy.pooled
        for name in ("gained_tokens", "realigned_slots", "compacted_slots"):
            getattr(totals, name)[...] += told[name]


def _summed(lane: Array, slots: Array, lanes: int) -> Array:
    """Slots of each lane (L,)."""
    return np.bincount(lane, slots, lanes).astype(np.int64)
