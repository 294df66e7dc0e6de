"""One lane: a run of half the rows, advanced phase by phase."""

from dataclasses import replace

from specviz.engine.batch import Request
from specviz.engine.draft_length import DraftLength, Meter
from specviz.engine.events import Event
from specviz.engine.lanes.parcel import LaneState
from specviz.engine.run import Run
from specviz.engine.setup import make_state
from specviz.engine.timing import Stopwatch


class Lane:
    """A run of half the batch size, whose requests come one by one.

    Attributes:
        number: 0 or 1.
        run: with the state, strategy and stopwatch of this lane.
        entered: requests that this lane was given, by index, with what they had written before.
        left: tokens of the requests that went on in the other lane, by index.
        load: its rows that go on and its requests that wait, as far as the other lane knows.
        is_idle: whether it has nothing to do, and waits for the other lane.
    """

    def __init__(self, number: int, run: Run, state: LaneState) -> None:
        self.number = number
        self.run = run
        self.state = state
        self.entered: dict[int, Request] = {}
        self.left: dict[int, list[int]] = {}
        self.load = 0
        self.is_idle = False
        self._events = run.phases(run.num_threads)
        self._phase = "synchronise"

    @property
    def is_between_rounds(self) -> bool:
        """Whether no round is under way, so that rows may come and go."""
        return self._phase == "synchronise"

    @property
    def room(self) -> int:
        """How many more requests it can take at its next schedule phase."""
        if not self.run.strategy.refill and self.state.unfinished:
            return 0  # a static batch is closed
        return self.state.batch.capacity - self.load

    def advance(self) -> Event:
        """Run the next phase. Only while a round is under way, or `state.has_work`."""
        event = next(self._events)
        self._phase = event.phase
        return event

    def close(self) -> None:
        """Run no further phase."""
        self._events.close()


def make_lanes(run: Run) -> list[Lane]:
    """Return two lanes that decode the requests of `run`; none has any of them yet.

    Raises:
        ValueError: the run is compiled, and not for a CPU.
    """
    device = run.pair.device
    if run.options.compile and device.type != "cpu":
        raise ValueError(
            f"compile=True with two lanes is for CPUs, got a pair on {device}; pass compile=False, "
            "or lanes=1"
        )
    return [_make_lane(number, run) for number in range(2)]


def _make_lane(number: int, run: Run) -> Lane:
    options = run.options
    # Two lanes hold as many rows as one run would, also in the pools of strategies that have one.
    strategy = run.strategy.halved()
    batch_size = run.batch_size // 2
    made = make_state(
        run.pair,
        options,
        run.requests,
        strategy,
        run.drafter,
        run.max_draft_tokens,
        batch_size,
    )
    state = LaneState.of(made)
    limit = run.drafter.limit(run.pair)
    draft_length = options.make_draft_length(limit) if strategy.drafts else DraftLength(0)
    stopwatch = Stopwatch(run.pair.device)
    own = replace(
        run,
        strategy=strategy,
        batch_size=batch_size,
        state=state,
        draft_length=draft_length,
        stopwatch=stopwatch,
        meter=Meter(draft_length, stopwatch),
    )
    own.let_target_pack()
    for name, cache in state.caches.items():
        cache.compile_like(run.state.caches[name])
    return Lane(number, own, state)
