"""Both lanes on one thread, phase by phase in an order that is given."""

from collections.abc import Callable, Iterator, Sequence

from specviz.engine.events import Event
from specviz.engine.lanes.admission import Admission
from specviz.engine.lanes.lane import Lane

# Which of the lanes that can go on runs its next phase.
Turn = Callable[[Sequence[Lane]], Lane]


class Alternate:
    """Let a lane run to the end of its round, then the other."""

    def __init__(self) -> None:
        self._last: Lane | None = None

    def __call__(self, ready: Sequence[Lane]) -> Lane:
        last = self._last
        if last is None or last not in ready or (last.is_between_rounds and len(ready) > 1):
            last = next(lane for lane in ready if lane is not last)
        self._last = last
        return last


def take_turns(admission: Admission, turn: Turn) -> Iterator[tuple[Lane, Event]]:
    """Run both lanes to their ends, one phase at a time. Yield each phase's lane and event."""
    while True:
        ready = [lane for lane in admission.lanes if _can_go_on(admission, lane)]
        if not ready:
            return
        lane = turn(ready)
        event = lane.advance()
        yield lane, event
        admission.note(lane)


def _can_go_on(admission: Admission, lane: Lane) -> bool:
    return not lane.is_between_rounds or admission.admit(lane)
