"""`measure_moves`: what a realignment costs by each way to move K/V, and by none at all. Runs no model."""

import platform
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version

import pandas as pd
import torch
from torch import Tensor

from specviz.engine.kv.moves import METHODS, Move
from specviz.util.validate import require_int

LAYERS, HEADS, DEPTH = (
    14,
    2,
    48,
)  # those of the embedded pair's target, unless other ones are asked for


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
    """Shift the K/V of all rows but one by 1 to 5 slots, as EQSPEC does after a ragged acceptance; repetitions interleaved.

    Returns:
        (table, conditions). One entry per rows and slots; `mbytes`: what has to move, once; `<method>_ms`: medians for each of METHODS, for
        "double_buffer", which copies every row to other slabs and swaps them, and for "in_place": what a round writes anyway where rows
        need no realignment (6 slots a row).

    Raises:
        ValueError: a size cannot be used.
    """
    for name, values in (("rows", rows), ("slots", slots)):
        for i, value in enumerate(values):
            require_int(f"{name}[{i}]", value, minimum=2 if name == "rows" else 16)
    for name, value in (
        ("layers", layers),
        ("heads", heads),
        ("depth", depth),
        ("repetitions", repetitions),
    ):
        require_int(name, value)
    device, entries = torch.device(device), []
    for b in rows:
        for t in slots:
            slabs, other = (
                [
                    torch.zeros(b, t, heads, depth, dtype=dtype, device=device)
                    for _ in range(2 * layers)
                ]
                for _ in range(2)
            )
            moves = [Move(i, 5, i, 6 + i % 5, t - 10) for i in range(1, b)]
            mbytes = sum(m.length for m in moves) * slabs[0][0, 0].nbytes * len(slabs) / 1e6
            entries.append(
                {"rows": b, "slots": t, "mbytes": mbytes}
                | _measure(slabs, other, moves, repetitions)
            )
    described = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "dtype": str(dtype).removeprefix("torch."),
        "versions": {"specviz": version("specviz"), "torch": version("torch"), "python": platform.python_version()},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "layers": layers, "heads": heads, "depth": depth, "repetitions": repetitions, "threads": torch.get_num_threads(),
    }  # fmt: skip
    return pd.DataFrame(entries), described


def _measure(
    slabs: list[Tensor], other: list[Tensor], moves: list[Move], repetitions: int
) -> dict[str, float]:
    ways: dict[str, Callable[[], None]] = {
        name: partial(method, slabs, moves) for name, method in METHODS.items()
    }
    ways |= {
        "double_buffer": partial(_swap, slabs, other, moves),
        "in_place": partial(_write, slabs),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for repetition in range(repetitions + 1):
        for name, way in ways.items():
            took = _time(way, slabs[0].device)
            if repetition:  # the first one warms up
                times[name].append(took)
    return {f"{name}_ms": 1e3 * statistics.median(took) for name, took in times.items()}


def _time(way: Callable[[], None], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    begin = time.perf_counter()
    way()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begin


def _swap(slabs: list[Tensor], other: list[Tensor], moves: list[Move]) -> None:
    staying = set(range(len(slabs[0]))) - {m.to_row for m in moves}
    for slab, goal in zip(slabs, other, strict=True):
        for row in staying:
            goal[row] = slab[row]
        for m in moves:
            goal[m.to_row, m.to_slot : m.to_slot + m.length] = slab[
                m.from_row, m.from_slot : m.from_slot + m.length
            ]
    slabs[:], other[:] = list(other), list(slabs)


def _write(slabs: list[Tensor]) -> None:
    rows, width = len(slabs[0]), 6
    row, slot = (
        torch.arange(rows, device=slabs[0].device)[:, None],
        torch.arange(width, device=slabs[0].device)[None].expand(rows, -1),
    )
    fresh = slabs[0].new_zeros(rows, width, *slabs[0].shape[2:])
    for slab in slabs:
        slab[row, slot] = fresh
