"""Choose the number of CPU threads with which torch computes a run.

After each operation torch's threads wait for one another, and they spin while they wait. That gains
little for small models, and costs many times the work itself as soon as other programs want the
same cores. So a run tries one thread and torch's own number, and takes the faster one.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
from transformers import PreTrainedModel

T = TypeVar("T")

# Seconds after which no more forwards are tried.
TRIAL_S = 0.2
# Forwards that take one thread longer have operations so large that waiting does not matter.
LARGE_S = 0.05
# Seconds for which a choice holds. The machine may be busier afterwards, or less so.
HOLD_S = 60.0
# More threads heat the machine and take cores from others, so they have to be clearly faster.
ADVANTAGE = 1.1


@dataclass(frozen=True)
class RoundForwards:
    """The forwards of a round: one of each shape.

    Attributes:
        target: the model that verifies `tokens` tokens of each of `rows` rows.
        drafts: the models that draft, one token a row at a time.
    """

    target: PreTrainedModel
    drafts: tuple[PreTrainedModel, ...]
    rows: int
    tokens: int

    def run(self) -> None:
        """Run them once, on arbitrary tokens and without K/V."""
        device = self.target.device
        tokens = torch.ones(self.rows, self.tokens, dtype=torch.long, device=device)
        self.target(tokens, use_cache=False)
        for draft in self.drafts:
            draft(tokens[:, :1], use_cache=False)


@dataclass(frozen=True)
class Choice:
    """A number of threads, and until when it holds, on the clock of `time.monotonic`."""

    threads: int
    until: float


_choices: WeakKeyDictionary[PreTrainedModel, dict[tuple[int, ...], Choice]] = WeakKeyDictionary()


def choose_threads(
    work: RoundForwards,
    clock: Callable[[], float] = time.perf_counter,
    cpu_clock: Callable[[], float] = time.thread_time,
) -> int:
    """Return 1 or torch's own number of threads, whichever is faster for `work` now.

    A choice is kept for a minute. Making it takes 0.2 s, or little more.

    Args:
        work: the forwards of the run. With a target on another device than the CPU, none is tried.
        clock: seconds that pass.
        cpu_clock: seconds that this thread computes.
    """
    own = torch.get_num_threads()
    if own == 1 or work.target.device.type != "cpu":
        return own
    kept = _choices.setdefault(work.target, {})
    key = (work.rows, work.tokens, len(work.drafts), own)
    if key not in kept or time.monotonic() > kept[key].until:
        large = _seconds(work, 1, cpu_clock) > LARGE_S
        threads = own if large else _faster(work, own, clock)
        kept[key] = Choice(threads, time.monotonic() + HOLD_S)
    return kept[key].threads


def _faster(work: RoundForwards, own: int, clock: Callable[[], float]) -> int:
    begin = clock()
    # Sums, not medians: waiting for a thread that has lost its core is rare and long.
    one_s = 0.0
    own_s = 0.0
    while clock() - begin < TRIAL_S:
        one_s += _seconds(work, 1, clock)
        own_s += _seconds(work, own, clock)
    return own if own_s * ADVANTAGE < one_s else 1


@torch.inference_mode()
def _seconds(work: RoundForwards, count: int, clock: Callable[[], float]) -> float:
    with computing_with(count):
        begin = clock()
        work.run()
        return clock() - begin


@contextmanager
def computing_with(count: int) -> Iterator[None]:
    """Let torch compute with `count` threads inside the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def on_threads(items: Iterable[T], count: int) -> Iterator[T]:
    """Pass `items` on, computed with `count` threads, and leave the caller torch's number."""
    iterator = iter(items)
    while True:
        with computing_with(count):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item
