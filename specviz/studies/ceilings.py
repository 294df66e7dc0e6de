"""What a device can do at best, measured: bytes/s by working set, FLOP/s by dtype and rows, seconds per launched kernel.

Knows no model. `specviz.costs.ceilings` reads what is measured here.
"""

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from time import perf_counter

import pandas as pd
import torch
from torch.nn.functional import linear
from tqdm.auto import tqdm

from specviz.engine.models.pair import DTYPES

MIB = 2**20
KERNELS = 256  # launched in a row, or captured in one graph
REPETITIONS = 9


@dataclass(frozen=True)
class Sizes:
    """What is measured. buffers: bytes, two of each. rows: m of m x inner @ inner x inner; seconds: to be spent on each, at least."""

    buffers: tuple[int, ...]
    rows: tuple[int, ...]
    inner: int
    seconds: float

    def __post_init__(self) -> None:
        for name in ("buffers", "rows"):
            values = getattr(self, name)
            if not values or min(values) < 1:
                raise ValueError(
                    f"{name}={values!r} holds no sizes; pass whole numbers of at least 1"
                )
        if self.inner < 1 or self.seconds <= 0:
            raise ValueError(f"inner={self.inner!r} and seconds={self.seconds!r} must be above 0")


# A buffer beyond every cache comes last. A matrix of 4 MiB stays in a CPU's cache, one of 128 MiB is beyond a GPU's.
CPU = Sizes(
    (MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB), (1, 2, 4, 8, 16, 32, 64, 128, 512), 1024, 0.2
)
GPU = Sizes(
    (16 * MIB, 64 * MIB, 256 * MIB, 2048 * MIB),
    (1, 8, 16, 32, 64, 128, 256, 512, 1024, 4096),
    8192,
    0.2,
)


@torch.inference_mode()
def measure_ceilings(
    device: torch.device,
    dtypes: Sequence[str] = ("float32", "bfloat16"),
    sizes: Sizes | None = None,
    *,
    progress: bool = True,
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Measure on `device`, with torch's present number of threads. Each measurement warms up first; all of them take about ten seconds.

    Returns:
        (table, conditions). The table has one entry a measurement: quantity, dtype, rows, bytes, seconds (median of the repetitions),
        seconds_low and seconds_high (their range), rate, unit. Quantities: "copy" (bytes read and written) and "read" (bytes), by
        working set; "matmul" (FLOP), by dtype and rows; "launch" (kernels on one number, launched one by one; on a CPU an operation's
        fixed cost) and, on a GPU, "replay" (the same in a CUDA graph).

    Raises:
        ValueError: a dtype is unknown, or none is named; nothing has run.
    """
    unknown = [name for name in dtypes if name not in DTYPES]
    if unknown or not dtypes:
        raise ValueError(
            f"dtypes={list(dtypes)!r} cannot be measured; name one or more of {', '.join(DTYPES)}"
        )
    graphics = device.type == "cuda"
    sizes = sizes or (GPU if graphics else CPU)
    total = 2 * len(sizes.buffers) + len(dtypes) * len(sizes.rows) + 1 + graphics
    with torch.cuda.device(device) if graphics else nullcontext():
        kinds = (_bandwidth(device, sizes), _matmuls(device, dtypes, sizes), _launches(device))
        plans = tqdm(
            (plan for kind in kinds for plan in kind),
            "ceilings",
            total,
            unit="size",
            disable=not progress,
        )
        entries = [
            _measure(plan, sizes.seconds, torch.cuda.synchronize if graphics else _nothing)
            for plan in plans
        ]
    return pd.DataFrame(entries).astype({"rows": "Int64", "bytes": "Int64"}), _conditions(device)


@dataclass(frozen=True)
class _Plan:
    """Something to run, and how much of `unit` it does."""

    labels: dict[str, object]
    run: Callable[[], object]
    amount: float
    unit: str


def _bandwidth(device: torch.device, sizes: Sizes) -> Iterator[_Plan]:
    """Two buffers at a time, no more than an eighth of a GPU's free memory each."""
    most = torch.cuda.mem_get_info(device)[0] // 8 if device.type == "cuda" else max(sizes.buffers)
    for size in sizes.buffers:
        count = max(min(size, most) // 4, 1)
        source, target = torch.ones(count, device=device), torch.empty(count, device=device)
        yield _Plan(
            {"quantity": "copy", "bytes": 8 * count},
            partial(target.copy_, source),
            8 * count,
            "bytes/s",
        )
        yield _Plan({"quantity": "read", "bytes": 4 * count}, source.sum, 4 * count, "bytes/s")


def _matmuls(device: torch.device, dtypes: Sequence[str], sizes: Sizes) -> Iterator[_Plan]:
    for name in dtypes:
        weight = torch.ones(sizes.inner, sizes.inner, dtype=DTYPES[name], device=device)
        for rows in sizes.rows:
            x = torch.ones(rows, sizes.inner, dtype=DTYPES[name], device=device)
            labels = {"quantity": "matmul", "dtype": name, "rows": rows, "bytes": weight.nbytes}
            yield _Plan(labels, partial(linear, x, weight), 2.0 * rows * sizes.inner**2, "FLOP/s")


def _launches(device: torch.device) -> Iterator[_Plan]:
    number = torch.zeros(1, device=device)

    def launch() -> None:
        for _ in range(KERNELS):
            number.add_(1)

    yield _Plan({"quantity": "launch"}, launch, KERNELS, "kernels/s")
    if device.type == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch()
        yield _Plan({"quantity": "replay"}, graph.replay, KERNELS, "kernels/s")


def _measure(plan: _Plan, seconds: float, wait: Callable[[], object]) -> dict[str, object]:
    """Median of blocks of about 2 ms, so that a moment in which the machine does something else spoils a block and no more."""
    once = min(_time(plan.run, 1, wait) for _ in range(3))  # also the warm-up
    number, times = max(1, round(0.002 / once)), pd.Series(dtype=float)
    while (len(times) < REPETITIONS or times.sum() * number < seconds) and (
        len(times) < 3 or times.sum() * number < 5 * seconds
    ):
        times.loc[len(times)] = _time(plan.run, number, wait)
    found = {"quantity": "", "dtype": None, "rows": None, "bytes": None} | plan.labels
    measured = {"seconds": times.median(), "seconds_low": times.min(), "seconds_high": times.max()}
    return found | measured | {"rate": plan.amount / times.median(), "unit": plan.unit}


def _time(run: Callable[[], object], number: int, wait: Callable[[], object]) -> float:
    """Seconds of one run, of `number` in a row; `wait` until the device has done what it was given."""
    wait()
    start = perf_counter()
    for _ in range(number):
        run()
    wait()
    return (perf_counter() - start) / number


def _nothing() -> None:
    """There is nothing to wait for on a CPU."""


def _conditions(device: torch.device) -> dict[str, object]:
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "threads": torch.get_num_threads(),
        "cpu_count": os.cpu_count(),
    }
