"""The best that a device can do: bytes/s by working set, FLOP/s by dtype and rows, and launches.

`specviz cost --ceilings` reads the table. For a machine of your own, name a folder:
`python figures/make/ceilings.py --out FOLDER`. No model takes part, and it takes ten seconds.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter

import pandas as pd
import torch
from measure import FIGURES, Measured, command, without_model
from torch.nn.functional import linear

from specviz.bench.measuring import synchronize
from specviz.engine.models.pair import DTYPES
from specviz.engine.models.places import find_device

MIB = 2**20
KERNELS = 256  # launched in a row, or captured in one graph
REPETITIONS = 9
BLOCK_SECONDS = 0.002  # a stall of the machine falsifies one block of runs of this length


@dataclass(frozen=True)
class Sizes:
    """What is measured.

    Attributes:
        buffers: bytes of each of two buffers.
        rows: m in products of (m, inner) and (inner, inner).
    """

    buffers: tuple[int, ...]
    rows: tuple[int, ...]
    inner: int


# The last buffer exceeds every cache. A matrix of 4 MiB stays in a CPU's cache, one of 128 MiB
# exceeds a GPU's.
CPU = Sizes(
    buffers=tuple(each * MIB for each in (1, 4, 16, 64, 256)),
    rows=(1, 2, 4, 8, 16, 32, 64, 128, 512),
    inner=1024,
)
GPU = Sizes(
    buffers=tuple(each * MIB for each in (16, 64, 256, 2048)),
    rows=(1, 8, 16, 32, 64, 128, 256, 512, 1024, 4096),
    inner=8192,
)


@dataclass(frozen=True)
class Task:
    """Something to run, and how much of `unit` it does."""

    labels: dict[str, object]
    run: Callable[[], object]
    amount: float
    unit: str


@torch.inference_mode()
def ceilings(seconds: float = 0.2, dtypes: tuple[str, ...] = ("float32", "bfloat16")) -> Measured:
    """Return one entry for each measurement, which spends so many seconds at least.

    Quantities: "copy" (bytes read and written) and "read" (bytes), by working set; "matmul" (FLOP),
    by dtype and rows; "launch" (kernels on one number, one by one; on a CPU the fixed cost of an
    operation) and, on a GPU, "replay" (the same in a CUDA graph). seconds is the median over
    blocks of runs, with its range.
    """
    device = find_device(None)
    sizes = GPU if device.type == "cuda" else CPU
    tasks = [*bandwidth(device, sizes), *matmuls(device, dtypes, sizes), *launches(device)]
    table = pd.DataFrame([timed(task, seconds, device) for task in tasks])
    table = table.astype({"rows": "Int64", "bytes": "Int64"})
    return table, without_model(device, cpu_count=os.cpu_count())


def bandwidth(device: torch.device, sizes: Sizes) -> Iterator[Task]:
    """Yield two buffers at a time, each at most an eighth of a GPU's free memory."""
    largest = max(sizes.buffers)
    if device.type == "cuda":
        largest = torch.cuda.mem_get_info(device)[0] // 8
    for size in sizes.buffers:
        count = max(min(size, largest) // 4, 1)  # float32
        source = torch.ones(count, device=device)
        copy = partial(torch.empty(count, device=device).copy_, source)
        yield Task({"quantity": "copy", "bytes": 8 * count}, copy, 8 * count, "bytes/s")
        yield Task({"quantity": "read", "bytes": 4 * count}, source.sum, 4 * count, "bytes/s")


def matmuls(device: torch.device, dtypes: tuple[str, ...], sizes: Sizes) -> Iterator[Task]:
    """Yield products of random numbers: of equal ones, a GPU's clock would be higher."""
    for name in dtypes:
        weight = torch.randn(sizes.inner, sizes.inner, device=device).to(DTYPES[name])
        for rows in sizes.rows:
            x = torch.randn(rows, sizes.inner, device=device).to(DTYPES[name])
            labels = {"quantity": "matmul", "dtype": name, "rows": rows, "bytes": weight.nbytes}
            yield Task(labels, partial(linear, x, weight), 2.0 * rows * sizes.inner**2, "FLOP/s")


def launches(device: torch.device) -> Iterator[Task]:
    """Yield many kernels that do nothing much."""
    number = torch.zeros(1, device=device)

    def launch() -> None:
        for _ in range(KERNELS):
            number.add_(1)

    yield Task({"quantity": "launch"}, launch, KERNELS, "kernels/s")
    if device.type == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch()
        yield Task({"quantity": "replay"}, graph.replay, KERNELS, "kernels/s")


def timed(task: Task, seconds: float, device: torch.device) -> dict[str, object]:
    """Measure blocks of runs until they took `seconds`, or five times that for slow blocks."""
    once = min(block(task.run, 1, device) for _ in range(3))  # also the warm-up
    runs = max(1, round(BLOCK_SECONDS / once))
    times: list[float] = []  # seconds of one run, by block
    while True:
        spent = sum(times) * runs
        if len(times) >= REPETITIONS and spent >= seconds:
            break
        if len(times) >= 3 and spent >= 5 * seconds:
            break
        times.append(block(task.run, runs, device))
    labels = {"quantity": "", "dtype": None, "rows": None, "bytes": None} | task.labels
    middle = median(times)
    return labels | {
        "seconds": middle,
        "seconds_low": min(times),
        "seconds_high": max(times),
        "rate": task.amount / middle,
        "unit": task.unit,
    }


def block(run: Callable[[], object], number: int, device: torch.device) -> float:
    """Return the seconds of one run, of `number` in a row."""
    synchronize(device)
    start = perf_counter()
    for _ in range(number):
        run()
    synchronize(device)
    return (perf_counter() - start) / number


if __name__ == "__main__":
    if torch.cuda.is_available():
        command(ceilings, {"ceilings-h200": {}}, {"seconds": 0.01})
    else:
        folder = FIGURES.parent / "specviz" / "costs"
        command(ceilings, {"ceilings-cpu": {}}, {"seconds": 0.01}, folder)
