"""Every way to move K/V moves the same; each reads all blocks before it writes any."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.engine.kv.moves import LONG, METHODS, Move, choose, move
from specviz.studies.moves import measure_moves

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


def test_the_measurement_has_an_entry_for_each_size_and_a_time_for_each_way() -> None:
    table, described = measure_moves(rows=[2, 3], slots=[16, 32], layers=2, repetitions=1)
    assert table[["rows", "slots"]].to_numpy().tolist() == [[2, 16], [2, 32], [3, 16], [3, 32]]
    assert {f"{name}_ms" for name in (*METHODS, "double_buffer", "in_place")} < set(table.columns)
    assert (table.filter(like="_ms") > 0).all(axis=None)
    one_slot = 2 * 48 * 4 * 2 * 2  # heads, depth, bytes, layers, keys and values
    moved = [slots * one_slot / 1e6 for slots in (6, 22, 12, 44)]
    assert table["mbytes"].tolist() == pytest.approx(moved)
    assert described["layers"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": [1]}, r"rows\[0\] must be an int >= 2, got 1; "),
        ({"slots": [4]}, r"slots\[0\] must be an int >= 16, got 4; "),
        ({"repetitions": 0}, "repetitions must be an int >= 1, got 0; "),
    ],
)
def test_sizes_that_cannot_be_used_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure_moves(**arguments)


def test_long_blocks_on_a_cpu_are_copied_one_by_one() -> None:
    short, long = Move(0, 0, 1, 0, LONG - 10), Move(1, 0, 2, 0, LONG + 20)
    assert choose("cpu", [short]) == "selected"
    assert choose("cpu", [short, long]) == "blocks"
    assert choose("cuda", [short, long]) == "selected"
