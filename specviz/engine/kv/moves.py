"""Ways to move blocks of K/V within a slab (R rows, T slots, H heads, D), every block read before any is written.

`specviz study moves` measures them; `choose` names the one that was fastest.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Move(NamedTuple):
    """One block of K/V that moved: `length` slots from (from_row, from_slot) to (to_row, to_slot), in every layer."""

    from_row: int
    from_slot: int
    to_row: int
    to_slot: int
    length: int


def move_blocks(slabs: Sequence[Tensor], moves: Sequence[Move]) -> None:
    """Two copies a block and slab: out of it and back. Blocks that stay in rows of their own go one by one, through memory that is warm."""
    alone = all(m.from_row == m.to_row for m in moves) and len({m.to_row for m in moves}) == len(
        moves
    )
    groups = [[m] for m in moves] if alone else [moves]
    between: dict[tuple[torch.Size, torch.dtype, torch.device], Tensor] = {}
    for slab in slabs:
        kind = (slab.shape[2:], slab.dtype, slab.device)
        if kind not in between:
            between[kind] = slab.new_empty(
                max(sum(m.length for m in group) for group in groups), *slab.shape[2:]
            )
        for group in groups:
            taken = between[kind].split(
                [*(m.length for m in group), len(between[kind]) - sum(m.length for m in group)]
            )
            for m, block in zip(group, taken, strict=False):
                block.copy_(slab[m.from_row, m.from_slot : m.from_slot + m.length])
            for m, block in zip(group, taken, strict=False):
                slab[m.to_row, m.to_slot : m.to_slot + m.length] = block


def move_gathered(slabs: Sequence[Tensor], moves: Sequence[Move]) -> None:
    """One gather and one scatter a slab, by row and slot: two launches, whatever the number of blocks."""
    index = _index(moves).to(slabs[0].device, non_blocking=True)
    for slab in slabs:
        from_row, from_slot, to_row, to_slot = index.to(slab.device)
        slab[to_row, to_slot] = slab[from_row, from_slot]


def move_selected(slabs: Sequence[Tensor], moves: Sequence[Move]) -> None:
    """As `move_gathered`, with one index over all slots of the slab: index_select and index_copy_."""
    from_row, from_slot, to_row, to_slot = _index(moves)
    slots = slabs[0].shape[1]
    index = torch.stack([from_row * slots + from_slot, to_row * slots + to_slot]).to(
        slabs[0].device, non_blocking=True
    )
    for slab in slabs:
        source, goal = index.to(slab.device)
        flat = slab.view(-1, *slab.shape[2:])
        flat.index_copy_(0, goal, flat.index_select(0, source))


METHODS: dict[str, Callable[[Sequence[Tensor], Sequence[Move]], None]] = {
    "blocks": move_blocks,
    "gathered": move_gathered,
    "selected": move_selected,
}
LONG = 600  # slots a block, from where on two copies cost less than an index


def choose(device: str, moves: Sequence[Move]) -> str:
    """The way that was fastest: on a CPU, long blocks are copied one by one; elsewhere a launch costs more than what it copies."""
    return (
        "blocks"
        if device == "cpu" and sum(m.length for m in moves) >= LONG * len(moves)
        else "selected"
    )


def move(slabs: Sequence[Tensor], moves: Sequence[Move]) -> None:
    """Move blocks within each of the slabs, in the way that is fastest where they lie."""
    if slabs:
        METHODS[choose(slabs[0].device.type, moves)](slabs, moves)


def _index(moves: Sequence[Move]) -> Tensor:
    """from_row, from_slot, to_row, to_slot of every moved slot: (4, sum of lengths)."""
    columns = torch.tensor(moves).T
    lengths = columns[4]
    offset = torch.arange(int(lengths.sum())) - (lengths.cumsum(0) - lengths).repeat_interleave(
        lengths
    )
    from_row, from_slot, to_row, to_slot = (columns[i].repeat_interleave(lengths) for i in range(4))
    return torch.stack([from_row, from_slot + offset, to_row, to_slot + offset])
