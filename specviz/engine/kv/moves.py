"""Ways to move blocks of K/V within a slab (R rows, T slots, H heads, D), every block read before
any is written.

`figures/make/moves.py` measures them; `choose` names the one that was fastest.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Move(NamedTuple):
    """A block of K/V that moves in every layer.

    `length` slots go from (from_row, from_slot) to (to_row, to_slot).
    """

    from_row: int
    from_slot: int
    to_row: int
    to_slot: int
    length: int


def row_pairs(moves: Sequence[Move]) -> list[tuple[int, int]]:
    """Return (from, to) of the rows that blocks are moved between, each pair once."""
    return sorted({(each.from_row, each.to_row) for each in moves if each.from_row != each.to_row})


def move_blocks(slabs: Sequence[Tensor], moves: Sequence[Move]) -> None:
    """Copy each block out of each slab into a buffer, and back from there.

    Blocks that each stay in a row of their own cannot overlap, so they are copied one after the
    other: a small buffer stays in the processor's cache.
    """
    # Otherwise a block might be overwritten before it is read, so all are read first.
    rows = {move.to_row for move in moves}
    stays_in_row = all(move.from_row == move.to_row for move in moves)
    independent = stays_in_row and len(rows) == len(moves)
    groups = [[move] for move in moves] if independent else [list(moves)]
    # One buffer for all layers of a kind, as large as the largest group.
    largest = max(_slots(group) for group in groups)
    buffers: dict[tuple[torch.Size, torch.dtype, torch.device], Tensor] = {}
    for slab in slabs:
        kind = (slab.shape[2:], slab.dtype, slab.device)
        if kind not in buffers:
            buffers[kind] = slab.new_empty(largest, *slab.shape[2:])
        for group in groups:
            _move_group(slab, group, buffers[kind])


def _move_group(slab: Tensor, moves: Sequence[Move], buffer: Tensor) -> None:
    """Move blocks within one slab, all read before any is written."""
    blocks = buffer[: _slots(moves)].split([move.length for move in moves])
    for move, block in zip(moves, blocks, strict=True):
        block.copy_(slab[move.from_row, move.from_slot : move.from_slot + move.length])
    for move, block in zip(moves, blocks, strict=True):
        slab[move.to_row, move.to_slot : move.to_slot + move.length] = block


def _slots(moves: Sequence[Move]) -> int:
    return sum(move.length for move in moves)


def move_gathered(slabs: Sequence[Tensor], moves: Sequence[Move]) -> None:
    """Gather and scatter once per slab, by row and slot: two launches for any number of blocks."""
    # One index for all layers; `to` in the loop copies only where a layer is on another device.
    index = _index(moves).to(slabs[0].device, non_blocking=True)
    for slab in slabs:
        from_row, from_slot, to_row, to_slot = index.to(slab.device)
        slab[to_row, to_slot] = slab[from_row, from_slot]


def move_selected(slabs: Sequence[Tensor], moves: Sequence[Move]) -> None:
    """Move like `move_gathered`, with one index over all slots: index_select and index_copy_."""
    from_row, from_slot, to_row, to_slot = _index(moves)
    slots = slabs[0].shape[1]
    index = torch.stack([from_row * slots + from_slot, to_row * slots + to_slot]).to(
        slabs[0].device, non_blocking=True
    )
    for slab in slabs:
        source, destination = index.to(slab.device)
        flat = slab.view(-1, *slab.shape[2:])
        flat.index_copy_(0, destination, flat.index_select(0, source))


METHODS: dict[str, Callable[[Sequence[Tensor], Sequence[Move]], None]] = {
    "blocks": move_blocks,
    "gathered": move_gathered,
    "selected": move_selected,
}
# Mean slots per block from which, on a CPU, two copies cost less than an index.
LONG = 600


def choose(device: str, moves: Sequence[Move]) -> str:
    """Return the name of the fastest method.

    On a CPU, long blocks are copied one by one. Elsewhere a launch costs more than its copy.
    """
    is_long = _slots(moves) >= LONG * len(moves)
    return "blocks" if device == "cpu" and is_long else "selected"


def move(slabs: Sequence[Tensor], moves: Sequence[Move]) -> None:
    """Move blocks within each of the slabs, by the fastest method for their device."""
    if slabs:
        METHODS[choose(slabs[0].device.type, moves)](slabs, moves)


def _index(moves: Sequence[Move]) -> Tensor:
    """Return from_row, from_slot, to_row, to_slot of every moved slot: (4, sum of lengths)."""
    columns = torch.tensor(moves).T
    lengths = columns[4]
    first = (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
    offset = torch.arange(int(lengths.sum())) - first  # of a slot in its block
    from_row, from_slot, to_row, to_slot = (columns[i].repeat_interleave(lengths) for i in range(4))
    return torch.stack([from_row, from_slot + offset, to_row, to_slot + offset])
