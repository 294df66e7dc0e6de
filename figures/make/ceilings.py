"""The best that a device can do: bytes/s by working set, FLOP/s by dtype and rows, and launches.

`specviz cost --ceilings` reads the table. For a machine of your own, name a folder:
`python figures/make/ceilings.py --out FOLDER`. No model takes part, and it takes half a minute.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pandas as pd
import torch
from measure import FIGURES, Measured, command, without_model
from torch.nn.functional import linear
from torch.utils.benchmark import Timer

from specviz.engine.models.pair import DTYPES, find_device

MIB = 2**20
KERNELS = 256  # launched in a row, or captured in one graph


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
# What stands in the table beside the times, what runs, and how much of a unit it does.
Task = tuple[dict[str, object], Callable[[], object], float, str]


@torch.inference_mode()
def ceilings(seconds: float = 0.5, dtypes: tuple[str, ...] = ("float32", "bfloat16")) -> Measured:
    """Return one entry for each measurement, which spends so many seconds at least.

    Quantities: "copy" (bytes read and written) and "read" (bytes), by working set; "matmul" (FLOP),
    by dtype and rows; "launch" (kernels on one number, one by one; on a CPU the fixed cost of an
    operation) and, on a GPU, "replay" (the same in a CUDA graph). seconds is the median over
    blocks of runs, with its range.
    """
    device = find_device(None)
    sizes = GPU if device.type == "cuda" else CPU
    entries = []
    for labels, run, amount, unit in tasks_on(device, dtypes, sizes):
        timer = Timer("run()", globals={"run": run}, num_threads=torch.get_num_threads())
        timer.timeit(3)  # warms up
        measured = timer.blocked_autorange(min_run_time=seconds)
        entry = {"quantity": "", "dtype": None, "rows": None, "bytes": None, **labels}
        entry |= {"seconds": measured.median}
        entry |= {"seconds_low": min(measured.times), "seconds_high": max(measured.times)}
        entries.append(entry | {"rate": amount / measured.median, "unit": unit})
    table = pd.DataFrame(entries).astype({"rows": "Int64", "bytes": "Int64"})
    return table, without_model(device, cpu_count=os.cpu_count())


def tasks_on(device: torch.device, dtypes: tuple[str, ...], sizes: Sizes) -> Iterator[Task]:
    """Yield what is measured. Two buffers take at most an eighth of a GPU's free memory each."""
    largest = max(sizes.buffers)
    if device.type == "cuda":
        largest = torch.cuda.mem_get_info(device)[0] // 8
    for size in sizes.buffers:
        count = max(min(size, largest) // 4, 1)  # float32
        source = torch.ones(count, device=device)
        copy = partial(torch.empty(count, device=device).copy_, source)
        yield {"quantity": "copy", "bytes": 8 * count}, copy, 8 * count, "bytes/s"
        yield {"quantity": "read", "bytes": 4 * count}, source.sum, 4 * count, "bytes/s"
    for name in dtypes:
        # Random numbers: with equal ones, a GPU's clock would be higher.
        weight = torch.randn(sizes.inner, sizes.inner, device=device).to(DTYPES[name])
        for rows in sizes.rows:
            x = torch.randn(rows, sizes.inner, device=device).to(DTYPES[name])
            labels = {"quantity": "matmul", "dtype": name, "rows": rows, "bytes": weight.nbytes}
            yield labels, partial(linear, x, weight), 2.0 * rows * sizes.inner**2, "FLOP/s"

    number = torch.zeros(1, device=device)

    def launch() -> None:
        for _ in range(KERNELS):
            number.add_(1)

    yield {"quantity": "launch"}, launch, KERNELS, "kernels/s"
    if device.type == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch()
        yield {"quantity": "replay"}, graph.replay, KERNELS, "kernels/s"


if __name__ == "__main__":
    if torch.cuda.is_available():
        command(ceilings, {"ceilings-h200": {}}, {"seconds": 0.01})
    else:
        folder = FIGURES.parent / "specviz" / "costs"
        command(ceilings, {"ceilings-cpu": {}}, {"seconds": 0.01}, folder)
