"""Time a decoder beside batched autoregressive decoding, in turns.

Contract: both do the same work, and the decoder's texts are right in each turn. On a CPU, one
thread works and CPU seconds are counted, as other programs disturb these less. On a GPU, seconds
are counted until the device has finished. Not known here: files.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

import specviz as sv
from checks.attempts.judging import Decoder, run
from checks.attempts.work import Assignment, pair
from checks.base import WrongAnswerError
from specviz.bench.clock import synchronize

MOST_TURNS = 7
CLEAR = 0.08  # two turns are enough if both ratios are farther from 1


@dataclass(frozen=True)
class Speed:
    """What was measured.

    Attributes:
        tokens_per_s: of the decoder, in the median turn.
        ratios: of its speed to that of batched autoregressive decoding, one a turn.
    """

    tokens_per_s: float
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        return median(self.ratios)


def measure(decode: Decoder, work: Assignment) -> Speed:
    """Measure a decoder. Raises WrongAnswerError if a text is wrong, NotYetError for a stub."""
    _seconds(lambda: _decoded(decode, work))  # the first run of each warms up
    _seconds(lambda: _baseline(work))
    tokens = sum(len(text) for text in work.due())
    own = []
    ratios: list[float] = []
    with _one_thread():
        while not _is_decided(ratios):
            turn = [lambda: _decoded(decode, work), lambda: _baseline(work)]
            backwards = len(ratios) % 2 == 1
            seconds = [_seconds(step) for step in (turn[::-1] if backwards else turn)]
            ours, theirs = seconds[::-1] if backwards else seconds
            own.append(tokens / ours)
            ratios.append(theirs / ours)
    return Speed(median(own), tuple(ratios))


def _is_decided(ratios: list[float]) -> bool:
    if len(ratios) < 2:
        return False
    one_side = min(ratios) > 1 + CLEAR or max(ratios) < 1 - CLEAR
    return one_side or len(ratios) >= MOST_TURNS


def _decoded(decode: Decoder, work: Assignment) -> None:
    outcome = run(decode, work)
    if not outcome.is_right:
        raise WrongAnswerError(
            f"{outcome.problem}; a speed counts only if all texts are right, and check.batched "
            "says what is wrong"
        )


def _baseline(work: Assignment) -> None:
    sv.generate(
        pair(),
        [list(prompt) for prompt in work.prompts],
        strategy="autoregressive",
        batch_size=work.batch_size,
        max_new_tokens=work.max_new_tokens,
        progress=False,
    )


def _seconds(step: Callable[[], Any]) -> float:
    device = pair().device
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    synchronize(device)
    began = clock()
    step()
    synchronize(device)
    return clock() - began


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
