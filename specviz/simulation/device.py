"""Simulated devices: their queues, their rows in places, and their clocks.

Rows are chosen by the engine's own `Scheduler`, and lie as they do in the engine's slabs, so that
rounds, slots and moves of K/V are those that a run records.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from specviz.costs.rounds import RoundCosts
from specviz.record.schema import PHASES
from specviz.scheduling.scheduler import Scheduler
from specviz.simulation.policy import Policy
from specviz.simulation.workload import Workload

MOVED = 1_000  # slots that move together when the price of one is taken


@dataclass(slots=True)
class Request:
    """A request, its row, and what it met: see `Simulation`.

    Attributes:
        length, left: n, and tokens left to write.
        at: the next index into the workload's acceptances.
        start: the column of its token 0; None while its K/V has no place.
        entered: the round of its lane in which it got a row.
        waited: rounds since a draft of it was last verified.
    """

    number: int
    length: int
    left: int
    arrival_s: float
    at: int
    start: int | None = None
    entered: int = 0
    waited: int = 0
    admitted_s: float = np.nan
    finished_s: float = np.nan
    own_rounds: int = 0
    pool_rounds: int = 0

    @property
    def end(self) -> int:
        """The column behind its last token."""
        assert self.start is not None
        return self.start + self.length


@dataclass
class Lane:
    """Rows that share their rounds: those of a device, or of one of its two lanes.

    Attributes:
        scheduler: of a pool.
        queue: requests that enter next.
        rows: in their places. Finished rows stay until others take theirs.
        clock: seconds.
        rounds: how many it has begun.
    """

    number: int
    scheduler: Scheduler
    queue: deque[Request] = field(default_factory=deque)
    rows: list[Request] = field(default_factory=list)
    clock: float = 0.0
    rounds: int = 0

    @property
    def working(self) -> int:
        """Rows that have tokens left."""
        return sum(row.left > 0 for row in self.rows)

    @property
    def load(self) -> int:
        """Requests that it has to finish."""
        return self.working + len(self.queue)


class Device:
    """A device of one lane, or of two, of which one drafts while the other verifies.

    As in the engine: a lane's round begins when the other one has drafted, and its verification
    when the other one has verified. So a step of full lanes costs the longer of the two, not their
    sum. Prompts are read while the other lane does not verify. The device then stands for two that
    work at the same time.

    Attributes:
        requests: how many it has to finish.
        notes: an entry for each round of its lanes; see `Simulation.rounds`.
    """

    def __init__(self, number: int, workload: Workload, policy: Policy, costs: RoundCosts) -> None:
        self.requests = 0
        self.notes: list[dict[str, object]] = []
        self._workload = workload
        self._costs = costs
        lanes = 2 if policy.overlap else 1
        self._policy = own = replace(  # of a lane
            policy,
            overlap=False,
            batch_size=policy.batch_size // lanes,
            window=max(policy.window // lanes, 1),
        )
        self._move_s = self._more_s(moved=MOVED) / MOVED  # of a slot of K/V
        self._places = own.window if own.pooled else own.batch_size
        self._queue: deque[Request] = deque()  # requests that no lane has yet
        self._drafted_s = 0.0  # when the side that drafts gets free
        self._verified_s = 0.0
        self._turn = 0
        self._lanes = [
            Lane(lanes * number + lane, Scheduler(own.batch_size, own.fallback, own.max_wait))
            for lane in range(lanes)
        ]

    def put(self, request: Request) -> None:
        """Let a request join the queue."""
        self._queue.append(request)
        self.requests += 1

    def run(self, until_s: float = np.inf) -> None:
        """Do the rounds that begin before `until_s`, the lanes in turns."""
        idle = 0
        while idle < len(self._lanes):
            lane = self._lanes[self._turn]
            lane.clock = max(lane.clock, self._drafted_s)
            self._deal(lane)
            if lane.queue and not lane.working:
                lane.clock = max(lane.clock, lane.queue[0].arrival_s)
            if lane.load and lane.clock < until_s:
                self._do_round(lane)
                idle = 0
            else:
                idle += 1
            self._turn = (self._turn + 1) % len(self._lanes)

    def _deal(self, lane: Lane) -> None:
        """Give what has arrived to the lane with fewer rows, of equal ones to `lane`."""
        lanes = sorted(self._lanes, key=lambda each: each is not lane)
        now_s = max(each.clock for each in lanes)
        if self._queue and not any(each.load for each in lanes):
            # Nothing runs, so the device waits for the next arrival.
            now_s = max(now_s, self._queue[0].arrival_s)
        while self._queue and self._queue[0].arrival_s <= now_s:
            fewest = min(lanes, key=self._places_taken)
            if self._places_taken(fewest) >= self._places:
                return
            fewest.queue.append(self._queue.popleft())

    def _places_taken(self, lane: Lane) -> int:
        """Return how many places have an owner: all of a static batch that is under way."""
        if not self._policy.refill and lane.working:
            return self._places
        return lane.load

    def _do_round(self, lane: Lane) -> None:
        policy = self._policy
        # 1. Schedule: requests enter, finished rows leave, and the batch is chosen.
        entered: list[Request] = []
        carried = realigned = moved = waited = 0
        if policy.refill or not lane.working:
            entered = self._enter(lane)
            carried = close_gaps(lane)
        batch, decision = lane.rows, "batch"
        if policy.pooled:
            batch, decision, waited, swapped = choose_batch(lane)
            carried += swapped
            realigned = move_to(self._common_end(batch), batch)
        elif policy.strategy == "eqspec" and entered:
            realigned = align(row for row in batch if row.left)
        longest_prompt = max((row.length for row in entered), default=0)

        # 2. Draft, verify and accept.
        slots = max(row.end for row in batch) + policy.drafted
        verified = self._verified(batch)
        decoding = [row for row in batch if row.left]
        gained = self._accept(batch, verified)

        # 3. Synchronise. A pool's rows stay until a batch needs them elsewhere.
        if policy.strategy == "eqspec":
            # Finished rows that are about to leave stay where they are.
            moved = align(row for row in batch if row.left or not policy.refill)

        # 4. Time passes. Prompts are read while the other lane does not verify.
        seconds = dict(self._costs(len(batch), policy.drafted, slots))
        seconds["schedule"] += self._move_s * (carried + realigned)
        seconds["synchronise"] += self._move_s * moved
        begin_s = start_s = lane.clock
        if entered:
            prefill_s = self._more_s(entering=len(entered), prompt=longest_prompt - 1)
            seconds["schedule"] += prefill_s
            if prefill_s > 0:
                start_s = max(start_s, self._verified_s)
        self._drafted_s = start_s + seconds["schedule"] + seconds["draft"]
        verifying_s = max(self._drafted_s, self._verified_s)
        self._verified_s = verifying_s + sum(seconds[phase] for phase in PHASES[2:])
        lane.clock = self._verified_s

        self.notes.append(
            {
                "lane": lane.number,
                "round": lane.rounds,
                "start_s": begin_s,
                "rows": len(batch),
                "live": len(lane.rows),
                "queued": len(self._queue) + sum(len(each.queue) for each in self._lanes),
                "slots": slots,
                "decision": decision,
                "gained_tokens": gained,
                "verified_tokens": sum(verified),
                "realigned_slots": realigned + moved,
                "compacted_slots": carried,
                "longest_wait_rounds": waited,
                **{f"{phase}_s": float(seconds[phase]) for phase in PHASES},
            }
        )
        lane.rounds += 1
        for row in decoding:
            row.own_rounds += 1
            if not row.left:
                row.finished_s = lane.clock
                row.pool_rounds = lane.rounds - row.entered
                self.requests -= 1

    def _more_s(self, **work: int) -> float:
        """Return the seconds that further work adds to a round, here one of a row and a slot."""
        smallest = (1, self._policy.drafted, 1)
        return sum(self._costs(*smallest, **work).values()) - sum(self._costs(*smallest).values())

    def _enter(self, lane: Lane) -> list[Request]:
        """Let requests that have arrived take the free places; return them."""
        entered = []
        for place in range(self._places):
            if not lane.queue or lane.queue[0].arrival_s > lane.clock:
                break
            if place < len(lane.rows) and lane.rows[place].left:
                continue
            row = lane.queue.popleft()
            row.admitted_s = lane.clock
            row.entered = lane.rounds
            row.start = None if self._policy.strategy == "eqspec" else 0
            lane.rows[place : place + 1] = [row]
            entered.append(row)
        return entered

    def _common_end(self, batch: Sequence[Request]) -> int:
        """Return the column where the batch is to end, by the engine's rule in `exspec.py`."""
        longest = max(row.length for row in batch)
        end, rows_there = Counter(row.end for row in batch).most_common(1)[0]
        if 2 * rows_there >= len(batch) and longest <= end <= self._workload.longest + 1:
            return end
        return longest

    def _verified(self, batch: Sequence[Request]) -> list[int]:
        """Return how many drafts of each row of the batch are verified; none of a finished one."""
        selector = self._policy.selector
        k = self._policy.num_draft_tokens if self._policy.drafted else 0
        if not k or selector is None:
            return [k if row.left else 0 for row in batch]
        working = np.array([row.left > 0 for row in batch])
        at = np.array([row.at if row.left else 0 for row in batch])
        waited = np.array([row.waited for row in batch])
        column = getattr(self._workload, selector.reads)[at, : self._policy.drafted]
        verified: list[int] = selector.choose(column, working, k, waited).tolist()
        for row, count in zip(batch, verified, strict=True):
            row.waited = 0 if count else row.waited + 1
        return verified

    def _accept(self, batch: Sequence[Request], verified: Sequence[int]) -> int:
        """Let rows gain their accepted drafts and a bonus, up to their budgets; return the sum."""
        total = 0
        for row, count in zip(batch, verified, strict=True):
            if row.left:
                accepted = min(int(self._workload.accepted[row.at]), count) if count else 0
                gained = min(accepted + 1, row.left)
                row.length += gained
                row.left -= gained
                # The acceptance of a round, or of the text's position.
                row.at += gained if self._workload.by_position else 1
                total += gained
        return total


