"""The measured ceilings of a device, and how to look them up. Measures nothing."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from specviz.costs.shapes import Numbers
from specviz.util.files import is_file
from specviz.util.validate import quoted_path, require_path, short

Points = tuple[tuple[float, float], ...]
COLUMNS = ("quantity", "dtype", "rows", "bytes", "seconds", "rate")
CPU_TABLE = Path(__file__).with_name("ceilings-cpu.csv")  # of two CPU cores
REQUIRED_QUANTITIES = ("copy", "read", "matmul", "launch")
_REMEDY = "pass a table that figures/make/ceilings.py wrote"


@dataclass(frozen=True)
class Ceilings:
    """What a device can do at best.

    Attributes:
        bandwidth: (working set in bytes, bytes/s), by size. A smaller working set, which fits a
            cache, is never slower than a larger one.
        matmul: for each dtype (rows, FLOP/s), by rows. More rows are never slower than fewer.
        launch_s: seconds that the host takes to launch a kernel; on a CPU, to carry out an
            operation on one number.
        replay_s: seconds between kernels of a replayed CUDA graph; None without graphs.
        device: its name, for display only.
    """

    bandwidth: Points
    matmul: Mapping[str, Points]
    launch_s: float
    replay_s: float | None = None
    device: str = ""

    def __post_init__(self) -> None:
        bandwidth = _monotone(self.bandwidth, falling=True)
        matmul = {dtype: _monotone(points, falling=False) for dtype, points in self.matmul.items()}
        object.__setattr__(self, "bandwidth", bandwidth)
        object.__setattr__(self, "matmul", matmul)

    def bandwidth_at(self, working_set_bytes: Numbers) -> Numbers:
        """Return bytes/s for repeated reads of a working set.

        Interpolates between measured sizes. Beyond them the nearest one counts.
        """
        return _interpolate(self.bandwidth, working_set_bytes)

    def matmul_at(self, dtype: str, rows: Numbers) -> Numbers:
        """Return FLOP/s of a matrix product with so many rows.

        Raises:
            ValueError: the dtype was not measured.
        """
        if dtype not in self.matmul:
            measured = ", ".join(self.matmul) or "nothing"
            raise ValueError(
                f"dtype must be a measured one ({measured}), got {short(dtype)}; "
                "measure it with figures/make/ceilings.py"
            )
        return _interpolate(self.matmul[dtype], rows)

    @classmethod
    def from_table(cls, table: pd.DataFrame, device: str = "") -> "Ceilings":
        """Return the ceilings of a table of measurements, with the columns COLUMNS.

        Raises:
            ValueError: a column or a quantity is missing, or a rate is not a number above 0.
        """
        missing = [name for name in COLUMNS if name not in table]
        if missing:
            raise ValueError(
                f"table must have the column {missing[0]}, which is missing; {_REMEDY}"
            )
        measured = {str(quantity): part for quantity, part in table.groupby("quantity")}
        absent = [quantity for quantity in REQUIRED_QUANTITIES if quantity not in measured]
        if absent:
            raise ValueError(
                f"table must hold a measurement of {absent[0]}, which is missing; {_REMEDY}"
            )
        moved = pd.concat([measured["copy"], measured["read"]])
        products = measured["matmul"]
        for numbers in (table["rate"], moved["bytes"], products["rows"]):
            usable = pd.to_numeric(numbers, errors="coerce")
            if not ((usable > 0) & np.isfinite(usable)).all():
                raise ValueError(
                    f"table must hold numbers above 0 as {numbers.name}; measure it again"
                )
        replay_s = None
        if "replay" in measured:
            replay_s = 1 / float(measured["replay"]["rate"].iloc[0])
        return cls(
            bandwidth=tuple(zip(moved["bytes"], moved["rate"], strict=True)),
            matmul={
                str(dtype): tuple(zip(part["rows"], part["rate"], strict=True))
                for dtype, part in products.groupby("dtype")
            },
            launch_s=1 / float(measured["launch"]["rate"].iloc[0]),
            replay_s=replay_s,
            device=device,
        )

    @classmethod
    def load(cls, path: str | Path) -> "Ceilings":
        """Return the ceilings of a CSV file that figures/make/ceilings.py wrote.

        The device's name comes from the JSON file next to it, or else from the file's own name.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file holds something else.
        """
        path = require_path("path", path)
        if not is_file(path):
            raise FileNotFoundError(
                f"ceilings must be a file, got {quoted_path(path)}, which does not exist; "
                "measure them with figures/make/ceilings.py"
            )
        try:
            table = pd.read_csv(path)
        except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
            raise ValueError(
                f"ceilings must be a CSV table, got {str(path)!r} ({error}); {_REMEDY}"
            ) from None
        conditions = path.with_suffix(".json")
        device = path.stem
        if conditions.is_file():
            device = json.loads(conditions.read_text(encoding="utf-8")).get("device", "")
        return cls.from_table(table, device)


def _monotone(points: Points, *, falling: bool) -> Points:
    """Return one rate for each size, sorted by size.

    It is the best rate measured at this size or at any larger one if `falling`, else at any
    smaller one: a slower measurement in between is noise.
    """
    best: dict[float, float] = {}
    rate_so_far = 0.0
    for size, rate in sorted(points, reverse=falling):
        rate_so_far = max(rate_so_far, rate)
        best[size] = rate_so_far
    return tuple(sorted(best.items()))


def _interpolate(points: Points, at: Numbers) -> Numbers:
    """Interpolate linearly in the logarithm of the size."""
    sizes, rates = np.array(points).T
    logs = np.log(np.maximum(at, sizes[0]))  # np.interp clamps only above the largest size
    found = np.interp(logs, np.log(sizes), rates)
    return found if isinstance(at, np.ndarray) else float(found)
