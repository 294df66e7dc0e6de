"""Simulated devices: their queues, their rows in places, and their clocks.

Rows are chosen by the engine's own `Scheduler`, and lie as they do in the engine's slabs, so that
rounds, slots and moves of K/V are those that a run records.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from specviz.record.schema import PHASES
from specviz.scheduling.scheduler import Scheduler
from specviz.simulation.policy import Policy
from specviz.simulation.prices import Prices
from specviz.simulation.workload import Workload

SCHEDULE, DRAFT, VERIFY = 0, 1, 2  # places in PHASES
# What a lane notes of each round, in this order.
COLUMNS = (
    "lane", "round", "start_s", "rows", "live", "queued", "slots", "decision", "gained_tokens",
    "verified_tokens", "realigned_slots", "compacted_slots", "longest_wait_rounds",
    *(f"{phase}_s" for phase in PHASES),
)  # fmt: skip


@dataclass(slots=True)
class Request:
    """A request that is served, and what it met: see `Simulation`."""

    number: int
    prompt_tokens: int
    new_tokens: int
    arrival_s: float
    first: int
    admitted_s: float = np.nan
    finished_s: float = np.nan
    own_rounds: int = 0
    pool_rounds: int = 0


@dataclass(slots=True)
class Row:
    """A request that has a place.

    Attributes:
        length, left: n, and tokens left to write.
        at: the next index into the workload's acceptances.
        start: the column of its token 0; None while its K/V has no place.
        entered: the round in which it came.
        waited: rounds since a draft of it was last verified.
    """

    request: Request
    length: int
    left: int
    at: int
    start: int | None
    entered: int
    waited: int = 0

    @property
    def end(self) -> int:
        """The column behind its last token."""
        assert self.start is not None
        return self.start + self.length


class Lane:
    """Rows that share their rounds: those of a device, or of one of its two lanes.

    Attributes:
        queue: requests that wait for a place.
        rows: in their places. Finished rows stay until others take theirs.
        places: the most rows.
        clock: seconds.
        notes: what every round was; see COLUMNS.
    """

    def __init__(self, number: int, workload: Workload, policy: Policy, prices: Prices) -> None:
        self.number = number
        self.policy = policy
        self.queue: deque[Request] = deque()
        self.rows: list[Row] = []
        self.clock = 0.0
        self.notes: list[tuple[object, ...]] = []
        self._prices = prices
        self.places = policy.window if policy.pooled else policy.batch_size
        self._columns = workload.longest + 1  # of a slab
        self._scheduler = Scheduler(policy.batch_size, policy.fallback, policy.max_wait)
        self._accepted = workload.accepted
        self._by_position = workload.by_position
        self._column = None
        if policy.drafted and policy.selector is not None:
            self._column = getattr(workload, policy.selector.reads)

    @property
    def working(self) -> int:
        """Rows that have tokens left."""
        return sum(row.left > 0 for row in self.rows)

    def has_work(self, until_s: float) -> bool:
        """Return whether a round begins before `until_s`. An idle lane waits for a request."""
        working = self.working
        if self.queue and not working:
            self.clock = max(self.clock, self.queue[0].arrival_s)
        return (working > 0 or len(self.queue) > 0) and self.clock < until_s

    def step(self, device: Device) -> None:
        """Do one round, whose time `device` lets pass."""
        policy = self.policy
        # 1. Schedule: requests enter, finished rows leave, and the batch is chosen.
        entered: list[Row] = []
        carried = realigned = moved = waited = 0
        if policy.refill or not self.working:
            entered = self._enter()
            carried = self._close_gaps()
        batch, decision = self.rows, "batch"
        if policy.pooled:
            batch, decision, waited, swapped = self._choose_batch()
            carried += swapped
            realigned = move_to(self._common_end(batch), batch)
        elif policy.strategy == "eqspec" and entered:
            realigned = align(row for row in batch if row.left)

        # 2. Draft, verify and accept.
        slots = max(row.end for row in batch) + policy.drafted
        verified = self._verified(batch)
        working = [row for row in batch if row.left]
        gained = self._accept(batch, verified)

        # 3. Synchronise. A pool's rows stay until a batch needs them elsewhere.
        if policy.strategy == "eqspec":
            # Finished rows that are about to leave stay where they are.
            moved = align(row for row in batch if row.left or not policy.refill)

        # 4. Time passes.
        seconds = self._prices.of_round(len(batch), slots)
        prefill_s = 0.0
        if entered:
            tokens = max(row.request.prompt_tokens for row in entered) - 1
            prefill_s = self._prices.of_prefill(len(entered), tokens)
        seconds[SCHEDULE] += prefill_s + self._prices.move_s * (carried + realigned)
        seconds[-1] += self._prices.move_s * moved
        begin_s = self.clock
        device.pass_time(self, seconds, reads=prefill_s > 0)
        device.tokens -= gained
        for row in working:
            row.request.own_rounds += 1
            if not row.left:
                row.request.finished_s = self.clock
                row.request.pool_rounds = len(self.notes) + 1 - row.entered
                device.requests -= 1
        done = (begin_s, len(batch), len(self.rows), len(self.queue), slots, decision, gained)
        moves = (sum(verified), realigned + moved, carried, waited)
        self.notes.append((self.number, len(self.notes), *done, *moves, *seconds))

    def _enter(self) -> list[Row]:
        """Let requests that have arrived take the free places; return their rows."""
        start = None if self.policy.strategy == "eqspec" else 0
        entered = []
        for place in range(self.places):
            if not self.queue or self.queue[0].arrival_s > self.clock:
                break
            if place < len(self.rows) and self.rows[place].left:
                continue
            new = self.queue.popleft()
            new.admitted_s = self.clock
            now = len(self.notes)
            row = Row(new, new.prompt_tokens, new.new_tokens, new.first, start, entered=now)
            self.rows[place : place + 1] = [row]
            entered.append(row)
        return entered

    def _close_gaps(self) -> int:
        """Remove finished rows; the last live ones take their places. Return the slots moved."""
        working = self.working
        outside = iter([row for row in self.rows[working:] if row.left])
        moved = 0
        for place, row in enumerate(self.rows[:working]):
            if not row.left:
                self.rows[place] = next(outside)
                moved += self.rows[place].length - 1
        del self.rows[working:]
        return moved

    def _choose_batch(self) -> tuple[list[Row], str, int, int]:
        """Bring the batch to the first places.

        Returns the batch, how it was found, the longest wait in rounds, and the slots moved.
        """
        lengths = {row.request.number: row.length for row in self.rows}
        waited = max(self._scheduler.update(lengths).values())
        numbers, decision = self._scheduler.choose(lengths)
        size = len(numbers)
        chosen = [row.request.number in set(numbers) for row in self.rows]
        inside = [place for place in range(size) if not chosen[place]]
        outside = [place for place in range(size, len(chosen)) if chosen[place]]
        moved = 0
        for i, j in zip(inside, outside, strict=True):
            self.rows[i], self.rows[j] = self.rows[j], self.rows[i]
            moved += self.rows[i].length + self.rows[j].length - 2
        return self.rows[:size], decision, waited, moved

    def _common_end(self, batch: Sequence[Row]) -> int:
        """Return the column where the batch is to end, by the engine's rule in `exspec.py`."""
        longest = max(row.length for row in batch)
        end, rows_there = Counter(row.end for row in batch).most_common(1)[0]
        if 2 * rows_there >= len(batch) and longest <= end <= self._columns:
            return end
        return longest

    def _verified(self, batch: Sequence[Row]) -> list[int]:
        """Return how many drafts of each row of the batch are verified; none of a finished one."""
        selector = self.policy.selector
        k = self.policy.num_draft_tokens if self.policy.drafted else 0
        if self._column is None or selector is None:
            return [k if row.left else 0 for row in batch]
        working = np.array([row.left > 0 for row in batch])
        at = np.array([row.at if row.left else 0 for row in batch])
        waited = np.array([row.waited for row in batch])
        column = self._column[at, : self.policy.drafted]
        verified: list[int] = selector.choose(column, working, k, waited).tolist()
        for row, count in zip(batch, verified, strict=True):
            row.waited = 0 if count else row.waited + 1
        return verified

    def _accept(self, batch: Sequence[Row], verified: Sequence[int]) -> int:
        """Let rows gain their accepted drafts and a bonus, up to their budgets; return the sum."""
        total = 0
        for row, count in zip(batch, verified, strict=True):
            if row.left:
                accepted = min(int(self._accepted[row.at]), count) if count else 0
                gained = min(accepted + 1, row.left)
                row.length += gained
                row.left -= gained
                # The acceptance of a round, or of the text's position.
                row.at += gained if self._by_position else 1
                total += gained
        return total


