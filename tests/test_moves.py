"""Every way to move K/V moves the same; each reads all blocks before it writes any."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.engine.kv.moves import LONG, METHODS, Move, choose, move

ROWS, SLOTS = 5, 12


def expected(slab: torch.Tensor, moves: list[Move]) -> torch.Tensor:
    before, after = slab.clone(), slab.clone()
    for m in moves:
        for i in range(m.length):
            after[m.to_row, m.to_slot + i] = before[m.from_row, m.from_slot + i]
    return after


@st.composite
def shifts(draw: st.DrawFn) -> list[Move]:
    """Blocks that move within rows of their own, as a realignment does it."""
    rows = draw(st.lists(st.integers(0, ROWS - 1), unique=True, min_size=1))
    moves = []
    for row in rows:
        length = draw(st.integers(1, SLOTS))
        from_slot, to_slot = (draw(st.integers(0, SLOTS - length)) for _ in range(2))
        moves.append(Move(row, from_slot, row, to_slot, length))
    return moves


@st.composite
def trades(draw: st.DrawFn) -> list[Move]:
    """Rows that take each other's places, as when a group is brought to the front."""
    order = draw(st.permutations(range(ROWS)))
    starts = draw(st.lists(st.integers(0, SLOTS - 1), min_size=ROWS, max_size=ROWS))
    return [
        Move(row, starts[row], k, starts[row], SLOTS - starts[row]) for k, row in enumerate(order)
    ]


@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=60, deadline=None)
@given(moves=st.one_of(shifts(), trades()))
def test_every_method_moves_what_a_loop_over_slots_moves(name: str, moves: list[Move]) -> None:
    slabs = [
        torch.arange(ROWS * SLOTS * 2 * d, dtype=torch.float32).reshape(ROWS, SLOTS, 2, d)
        for d in (3, 3, 4)
    ]
    wanted = [expected(slab, moves) for slab in slabs]
    METHODS[name](slabs, moves)
    for slab, want in zip(slabs, wanted, strict=True):
        assert torch.equal(slab, want)


def test_models_without_layers_that_have_run_have_nothing_to_move() -> None:
    move([], [Move(0, 0, 1, 0, 1)])


def test_long_blocks_on_a_cpu_are_copied_one_by_one() -> None:
    short, long = Move(0, 0, 1, 0, LONG - 10), Move(1, 0, 2, 0, LONG + 20)
    assert choose("cpu", [short]) == "selected"
    assert choose("cpu", [short, long]) == "blocks"
    assert choose("cuda", [short, long]) == "selected"
