"""Interleaved jobs: their order, and the context of each turn."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

from specviz.bench.interleave import interleave


@pytest.mark.parametrize(("turns", "order"), [(4, "abc c ac c"), (1, "aa b cccc")])
def test_each_writes_its_part_of_the_tokens_within_its_own_turn(turns, order):
    """Three jobs write 8 tokens each, 4, 8 and 2 at a time."""
    within = [-1]
    steps = list[tuple[str, int]]()

    def writing(name: str, step: int) -> Generator[int, None, str]:
        for written in range(step, 9, step):
            steps.append((name, within[-1]))
            yield written
        return name.upper()

    @contextmanager
    def around(place: int) -> Iterator[None]:
        within.append(place)
        yield
        within.pop()

    ended = interleave([writing("a", 4), writing("b", 8), writing("c", 2)], 8, turns, around)
    assert list(ended) == [(0, "A"), (1, "B"), (2, "C")]
    assert "".join(name for name, _ in steps) == order.replace(" ", "")
    assert all("abc"[place] == name for name, place in steps)
    assert within == [-1]
