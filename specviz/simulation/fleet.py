"""Many simulated devices at once, each with its own queue, rows and clock.

A lane is one device of one replica. A step is a round of every lane. Not known here: where
acceptances and costs come from, and how requests are routed to lanes.
"""

from __future__ import annotations

import numpy as np

from specviz.record.schema import PHASES, Array
from specviz.simulation.costs import CostTable
from specviz.simulation.policy import GROUPED, Policy, choose, service_order
from specviz.simulation.slabs import (
    ARRIVAL,
    LEFT,
    LENGTH,
    POINTER,
    REQUEST,
    SERVED,
    UNPLACED,
    Slabs,
)
from specviz.simulation.totals import Round, Series, Totals
from specviz.simulation.verification import Verification
from specviz.simulation.workload import Workload

_SCHEDULE = PHASES.index("schedule")
_SYNCHRONISE = PHASES.index("synchronise")


class Fleet:
    """L lanes that serve what is put into their queues.

    Attributes:
        clock: (L,) seconds.
        queue: (L, Q), requests in order; those from `head` up to `tail` (L,) wait.
        slabs: the rows of each lane.
        batch_size: the most rows of a round.
        admitted_s, finished_s: (R,) by request.
        own_rounds, pool_rounds: (R,), rounds in which a request decoded, and was live.
        totals, series: sums over the rounds, and what each round was, if that is kept.
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
        self.policy = policy
        self.table = table
        self.prompt_tokens = workload.prompt_tokens.ravel()
        self.new_tokens = workload.new_tokens.ravel()
        self.arrival_s = workload.arrival_s.ravel()
        self.first = workload.first.ravel()
        self.accepted = workload.accepted
        self.by_position = workload.by_position
        self.verification = Verification(workload, policy)
        self.queue = queue
        self.tail = tail
        self.head = np.zeros_like(tail)
        lanes = len(tail)
        places = min(policy.capacity, workload.prompt_tokens.shape[1])
        self.slabs = Slabs(lanes, places, columns=workload.longest + 1)
        self.batch_size = min(policy.batch_size, places)
        self.clock = np.zeros(lanes)
        requests = len(self.first)
        self.admitted_s = np.full(requests, np.nan)
        self.finished_s = np.full(requests, np.nan)
        self.own_rounds = np.zeros(requests, np.int64)
        self.pool_rounds = np.zeros(requests, np.int64)
        self.series = Series() if series else None
        self.totals = Totals(lanes)
        self._lane = np.arange(lanes)
        self._none = np.zeros(lanes, np.int64)  # never written

    def put(self, lane: int, request: int) -> None:
        """Let `request` join the queue of a lane."""
        if self.tail[lane] == self.queue.shape[1]:
            self.queue = np.concatenate([self.queue, np.zeros_like(self.queue)], 1)
        self.queue[lane, self.tail[lane]] = request
        self.tail[lane] += 1

    def run(self, until_s: float = np.inf) -> None:
        """Let every lane do the rounds that begin before `until_s`."""
        while self._step(until_s):
            pass

    def _step(self, until_s: float) -> bool:
        """Do one round of each lane that has work before `until_s`; return whether any had."""
        slabs = self.slabs
        idle = slabs.working == 0
        active, arrived = self._wake(idle, until_s)
        if not active.any():
            return False

        # 1. Schedule: requests enter, finished rows leave, and the batch is chosen.
        has_room = slabs.working < slabs.places if self.policy.refill else idle
        entering = active & arrived & has_room
        entered, prompt_tokens = self._enter(entering.nonzero()[0])
        leaving = active & (slabs.working < slabs.count) & (idle | self.policy.refill)
        compacted = slabs.close_gaps(leaving.nonzero()[0])
        rows, decision, swapped, realigned = self._choose_batch(active, entered)
        in_batch = slabs.in_batch(rows)

        # 2. Draft, verify and accept.
        slots = slabs.ends(in_batch).max(1) + self.policy.drafted
        gained, verified, done = self._accept(in_batch)

        # 3. Synchronise. A pool's rows stay until a batch needs them elsewhere; others never move.
        moved = self._none
        if self.policy.strategy == "eqspec":
            moved = slabs.align_to_longest(in_batch, skip_finished=self.policy.refill)

        # 4. Time passes.
        seconds = self.table.phase_seconds(rows, slots)  # (5, L)
        if entered is not self._none:
            seconds[_SCHEDULE] += self.table.prefill_seconds(entered, prompt_tokens)
        seconds[_SCHEDULE] += self.table.move_s * (compacted + swapped + realigned)
        if moved is not self._none:
            seconds[_SYNCHRONISE] += self.table.move_s * moved
        begin_s = self._pass_time(active, entered, seconds)
        self._finish(done)
        this = Round(
            rows=rows,
            slots=slots,
            decision=decision,
            gained_tokens=gained.sum(1),
            verified_tokens=verified.sum(1),
            realigned_slots=realigned + moved,
            compacted_slots=compacted + swapped,
        )
        self._count(active, begin_s, seconds, this)
        return True

    def _pass_time(self, active: Array, entered: Array, seconds: Array) -> Array:
        """Let the clocks run for a round; return when it began (L,).

        Args:
            active: (L,), the lanes that did one.
            entered: (L,), requests that entered in it.
            seconds: (5, L), of each phase.
        """
        begin_s = self.clock
        self.clock = begin_s + seconds.sum(0)
        return begin_s

    def _wake(self, idle: Array, until_s: float) -> tuple[Array, Array]:
        """Let the `idle` lanes wait for work, which moves their clocks.

        Returns which lanes do a round before `until_s`, and where the first request of the queue
        has arrived, both (L,).
        """
        # Time jumps to the next arrival: rounds without rows would only cost steps of the loop.
        waiting = self.head < self.tail
        next_request = self.queue[self._lane, np.minimum(self.head, self.queue.shape[1] - 1)]
        next_arrival_s = self.arrival_s[next_request]
        wake_s = np.maximum(self.clock, next_arrival_s)
        self.clock = np.where(idle & waiting, wake_s, self.clock)
        active = (waiting | ~idle) & (self.clock < until_s)
        return active, waiting & (next_arrival_s <= self.clock)

    def _enter(self, lanes: Array) -> tuple[Array, Array]:
        """Let requests that have arrived take the free places of `lanes`.

        Returns how many enter, and the tokens that the longest of their prompts has to read, both
        (L,).
        """
        if not len(lanes):
            return self._none, self._none
        free = self.slabs.free(lanes)  # (D, P)
        # The first free place takes the first request that waits.
        turn = self.head[lanes, None] + free.cumsum(1) - 1
        request = self.queue[lanes[:, None], np.minimum(turn, self.queue.shape[1] - 1)]
        queued = turn < self.tail[lanes, None]
        arrived = self.arrival_s[request] <= self.clock[lanes, None]
        index, place = np.nonzero(free & queued & arrived)
        lane = lanes[index]
        request = request[index, place]
        turn = turn[index, place]

        entered = np.bincount(lane, minlength=len(self.clock))
        prompt_tokens = np.zeros_like(entered)
        np.maximum.at(prompt_tokens, lane, self.prompt_tokens[request] - 1)
        start = UNPLACED if self.policy.strategy == "eqspec" else 0
        round_ = self.totals.rounds[lane]
        order = service_order(round_, turn - self.head[lane], self.slabs.places, entering=True)
        rows = [
            request,
            self.prompt_tokens[request],
            self.new_tokens[request],
            self.first[request],
            np.full_like(turn, start),
            turn,
            order,
        ]
        self.slabs.rows[:, lane, place] = np.stack(rows)
        np.maximum.at(self.slabs.count, lane, place + 1)
        self.slabs.working += entered
        self.head += entered
        self.admitted_s[request] = self.clock[lane]
        self.pool_rounds[request] = -round_  # `_finish` adds the round in which it ends
        return entered, prompt_tokens

    def _choose_batch(self, active: Array, entered: Array) -> tuple[Array, Array, Array, Array]:
        """Bring the batch of each lane to the first places.

        Returns rows, decision, and the slots swapped and realigned for it, all (L,).
        """
        slabs = self.slabs
        if not self.policy.pooled:
            rows = np.where(active, slabs.count, 0)
            realigned = self._none
            if self.policy.strategy == "eqspec" and entered.any():
                entering = np.where(entered > 0, rows, 0)
                realigned = slabs.align_to_longest(slabs.in_batch(entering))
            return rows, self._none, self._none, realigned
        served = slabs.rows[SERVED]
        chosen, rows, decision = choose(
            self.policy,
            self.totals.rounds,
            slabs.count,
            slabs.rows[LENGTH],
            slabs.rows[ARRIVAL],
            served,
        )
        rows = np.where(active, rows, 0)
        in_batch = slabs.in_batch(rows)
        lane, turn = in_batch.nonzero()
        place = chosen[lane, turn]
        round_ = self.totals.rounds[lane]
        waited = round_ - served[lane, place] // (2 * slabs.places)
        np.maximum.at(self.totals.longest_wait_rounds, lane, waited)
        served[lane, place] = service_order(round_, turn, slabs.places, entering=False)
        swapped = slabs.bring_to_front(rows, lane, place)
        return rows, decision, swapped, slabs.align_to_common_end(rows, in_batch)

    def _accept(self, in_batch: Array) -> tuple[Array, Array, Array]:
        """Return what rows gain, what of theirs is verified, and whether they end, each (L, b).

        A row gains its accepted drafts and a bonus, up to its budget.
        """
        width = in_batch.shape[1]
        length = self.slabs.rows[LENGTH, :, :width]
        left = self.slabs.rows[LEFT, :, :width]
        pointer = self.slabs.rows[POINTER, :, :width]
        working = in_batch & (left > 0)
        verified = accepted = np.zeros_like(left)
        if self.policy.drafted:
            # A row that does not work reads place 0, which is always there, and gains nothing.
            at = pointer * working
            requests = self.slabs.rows[REQUEST, :, :width]
            verified = self.verification.choose(at, requests, working)
            accepted = np.minimum(self.accepted[at], verified)
        gained = np.minimum(accepted + 1, left) * working
        length += gained
        left -= gained
        # The acceptance of a round, or of the text's position.
        pointer += gained if self.by_position else working
        self.own_rounds[self.slabs.rows[REQUEST, :, :width][working]] += 1
        return gained, verified, working & (left == 0)

    def _finish(self, done: Array) -> None:
        """Note the end of the requests whose rows are `done` (L, b)."""
        lane, place = done.nonzero()
        if not len(lane):
            return
        request = self.slabs.rows[REQUEST, lane, place]
        self.finished_s[request] = self.clock[lane]
        self.pool_rounds[request] += self.totals.rounds[lane] + 1
        self.totals.finished += done.sum(1)
        self.slabs.working -= done.sum(1)

    def _count(self, active: Array, begin_s: Array, seconds: Array, this: Round) -> None:
        """Add a round of the `active` lanes to the totals, and to the series if it is kept."""
        totals = self.totals
        if self.series is not None:
            self.series.add(
                active,
                lane=self._lane,
                round=totals.rounds,
                start_s=begin_s,
                seconds=seconds.sum(0),
                live=self.slabs.count,
                queued=self.tail - self.head,
                **vars(this),
            )
        totals.add(active, seconds, this, self.policy.batch_size)
        if self.policy.pooled:
            full = active & (this.rows == self.policy.batch_size)
            totals.grouped_rounds += full & (this.decision == GROUPED)