def align(rows: Iterable[Row]) -> int:
    """Let rows end in the column of the longest; return the slots that move."""
    moving = list(rows)
    return move_to(max((row.length for row in moving), default=0), moving)


def move_to(end: int, rows: Iterable[Row]) -> int:
    """Let rows end in column `end`; return the slots that move."""
    moved = 0
    for row in rows:
        start = end - row.length
        if row.start not in (None, start):
            moved += row.length - 1  # all K/V but that of the pending token, which is to come
        row.start = start
    return moved


class Device:
    """A device of one lane, or of two, of which one drafts while the other verifies.

    As in the engine: a lane's round begins when the other one has drafted, and its verification
    when the other one has verified. So a step of full lanes costs the longer of the two, not their
    sum. Prompts are read while the other lane does not verify. The device then stands for two that
    work at the same time.

    Attributes:
        queue: requests that no lane has yet.
        requests, tokens: how many it has to finish, and to write.
    """

    def __init__(self, number: int, workload: Workload, policy: Policy, prices: Prices) -> None:
        self.queue: deque[Request] = deque()
        self.requests = 0
        self.tokens = 0
        self._drafted_s = 0.0  # when the side that drafts gets free
        self._verified_s = 0.0
        self._turn = 0
        count = 1
        if policy.overlap:
            count = 2
            window = max(policy.window // 2, 1)
            policy = replace(
                policy, overlap=False, batch_size=policy.batch_size // 2, window=window
            )
        self.lanes = [
            Lane(count * number + lane, workload, policy, prices) for lane in range(count)
        ]
        if count == 1:
            self.lanes[0].queue = self.queue

    def put(self, request: Request) -> None:
        """Let a request join the queue."""
        self.queue.append(request)
        self.requests += 1
        self.tokens += request.new_tokens

    def run(self, until_s: float = np.inf) -> None:
        """Do the rounds that begin before `until_s`, the lanes in turns."""
        idle = 0
        while idle < len(self.lanes):
            lane = self.lanes[self._turn]
            if len(self.lanes) > 1:
                lane.clock = max(lane.clock, self._drafted_s)
                self._deal(lane)
            if lane.has_work(until_s):
                lane.step(self)
                idle = 0
            else:
                idle += 1
            self._turn = (self._turn + 1) % len(self.lanes)

    def pass_time(self, lane: Lane, seconds: Sequence[float], *, reads: bool) -> None:
        """Let the clock of a lane run for a round; `reads` says whether it reads prompts."""
        if len(self.lanes) == 1:
            lane.clock += sum(seconds)
            return
        start_s = max(lane.clock, self._verified_s) if reads else lane.clock
        scheduled_s = start_s + seconds[SCHEDULE]
        verified_s = scheduled_s if reads else self._verified_s
        self._drafted_s = scheduled_s + seconds[DRAFT]
        begun_s = max(self._drafted_s, verified_s)
        self._verified_s = begun_s + sum(seconds[VERIFY:])
        lane.clock = self._verified_s

    def _deal(self, lane: Lane) -> None:
        """Give what has arrived to the lane with fewer rows, of equal ones to `lane`."""
        pair = sorted(self.lanes, key=lambda each: each is not lane)
        now_s = max(each.clock for each in pair)
        if self.queue and not any(map(_load, pair)):
            # Nothing runs, so the device waits for the next arrival.
            now_s = max(now_s, self.queue[0].arrival_s)
        while self.queue and self.queue[0].arrival_s <= now_s:
            open_lanes = [each for each in pair if _has_room(each)]
            if not open_lanes:
                return
            min(open_lanes, key=_load).queue.append(self.queue.popleft())


def _load(lane: Lane) -> int:
    return lane.working + len(lane.queue)


def _has_room(lane: Lane) -> bool:
    if not lane.policy.refill and lane.working:
        return False  # a static batch is closed
    return _load(lane) < lane.places
