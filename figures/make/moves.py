"""What a realignment costs by each way to move K/V. Runs no model."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from statistics import median

import pandas as pd
import torch
from measure import Measured, command, interleaved, without_model
from torch import Tensor

from specviz.engine.kv.moves import METHODS, Move

LAYERS, HEADS, DEPTH = 14, 2, 48  # the target of the embedded pair


def moves(
    rows: Sequence[int], slots: Sequence[int], repetitions: int = 5, device: str = "cpu"
) -> Measured:
    """Shift the K/V of all rows but one by 1 to 5 slots, as EQSPEC does after a ragged acceptance.

    `mbytes` is what has to move once. Beside the engine's methods stand "double_buffer", which
    copies every row to other slabs and swaps them, and "in_place", which is what a round writes
    anyway if rows need no realignment (6 slots a row).
    """
    entries = []
    for b, t in product(rows, slots):
        slab = torch.zeros((b, t, HEADS, DEPTH), device=device)
        slabs = [slab.clone() for _ in range(2 * LAYERS)]  # K and V of each layer
        moved = [Move(i, 5, i, 6 + i % 5, t - 10) for i in range(1, b)]
        ways: dict[str, Callable[[], None]] = {
            name: partial(method, slabs, moved) for name, method in METHODS.items()
        }
        ways["double_buffer"] = partial(swap, slabs, [each.clone() for each in slabs], moved)
        ways["in_place"] = partial(write, slabs)
        seconds = interleaved(ways, repetitions, device)
        size = sum(move.length for move in moved) * slab[0, 0].nbytes * len(slabs)
        entry = {"rows": b, "slots": t, "mbytes": size / 1e6}
        entries.append(entry | {f"{name}_ms": 1e3 * median(each) for name, each in seconds.items()})
    sizes = {"layers": LAYERS, "heads": HEADS, "depth": DEPTH, "repetitions": repetitions}
    return pd.DataFrame(entries), without_model(device, dtype="float32", **sizes)


def swap(slabs: list[Tensor], other: list[Tensor], moved: list[Move]) -> None:
    """Copy every row to the other slabs, moved where it has to be, and swap them."""
    staying = set(range(len(slabs[0]))) - {move.to_row for move in moved}
    for slab, goal in zip(slabs, other, strict=True):
        for row in staying:
            goal[row] = slab[row]
        for move in moved:
            end = move.to_slot + move.length
            from_end = move.from_slot + move.length
            goal[move.to_row, move.to_slot : end] = slab[move.from_row, move.from_slot : from_end]
    slabs[:], other[:] = list(other), list(slabs)


def write(slabs: list[Tensor]) -> None:
    """Write K + 1 tokens of every row. Indexed as a round does: each row has a place of its own."""
    rows, width = len(slabs[0]), 6  # K = 5
    row = torch.arange(rows, device=slabs[0].device)[:, None]  # (B, 1)
    slot = torch.arange(width, device=slabs[0].device)[None].expand(rows, -1)  # (B, width)
    fresh = slabs[0].new_zeros(rows, width, *slabs[0].shape[2:])
    for slab in slabs:
        slab[row, slot] = fresh


if __name__ == "__main__":
    whole = {"rows": (4, 8, 16, 32), "slots": (128, 256, 512, 1024)}
    command(moves, {"moves-cpu": whole}, {"rows": (4,), "slots": (64,), "repetitions": 1})
