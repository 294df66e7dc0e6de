"""Which lane gets the next prompt, and when rows change lanes.

A prompt goes to the lane with fewer rows, of equal ones to the lane that is about to draft. A lane
that runs empty gets half of the other's rows as soon as that one has ended its round; MineDraft
leaves such a lane empty. A row changes lanes once at most.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Condition

from specviz.engine.batch import Request
from specviz.engine.lanes.lane import Lane


@dataclass(frozen=True)
class Handover:
    """A request that changed lanes.

    Attributes:
        request: its index.
        source, target: numbers of the lanes.
        round: of the source, the last one in which it took part.
        tokens: how many it had written.
    """

    request: int
    source: int
    target: int
    round: int
    tokens: int


class Admission:
    """Deals requests to two lanes. Every method may be called from the lanes' threads.

    Attributes:
        lanes: both.
        changed: notified whenever a lane may have got something to do, or all is done.
        handovers: requests that changed lanes so far.
    """

    def __init__(self, lanes: Sequence[Lane], requests: Sequence[Request]) -> None:
        self.lanes = lanes
        self.changed = Condition()
        self.handovers: list[Handover] = []
        self._queue = deque(requests)

    def admit(self, lane: Lane) -> bool:
        """Deal requests before a round of `lane`, and say whether the lane has anything to do."""
        with self.changed:
            self.note(lane)
            while self._queue and (taker := self._taker(lane)) is not None:
                self._give(taker, self._queue.popleft())
            self._share(lane)
            lane.is_idle = not lane.state.has_work
            self.changed.notify_all()
            return not lane.is_idle

    def note(self, lane: Lane) -> None:
        """Count the rows of `lane`, after a phase of its own or before one."""
        with self.changed:
            lane.load = len(lane.state.unfinished) + len(lane.state.waiting)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do for either lane."""
        return not self._queue and all(lane.is_idle for lane in self.lanes)

    def _taker(self, drafting: Lane) -> Lane | None:
        """Return the lane that gets the next request; None if both are full."""
        open_lanes = [lane for lane in self.lanes if lane.room > 0]
        return min(open_lanes, key=lambda lane: (lane.load, lane is not drafting), default=None)

    def _give(self, lane: Lane, request: Request) -> None:
        lane.entered[request.index] = request
        lane.state.waiting.append(request)
        lane.load += 1
        lane.is_idle = False

    def _share(self, lane: Lane) -> None:
        """Hand over half of the rows of `lane` if the other one has nothing to do."""
        other = self.lanes[1 - lane.number]
        if not other.is_idle or self._queue:
            return
        state = lane.state
        movable = [i for i in state.unfinished if not state.batch.live[i].request.written]
        count = min(lane.load // 2, len(movable), state.batch.capacity)
        # Those that came last, behind which the fewest rows have to close up.
        for parcel in state.pack(movable[len(movable) - count :]) if count else ():
            request = parcel.request
            lane.left[request.index] = list(request.written)
            other.state.arriving[request.index] = parcel
            self._give(other, request)
            self.handovers.append(
                Handover(
                    request=request.index,
                    source=lane.number,
                    target=other.number,
                    round=state.round,
                    tokens=len(request.written),
                )
            )
        self.note(lane)
