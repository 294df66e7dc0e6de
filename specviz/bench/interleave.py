"""Run several jobs interleaved, so that what slows the machine for a while slows all of them alike.

It runs no model itself.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

T = TypeVar("T")
TURNS = 60  # the default: turns short enough that all jobs meet the same disturbances
Steps = Generator[int, None, T]  # a job; it yields the number of tokens written so far
# The context of a turn, by the job's place.
Around = Callable[[int], AbstractContextManager[object]]


def interleave(
    jobs: Sequence[Steps[T]], total: int, turns: int, around: Around
) -> Iterator[tuple[int, T]]:
    """Yield the place of each job and its value as it ends.

    In each of `turns` turns, every job writes an equal part of its `total` tokens. With one turn,
    the jobs run one after another.
    """
    running = dict(enumerate(jobs))
    written = [0] * len(jobs)
    for turn in range(1, turns + 1):
        is_last = turn == turns
        for place, steps in list(running.items()):
            with around(place):
                try:
                    # By tokens, not rounds: jobs with few, long rounds stay level with the others.
                    # In the last turn each runs to its end, whatever it still has to write.
                    while is_last or written[place] < total * turn / turns:
                        written[place] = next(steps)
                except StopIteration as end:
                    del running[place]
                    yield place, end.value
