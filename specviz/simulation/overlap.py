"""Devices whose rows form two lanes: while one lane verifies, the other drafts.

As in the engine: a lane's round begins when the other one has drafted, and its verification when
the other one has verified. So a step of full lanes costs the longer of the two, not their sum.
Prompts are read while the other lane does not verify. A device then stands for two that work at the
same time. Not known here: where acceptances and costs come from.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from specviz.record.schema import PHASES, Array
from specviz.simulation.costs import CostTable
from specviz.simulation.fleet import Fleet
from specviz.simulation.policy import Policy, service_order
from specviz.simulation.slabs import (
    ARRIVAL,
    LEFT,
    REQUEST,
    SERVED,
    START,
    UNPLACED,
)
from specviz.simulation.workload import Workload

_SCHEDULE, _DRAFT, _VERIFY = (PHASES.index(name) for name in ("schedule", "draft", "verify"))


class OverlappingFleet(Fleet):
    """D devices of two lanes each: lanes 2d and 2d + 1 are those of device d.

    Attributes:
        drafted_s, verified_s: (D,), when the device's drafting and verifying sides get free.
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
        # A lane has half of the rows, in its pool as well.
        half = replace(
            policy,
            overlap=False,
            batch_size=policy.batch_size // 2,
            window=max(policy.window // 2, 1),
        )
        devices = len(tail)
        lanes = 2 * devices
        empty = np.zeros((lanes, queue.shape[1]), np.int64)
        super().__init__(workload, half, table, empty, np.zeros(lanes, np.int64), series)
        self._waiting = [list(row[:count])[::-1] for row, count in zip(queue, tail, strict=True)]
        self._has_moved = np.zeros(len(self.first), bool)
        self._turn = 0
        self.drafted_s = np.zeros(devices)
        self.verified_s = np.zeros(devices)

    def run(self, until_s: float = np.inf) -> None:
        """Let every lane do the rounds that begin before `until_s`."""
        idle_turns = 0
        while idle_turns < 2:
            self._prepare()
            idle_turns = 0 if self._step(until_s) else idle_turns + 1
            self._turn = 1 - self._turn

    @property
    def _mine(self) -> Array:
        """The lanes whose turn it is (D,)."""
        return 2 * np.arange(len(self.drafted_s)) + self._turn

    def _prepare(self) -> None:
        """Let the lanes whose turn it is begin when the other has drafted, and deal requests."""
        mine = self._mine
        self.clock[mine] = np.maximum(self.clock[mine], self.drafted_s)
        for device, lane in enumerate(mine.tolist()):
            if self._waiting[device]:
                self._deal(device, lane)
            else:
                self._share(lane)

    def _load(self, lane: int) -> int:
        return int(self.slabs.working[lane] + self.tail[lane] - self.head[lane])

    def _room(self, lane: int) -> int:
        if not self.policy.refill and self.slabs.working[lane]:
            return 0  # a static batch is closed
        return self.slabs.places - self._load(lane)

    def _deal(self, device: int, lane: int) -> None:
        """Give what has arrived to the lane with fewer rows, of equal ones to `lane`."""
        waiting = self._waiting[device]
        pair = (lane, lane ^ 1)
        now_s = max(self.clock[each] for each in pair)
        if not any(self._load(each) for each in pair):
            # Nothing runs, so the device waits for the next arrival.
            now_s = max(now_s, self.arrival_s[waiting[-1]])
        while waiting and self.arrival_s[waiting[-1]] <= now_s:
            taker = min((each for each in pair if self._room(each) > 0), key=self._load, default=-1)
            if taker < 0:
                return
            self.put(taker, int(waiting.pop()))

    def _share(self, lane: int) -> None:
        """Give half of the lane's rows to the other one if that has none."""
        other = lane ^ 1
        if self._load(other) or self._load(lane) < 2:
            return
        rows = self.slabs.rows
        live = np.arange(self.slabs.count[lane])
        unfinished = live[rows[LEFT, lane, live] > 0]
        movable = unfinished[~self._has_moved[rows[REQUEST, lane, unfinished]]]
        count = min(self._load(lane) // 2, len(movable), self.slabs.places)
        if not count:
            return
        places = movable[len(movable) - count :]
        requests = rows[REQUEST, lane, places]
        round_ = self.totals.rounds[other]
        moved = rows[:, lane, places].copy()
        moved[START] = UNPLACED if self.policy.strategy == "eqspec" else 0
        moved[ARRIVAL] = np.arange(count)
        order = np.arange(count)
        moved[SERVED] = service_order(round_, order, self.slabs.places, entering=True)
        rows[:, other, :count] = moved
        rows[LEFT, lane, places] = 0
        self.slabs.count[other] = self.slabs.working[other] = count
        self.slabs.working[lane] -= count
        self.pool_rounds[requests] += self.totals.rounds[lane] - round_
        self._has_moved[requests] = True
        self.clock[other] = max(self.clock[other], self.clock[lane])

    def _wake(self, idle: Array, until_s: float) -> tuple[Array, Array]:
        active, arrived = super()._wake(idle, until_s)
        turn = np.zeros(len(active), bool)
        turn[self._mine] = True
        return active & turn, arrived

    def _pass_time(self, active: Array, entered: Array, seconds: Array) -> Array:
        begin_s = self.clock.copy()
        lane = np.flatnonzero(active)
        device = lane // 2
        # Reading prompts takes the verifying side, too, unless it takes no time.
        reads = (entered[lane] > 0) & bool(self.table.prefill.any())
        start_s = begin_s[lane]
        start_s = np.where(reads, np.maximum(start_s, self.verified_s[device]), start_s)
        scheduled_s = start_s + seconds[_SCHEDULE, lane]
        verified_s = np.where(reads, scheduled_s, self.verified_s[device])
        self.drafted_s[device] = scheduled_s + seconds[_DRAFT, lane]
        begun_s = np.maximum(self.drafted_s[device], verified_s)
        self.verified_s[device] = begun_s + seconds[_VERIFY:, lane].sum(0)
        self.clock[lane] = self.verified_s[device]
        return begin_s
