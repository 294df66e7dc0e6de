"""`specviz study ceilings`: the best a device can do.

That is bytes/s by working set, FLOP/s by dtype and rows, and seconds per launched kernel. No model
takes part. `specviz.costs.ceilings` reads the table.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter

import pandas as pd
import torch
from torch.nn.functional import linear
from tqdm.auto import tqdm

from specviz.bench.clock import synchronize
from specviz.engine.models.pair import DTYPES
from specviz.studies.arguments import check_dtypes
from specviz.studies.machine import device_conditions
from specviz.util.validate import (
    is_count,
    is_finite,
    is_list,
    require_bool,
    require_int,
    require_kind,
    short,
)

MIB = 2**20
KERNELS = 256  # launched in a row, or captured in one graph
REPETITIONS = 9
BLOCK_SECONDS = 0.002  # a stall of the machine falsifies one block of runs of this length


@dataclass(frozen=True)
class CeilingSizes:
    """What is measured.

    Attributes:
        buffers: bytes of each of two buffers.
        rows: m in products of (m, inner) and (inner, inner).
        seconds: the least time to spend on each measurement.
    """

    buffers: tuple[int, ...]
    rows: tuple[int, ...]
    inner: int
    seconds: float

    def __post_init__(self) -> None:
        for name in ("buffers", "rows"):
            values = getattr(self, name)
            usable = is_list(values) and len(values) > 0
            if not usable or not all(is_count(value) and value for value in values):
                raise ValueError(
                    f"{name} must hold ints >= 1, got {short(values)}; pass at least one"
                )
        require_int("inner", self.inner, remedy="pass a matrix size")
        if not is_finite(self.seconds) or self.seconds <= 0:
            raise ValueError(f"seconds must be above 0, got {short(self.seconds)}; pass 0.2 or so")


# The last buffer exceeds every cache. A matrix of 4 MiB stays in a CPU's cache, one of 128 MiB
# exceeds a GPU's.
CPU = CeilingSizes(
    buffers=(MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB),
    rows=(1, 2, 4, 8, 16, 32, 64, 128, 512),
    inner=1024,
    seconds=0.2,
)
GPU = CeilingSizes(
    buffers=(16 * MIB, 64 * MIB, 256 * MIB, 2048 * MIB),
    rows=(1, 8, 16, 32, 64, 128, 256, 512, 1024, 4096),
    inner=8192,
    seconds=0.2,
)


@torch.inference_mode()
def measure_ceilings(
    device: torch.device,
    dtypes: Sequence[str] = ("float32", "bfloat16"),
    sizes: CeilingSizes | None = None,
    *,
    progress: bool = True,
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Measure `device` with torch's current number of threads, in about ten seconds.

    Each measurement warms up first.

    Returns:
        (table, conditions). The table has one entry a measurement: quantity, dtype, rows, bytes,
        seconds (median of the repetitions), seconds_low and seconds_high (their range), rate,
        unit. Quantities: "copy" (bytes read and written) and "read" (bytes), by working set;
        "matmul" (FLOP), by dtype and rows; "launch" (kernels on one number, launched one by one;
        on a CPU the fixed cost of an operation) and, on a GPU, "replay" (the same in a CUDA
        graph).

    Raises:
        ValueError: a dtype is unknown, or there is none; nothing has run.
    """
    require_kind("device", device, torch.device, "use torch.device('cpu')")
    require_bool("progress", progress)
    check_dtypes(dtypes)
    if sizes is not None:
        require_kind("sizes", sizes, CeilingSizes, "pass CeilingSizes(...), or None")
    on_gpu = device.type == "cuda"
    if sizes is None:
        sizes = GPU if on_gpu else CPU
    total = 2 * len(sizes.buffers) + len(dtypes) * len(sizes.rows) + (2 if on_gpu else 1)
    entries = []
    with (
        torch.cuda.device(device) if on_gpu else nullcontext(),
        tqdm(desc="ceilings", total=total, unit="size", disable=not progress) as bar,
    ):
        for task in _tasks(device, dtypes, sizes):
            entries.append(_measure(task, sizes.seconds, device))
            bar.update()
    table = pd.DataFrame(entries).astype({"rows": "Int64", "bytes": "Int64"})
    return table, device_conditions(device, cpu_count=os.cpu_count())


@dataclass(frozen=True)
class _Task:
    """Something to run, and how much of `unit` it does."""

    labels: dict[str, object]
    run: Callable[[], object]
    amount: float
    unit: str


def _tasks(device: torch.device, dtypes: Sequence[str], sizes: CeilingSizes) -> Iterator[_Task]:
    yield from _bandwidth(device, sizes)
    yield from _matmuls(device, dtypes, sizes)
    yield from _launches(device)


def _bandwidth(device: torch.device, sizes: CeilingSizes) -> Iterator[_Task]:
    """Measure two buffers at a time, each at most an eighth of a GPU's free memory."""
    largest = max(sizes.buffers)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        largest = free // 8
    for size in sizes.buffers:
        count = max(min(size, largest) // 4, 1)  # float32
        source = torch.ones(count, device=device)
        target = torch.empty(count, device=device)
        copy = partial(target.copy_, source)
        yield _Task({"quantity": "copy", "bytes": 8 * count}, copy, 8 * count, "bytes/s")
        yield _Task({"quantity": "read", "bytes": 4 * count}, source.sum, 4 * count, "bytes/s")


def _matmuls(device: torch.device, dtypes: Sequence[str], sizes: CeilingSizes) -> Iterator[_Task]:
    # Random numbers: a GPU multiplies equal ones with less power, and so at a higher clock.
    for name in dtypes:
        weight = torch.randn(sizes.inner, sizes.inner, device=device).to(DTYPES[name])
        for rows in sizes.rows:
            x = torch.randn(rows, sizes.inner, device=device).to(DTYPES[name])
            labels = {"quantity": "matmul", "dtype": name, "rows": rows, "bytes": weight.nbytes}
            yield _Task(labels, partial(linear, x, weight), 2.0 * rows * sizes.inner**2, "FLOP/s")


def _launches(device: torch.device) -> Iterator[_Task]:
    number = torch.zeros(1, device=device)

    def launch() -> None:
        for _ in range(KERNELS):
            number.add_(1)

    yield _Task({"quantity": "launch"}, launch, KERNELS, "kernels/s")
    if device.type == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch()
        yield _Task({"quantity": "replay"}, graph.replay, KERNELS, "kernels/s")


def _measure(task: _Task, seconds: float, device: torch.device) -> dict[str, object]:
    """Measure blocks of runs until they took `seconds`, or five times that for slow blocks."""
    once = min(_time(task.run, 1, device) for _ in range(3))  # also the warm-up
    runs = max(1, round(BLOCK_SECONDS / once))
    times: list[float] = []  # seconds of one run, by block
    while True:
        spent = sum(times) * runs
        enough = len(times) >= REPETITIONS and spent >= seconds
        too_slow = len(times) >= 3 and spent >= 5 * seconds
        if enough or too_slow:
            break
        times.append(_time(task.run, runs, device))
    middle = median(times)
    labels = {"quantity": "", "dtype": None, "rows": None, "bytes": None} | task.labels
    return labels | {
        "seconds": middle,
        "seconds_low": min(times),
        "seconds_high": max(times),
        "rate": task.amount / middle,
        "unit": task.unit,
    }


def _time(run: Callable[[], object], number: int, device: torch.device) -> float:
    """Return the seconds of one run, of `number` in a row."""
    synchronize(device)
    start = perf_counter()
    for _ in range(number):
        run()
    synchronize(device)
    return (perf_counter() - start) / number
