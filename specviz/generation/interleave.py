"""Runs side by side, each a part of its work at a time: what slows the machine for a while then slows all of them alike. Runs no model."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

T = TypeVar("T")
TURNS = 60  # where nobody says
Steps = Generator[int, None, T]  # what it yields are the tokens written so far
Around = Callable[
    [int], AbstractContextManager[object]
]  # what a turn of the run at that place is taken within


def interleave(
    running: Sequence[Steps[T]], total: int, turns: int, around: Around
) -> Iterator[tuple[int, T]]:
    """In each of `turns` turns, every one writes as much more of its `total` tokens; with one turn, they run one after another.

    Yields the place of each and its value as it ends.
    """
    left, written = dict(enumerate(running)), [0] * len(running)
    for turn in range(1, turns + 1):
        for place, steps in list(left.items()):
            with around(place):
                try:
                    while written[place] < total * turn / turns or turn == turns:
                        written[place] = next(steps)
                except StopIteration as end:
                    del left[place]
                    yield place, end.value
