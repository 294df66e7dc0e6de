"""Two lanes, each with half of the rows, of which one drafts while the other verifies.

Source: MineDraft (arXiv 2603.18016). A prompt is dealt to one lane and stays there. Both lanes run
at the same time, each on a thread and on CUDA a stream of its own, or they take turns.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import replace

import torch

from specviz.engine.batch import Request
from specviz.engine.draft_length import DraftLength, Meter
from specviz.engine.events import Event
from specviz.engine.models.pair import Pair
from specviz.engine.run import Run, make_state
from specviz.engine.threads import computing_with
from specviz.engine.timing import Stopwatch
from specviz.util.interrupt import interruptions_go_to

LOOK_S = 0.05  # seconds after which the main thread looks for an interrupt
Observe = Callable[["Lane", Event], None]
# Which of the lanes that can go on runs its next phase.
Turn = Callable[[Sequence["Lane"]], "Lane"]


class Lane:
    """A run of half the batch size, whose requests come one by one.

    Attributes:
        number: 0 or 1.
        run: with the state, strategy and stopwatch of this lane.
        entered: the indices of the requests that this lane was given.
        is_between_rounds: whether no round is under way.
    """

    def __init__(self, number: int, run: Run, first: Sequence[Request], rest: deque[Request]):
        self.number = number
        self.run = run
        self.entered: set[int] = set()
        self.is_between_rounds = True
        self._rest = rest  # of both lanes
        self._events = run.phases(run.num_threads)
        for request in first:
            self._take(request)

    def _take(self, request: Request) -> None:
        self.entered.add(request.index)
        self.run.state.waiting.append(request)

    def admit(self) -> bool:
        """Take prompts for the free rows, and return whether a round has anything to decode."""
        state = self.run.state
        load = len(state.waiting) + sum(not row.finished for row in state.batch.live)
        # A static batch takes none until all its rows have ended.
        if self.run.strategy.refill or not load:
            with suppress(IndexError):
                for _ in range(state.batch.capacity - load):
                    self._take(self._rest.popleft())
                    load += 1
        return load > 0

    def advance(self) -> Event:
        """Run the next phase. Only while a round is under way, or if `admit` has said so."""
        event = next(self._events)
        self.is_between_rounds = event.phase == "synchronise"
        return event

    def close(self) -> None:
        """Run no further phase."""
        self._events.close()


def make_lanes(run: Run) -> list[Lane]:
    """Return two lanes that decode the requests of `run`, which are dealt by turns at first.

    Raises:
        ValueError: the run is compiled, and not for a CPU.
    """
    device = run.pair.device
    if run.options.compile and device.type != "cpu":
        raise ValueError(
            f"compile=True with two lanes is for CPUs, got a pair on {device}; pass compile=False, "
            "or lanes=1"
        )
    halves = [_half(run) for _ in range(2)]
    rest = run.state.waiting
    begin = [rest.popleft() for _ in range(min(len(rest), 2 * halves[0].state.batch.capacity))]
    return [Lane(number, half, begin[number::2], rest) for number, half in enumerate(halves)]


def _half(run: Run) -> Run:
    """Return a run of half the rows, without requests; pools have half their size, too."""
    strategy = run.strategy.halved()
    rows = run.batch_size // 2
    most = run.max_draft_tokens
    state = make_state(run.pair, run.options, run.requests, strategy, most, rows)
    state.waiting.clear()
    limit = run.drafter.limit(run.pair)
    draft_length = run.options.make_draft_length(limit) if strategy.drafts else DraftLength(0)
    stopwatch = Stopwatch(run.pair.device)
    half = replace(
        run,
        strategy=strategy,
        batch_size=rows,
        state=state,
        draft_length=draft_length,
        stopwatch=stopwatch,
        meter=Meter(draft_length, stopwatch),
    )
    half.let_target_pack()
    for name, cache in state.caches.items():
        cache.compile_like(run.state.caches[name])
    return half


def alternate() -> Turn:
    """Return turns in which a lane runs to the end of its round, then the other."""
    last: Lane | None = None

    def turn(ready: Sequence[Lane]) -> Lane:
        nonlocal last
        if last is None or last not in ready or (last.is_between_rounds and len(ready) > 1):
            last = next(lane for lane in ready if lane is not last)
        return last

    return turn


def take_turns(lanes: Sequence[Lane], turn: Turn) -> Iterator[tuple[Lane, Event]]:
    """Run both lanes to their ends, one phase at a time. Yield each phase's lane and event."""
    while ready := [lane for lane in lanes if not lane.is_between_rounds or lane.admit()]:
        lane = turn(ready)
        yield lane, lane.advance()


def can_overlap(pair: Pair) -> bool:
    """Return whether two threads could run models of the pair at the same time."""
    if any(hasattr(model, "hf_device_map") for model in (pair.target, pair.draft)):
        return False  # a stream belongs to one device
    return pair.device.type == "cuda" or (pair.device.type == "cpu" and _cores() > 1)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """Runs two lanes to their ends, each on a thread of its own.

    At any moment one lane at most drafts, and one at most verifies, as on two devices of which one
    holds the draft and the other the target. Prompts are read while the other lane does not verify.
    """

    def __init__(self, lanes: Sequence[Lane], observe: Observe) -> None:
        """Pass a lane's events to `observe` in the lane's thread, before its next phase."""
        self._lanes = lanes
        self._observe = observe
        self._drafting = threading.Lock()
        self._verifying = threading.Lock()
        self._stopped = threading.Event()
        self._errors: list[BaseException] = []

    def run(self) -> None:
        """Run them. Raise what either of them raised, or an interrupt, once both have stopped."""
        threads = []
        for lane in self._lanes:
            name = f"specviz lane {lane.number}"
            threads.append(threading.Thread(target=self._work, args=(lane,), name=name))
        device = self._lanes[0].run.pair.device
        _synchronize(device)  # what the lanes read was written on another stream
        received: list[BaseException] = []
        try:
            with interruptions_go_to(received.append):
                for thread in threads:
                    thread.start()
                while not received and any(thread.is_alive() for thread in threads):
                    for thread in threads:
                        thread.join(LOOK_S)
        finally:
            self._stopped.set()
            for thread in threads:
                if thread.ident is not None:  # an error may come before it was started
                    thread.join()
            _synchronize(device)
        for error in received + self._errors:
            raise error

    def _work(self, lane: Lane) -> None:
        try:
            with computing_with(lane.run.num_threads), _stream(lane.run.pair.device):
                while not self._stopped.is_set() and lane.admit():
                    self._round(lane)
        except BaseException as error:
            self._errors.append(error)
            self._stopped.set()

    def _round(self, lane: Lane) -> None:
        with self._drafting:
            # Reading prompts takes the target.
            with self._verifying if lane.run.state.waiting else nullcontext():
                self._advance(lane)
            self._advance(lane)
        with self._verifying:
            for _ in range(3):
                self._advance(lane)

    def _advance(self, lane: Lane) -> None:
        if not self._stopped.is_set():  # else the other lane, or the caller, has ended the run
            self._observe(lane, lane.advance())


def _stream(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which this thread launches on a stream of its own."""
    stack = ExitStack()
    if device.type == "cuda":
        stack.enter_context(torch.cuda.device(device))
        stack.enter_context(torch.cuda.stream(torch.cuda.Stream(device)))
    return stack


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
