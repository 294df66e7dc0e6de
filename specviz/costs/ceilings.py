"""The measured ceilings of a device, and how to look them up.

Contract: reads the table that `specviz study ceilings` writes; measures nothing.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from specviz.costs.checks import check_numbers
from specviz.costs.shapes import Numbers
from specviz.util.files import is_file
from specviz.util.validate import (
    is_finite,
    is_list,
    is_one_of,
    quoted_path,
    require_mapping,
    require_path,
    require_str,
    short,
    shown_path,
)

Points = tuple[tuple[float, float], ...]
COLUMNS = ("quantity", "dtype", "rows", "bytes", "seconds", "rate")
CPU_TABLE = Path(__file__).with_name("ceilings-cpu.csv")  # of two CPU cores
REQUIRED_QUANTITIES = ("copy", "read", "matmul", "launch")


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

    Raises:
        ValueError: a curve is empty, a size or rate is not above 0, or a time is below 0.
    """

    bandwidth: Points
    matmul: Mapping[str, Points]
    launch_s: float
    replay_s: float | None = None
    device: str = ""

    def __post_init__(self) -> None:
        _check_curve("bandwidth", self.bandwidth)
        require_mapping("matmul", self.matmul, "pass a curve for each dtype")
        require_str("device", self.device)
        for dtype, points in self.matmul.items():
            _check_curve(f"matmul[{dtype!r}]", points)
        _check_seconds("launch_s", self.launch_s)
        if self.replay_s is not None:
            _check_seconds("replay_s", self.replay_s)
        bandwidth = _monotone(self.bandwidth, falling=True)
        matmul = {dtype: _monotone(points, falling=False) for dtype, points in self.matmul.items()}
        object.__setattr__(self, "bandwidth", bandwidth)
        object.__setattr__(self, "matmul", matmul)

    def bandwidth_at(self, working_set_bytes: Numbers) -> Numbers:
        """Return bytes/s for repeated reads of a working set.

        Interpolates between measured sizes. Beyond them the nearest one counts.
        """
        check_numbers("working_set_bytes", working_set_bytes)
        return _interpolate(self.bandwidth, working_set_bytes)

    def matmul_at(self, dtype: str, rows: Numbers) -> Numbers:
        """Return FLOP/s of a matrix product with so many rows.

        Raises:
            ValueError: the dtype was not measured.
        """
        if not is_one_of(dtype, self.matmul):
            measured = ", ".join(self.matmul) or "nothing"
            raise ValueError(
                f"dtype must be a measured one ({measured}), got {short(dtype)}; "
                "measure it with specviz study ceilings --dtypes"
            )
        check_numbers("rows", rows)
        return _interpolate(self.matmul[dtype], rows)

    @classmethod
    def from_table(cls, table: pd.DataFrame, device: str = "") -> "Ceilings":
        """Return the ceilings of a table with the columns of `measure_ceilings`.

        Raises:
            ValueError: a column or a quantity is missing, or a rate is not a number above 0.
        """
        if not isinstance(table, pd.DataFrame):
            raise ValueError(
                f"table must be a DataFrame, got {short(table)}; "
                "pass a table that specviz study ceilings wrote"
            )
        missing = [name for name in COLUMNS if name not in table]
        if missing:
            raise ValueError(
                f"table must have the column {', '.join(missing)}, which is missing; pass a table"
                " that specviz study ceilings wrote"
            )
        measured = {str(quantity): part for quantity, part in table.groupby("quantity")}
        absent = [quantity for quantity in REQUIRED_QUANTITIES if quantity not in measured]
        if absent:
            raise ValueError(
                f"table must hold a measurement of {', '.join(absent)}, which is missing; pass a"
                " table that specviz study ceilings wrote"
            )
        rates = pd.to_numeric(table["rate"], errors="coerce")
        if not (rates > 0).all():
            wrong = table["rate"][~(rates > 0)].iloc[0]
            raise ValueError(f"table must hold rates above 0, got {short(wrong)}; measure it again")
        moved = pd.concat([measured["copy"], measured["read"]])
        matmul = {
            str(dtype): _points(part["rows"], part["rate"])
            for dtype, part in measured["matmul"].groupby("dtype")
        }
        replay_s = None
        if "replay" in measured:
            replay_s = 1 / float(measured["replay"]["rate"].iloc[0])
        return cls(
            bandwidth=_points(moved["bytes"], moved["rate"]),
            matmul=matmul,
            launch_s=1 / float(measured["launch"]["rate"].iloc[0]),
            replay_s=replay_s,
            device=device,
        )

    @classmethod
    def load(cls, path: str | Path) -> "Ceilings":
        """Return the ceilings of a CSV file that `specviz study ceilings` wrote.

        The device's name comes from the JSON file next to it, or else from the file's own name.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file holds something else.
        """
        path = require_path("path", path)
        if not is_file(path):
            raise FileNotFoundError(
                f"ceilings must be a file, got {quoted_path(path)}, which does not exist; "
                f"measure them with specviz study ceilings --out {shown_path(path)}"
            )
        try:
            table = pd.read_csv(path)
        except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
            raise ValueError(
                f"ceilings must be a CSV table, got {str(path)!r} ({error}); pass a file that"
                " specviz study ceilings wrote"
            ) from None
        conditions = path.with_suffix(".json")
        device = path.stem
        if conditions.is_file():
            device = json.loads(conditions.read_text(encoding="utf-8")).get("device", "")
        return cls.from_table(table, device)


def _check_curve(name: str, points: Points) -> None:
    usable = is_list(points) and bool(points) and all(map(_is_point, points))
    if not usable:
        raise ValueError(
            f"{name} must hold (size, rate) pairs above 0, got {short(points)}; measure again with"
            " specviz study ceilings"
        )


def _is_point(point: object) -> bool:
    if not is_list(point) or len(point) != 2:
        return False
    return all(is_finite(value) and value > 0 for value in point)


def _check_seconds(name: str, seconds: object) -> None:
    if not is_finite(seconds) or seconds < 0:
        raise ValueError(f"{name} must be seconds >= 0, got {short(seconds)}; measure it again")


def _points(sizes: Sequence[float], rates: Sequence[float]) -> Points:
    return tuple((float(size), float(rate)) for size, rate in zip(sizes, rates, strict=True))


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