def close_gaps(lane: Lane) -> int:
    """Remove finished rows; the last live ones take their places. Return the slots moved."""
    working = lane.working
    outside = iter([row for row in lane.rows[working:] if row.left])
    moved = 0
    for place, row in enumerate(lane.rows[:working]):
        if not row.left:
            lane.rows[place] = next(outside)
            moved += lane.rows[place].length - 1
    del lane.rows[working:]
    return moved


def choose_batch(lane: Lane) -> tuple[list[Request], str, int, int]:
    """Bring the batch to the first places.

    Returns the batch, how it was found, the longest wait in rounds, and the slots moved.
    """
    lengths = {row.number: row.length for row in lane.rows}
    waited = max(lane.scheduler.update(lengths).values())
    numbers, decision = lane.scheduler.choose(lengths)
    size = len(numbers)
    chosen = [row.number in set(numbers) for row in lane.rows]
    inside = [place for place in range(size) if not chosen[place]]
    outside = [place for place in range(size, len(chosen)) if chosen[place]]
    moved = 0
    for i, j in zip(inside, outside, strict=True):
        lane.rows[i], lane.rows[j] = lane.rows[j], lane.rows[i]
        moved += lane.rows[i].length + lane.rows[j].length - 2
    return lane.rows[:size], decision, waited, moved


