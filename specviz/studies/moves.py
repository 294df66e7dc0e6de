"""`specviz study moves`: what a realignment costs by each way to move K/V. Runs no model."""

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import pandas as pd
import torch
from torch import Tensor

from specviz.bench.clock import synchronize
from specviz.engine.kv.moves import METHODS, Move
from specviz.engine.models.places import find_device
from specviz.studies.machine import device_conditions
from specviz.util.validate import require_int, require_ints, require_kind

# The target of the embedded pair.
LAYERS = 14
HEADS = 2
DEPTH = 48
MAX_SIZE = 4096
MAX_SLOTS = 2**20


def measure_moves(
    device: torch.device | str = "cpu",
    rows: Sequence[int] = (4, 8, 16, 32),
    slots: Sequence[int] = (256, 1024),
    *,
    layers: int = LAYERS,
    heads: int = HEADS,
    depth: int = DEPTH,
    dtype: torch.dtype = torch.float32,
    repetitions: int = 5,
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Shift the K/V of all rows but one by 1 to 5 slots, as EQSPEC does after a ragged acceptance.

    Returns:
        (table, conditions). One entry per rows and slots: `mbytes`, what has to move once, and
        `<method>_ms`, medians over interleaved repetitions, for each of METHODS, for
        "double_buffer", which copies every row to other slabs and swaps them, and for "in_place",
        which is what a round writes anyway if rows need no realignment (6 slots a row).

    Raises:
        ValueError: a size cannot be used.
    """
    require_ints("rows", rows, minimum=2, maximum=MAX_SIZE)
    require_ints("slots", slots, minimum=16, maximum=MAX_SLOTS)
    sizes = {"layers": layers, "heads": heads, "depth": depth, "repetitions": repetitions}
    for name, value in sizes.items():
        require_int(name, value, maximum=MAX_SIZE)
    if not isinstance(device, torch.device):
        device = find_device(device)
    require_kind("dtype", dtype, torch.dtype, "pass for instance torch.float32")
    entries = []
    for b in rows:
        for t in slots:
            slab = torch.zeros((b, t, heads, depth), dtype=dtype, device=device)
            slabs = [slab.clone() for _ in range(2 * layers)]  # K and V of each layer
            moves = [Move(i, 5, i, 6 + i % 5, t - 10) for i in range(1, b)]
            moved_slots = sum(move.length for move in moves)
            slot_bytes = slab[0, 0].nbytes * len(slabs)
            entry = {"rows": b, "slots": t, "mbytes": moved_slots * slot_bytes / 1e6}
            entries.append(entry | _measure(slabs, moves, repetitions))
    name = str(dtype).removeprefix("torch.")
    return pd.DataFrame(entries), device_conditions(device, dtype=name, **sizes)


def _measure(slabs: list[Tensor], moves: list[Move], repetitions: int) -> dict[str, float]:
    ways: dict[str, Callable[[], None]] = {
        name: partial(method, slabs, moves) for name, method in METHODS.items()
    }
    ways["double_buffer"] = partial(_swap, slabs, [slab.clone() for slab in slabs], moves)
    ways["in_place"] = partial(_write, slabs)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repetition in range(repetitions + 1):
        for name, way in ways.items():
            took = _time(way, slabs[0].device)
            if repetition > 0:  # the first one warms up
                seconds[name].append(took)
    return {f"{name}_ms": 1e3 * statistics.median(took) for name, took in seconds.items()}


def _time(way: Callable[[], None], device: torch.device) -> float:
    synchronize(device)
    begin = time.perf_counter()
    way()
    synchronize(device)
    return time.perf_counter() - begin


def _swap(slabs: list[Tensor], other: list[Tensor], moves: list[Move]) -> None:
    staying = set(range(len(slabs[0]))) - {move.to_row for move in moves}
    for slab, goal in zip(slabs, other, strict=True):
        for row in staying:
            goal[row] = slab[row]
        for move in moves:
            end = move.to_slot + move.length
            from_end = move.from_slot + move.length
            goal[move.to_row, move.to_slot : end] = slab[move.from_row, move.from_slot : from_end]
    slabs[:], other[:] = list(other), list(slabs)


def _write(slabs: list[Tensor]) -> None:
    rows = len(slabs[0])
    width = 6  # K + 1 at K = 5
    device = slabs[0].device
    # Indexed as a round does, since every row writes at a place of its own.
    row = torch.arange(rows, device=device)[:, None]  # (B, 1)
    slot = torch.arange(width, device=device)[None].expand(rows, -1)  # (B, width)
    fresh = slabs[0].new_zeros(rows, width, *slabs[0].shape[2:])
    for slab in slabs:
        slab[row, slot] = fresh
