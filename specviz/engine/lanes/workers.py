"""Both lanes at the same time, a thread and on CUDA a stream each.

At any moment one lane at most drafts, and one at most verifies, as on two devices of which one
holds the draft and the other the target. Prompts are read while the other lane does not verify.
"""

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext

import torch

from specviz.engine.events import Event
from specviz.engine.lanes.admission import Admission
from specviz.engine.lanes.lane import Lane
from specviz.engine.models.pair import Pair
from specviz.engine.threads import computing_with
from specviz.util.interrupt import interruptions_go_to

# Seconds after which the main thread looks for an interrupt.
LOOK_S = 0.05

Observe = Callable[[Lane, Event], None]


def can_overlap(pair: Pair) -> bool:
    """Return whether two threads could run models of the pair at the same time."""
    if any(hasattr(model, "hf_device_map") for model in (pair.target, pair.draft)):
        return False  # a stream belongs to one device
    if pair.device.type == "cpu":
        return _cores() > 1
    return pair.device.type == "cuda"


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """Runs two lanes to their ends, each on a thread of its own."""

    def __init__(self, admission: Admission, observe: Observe) -> None:
        """Pass a lane's events to `observe` in the lane's thread, before its next phase."""
        self._admission = admission
        self._observe = observe
        self._drafting = threading.Lock()
        self._verifying = threading.Lock()
        self._stopped = False
        self._error: BaseException | None = None

    def run(self) -> None:
        """Run them. Raise what either of them raised, or an interrupt, once both have stopped."""
        threads = []
        for lane in self._admission.lanes:
            name = f"specviz lane {lane.number}"
            threads.append(threading.Thread(target=self._work, args=(lane,), name=name))
        device = self._admission.lanes[0].run.pair.device
        _synchronize(device)  # what the lanes read was written on another stream
        received: list[KeyboardInterrupt] = []
        try:
            with interruptions_go_to(received.append):
                for thread in threads:
                    thread.start()
                while not received and any(thread.is_alive() for thread in threads):
                    for thread in threads:
                        thread.join(LOOK_S)
        finally:
            self._stop()
            for thread in threads:
                if thread.ident is not None:  # an error may come before it was started
                    thread.join()
            _synchronize(device)
        if received:
            raise received[0]
        if self._error is not None:
            raise self._error

    def _work(self, lane: Lane) -> None:
        try:
            with computing_with(lane.run.num_threads), _stream(lane.run.pair.device):
                while self._next_round(lane):
                    self._round(lane)
        except BaseException as error:
            self._stop(error)

    def _next_round(self, lane: Lane) -> bool:
        """Wait until the lane has something to do. Return False at the end."""
        admission = self._admission
        with admission.changed:
            while not self._stopped:
                if admission.admit(lane):
                    return True
                if admission.is_done:
                    return False
                admission.changed.wait()
        return False

    def _round(self, lane: Lane) -> None:
        with self._drafting:
            # Reading prompts takes the target.
            with self._verifying if lane.state.waiting else nullcontext():
                self._advance(lane)
            self._advance(lane)
        with self._verifying:
            for _ in range(3):
                self._advance(lane)

    def _advance(self, lane: Lane) -> None:
        if self._stopped:
            raise _StoppedError
        event = lane.advance()
        self._observe(lane, event)
        self._admission.note(lane)

    def _stop(self, error: BaseException | None = None) -> None:
        with self._admission.changed:
            self._stopped = True
            if self._error is None and not isinstance(error, _StoppedError):
                self._error = error
            self._admission.changed.notify_all()


class _StoppedError(Exception):
    """The other lane, or the caller, has ended the run."""


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