def align(rows: Iterable[Request]) -> int:
    """Let rows end in the column of the longest; return the slots that move."""
    moving = list(rows)
    return move_to(max((row.length for row in moving), default=0), moving)


def move_to(end: int, rows: Iterable[Request]) -> int:
    """Let rows end in column `end`; return the slots that move."""
    moved = 0
    for row in rows:
        start = end - row.length
        if row.start not in (None, start):
            moved += row.length - 1  # all K/V but that of the pending token, which is to come
        row.start = start
    return moved


def plan_lanes(draft_ms: float, verify_ms: float, rounds: int, *, lanes: int = 2) -> pd.DataFrame:
    """Return when lanes draft and verify if every round takes the same time.

    One lane at most drafts at a time, and one at most verifies. `lanes` is 1 for rounds one after
    the other, 2 for two lanes that overlap.

    Returns:
        lane, round, phase ("draft" or "verify"), start_ms and stop_ms.
    """
    entries = []
    drafted = 0.0  # when the side that drafts gets free
    verified = 0.0
    ready = [0.0] * lanes
    for number in range(rounds):
        for lane in range(lanes):
            start = max(ready[lane], drafted)
            drafted = start + draft_ms
            begin = max(drafted, verified)
            verified = begin + verify_ms
            ready[lane] = verified
            entries.append((lane, number, "draft", start, drafted))
            entries.append((lane, number, "verify", begin, verified))
    return pd.DataFrame(entries, columns=["lane", "round", "phase", "start_ms", "stop_ms"])
