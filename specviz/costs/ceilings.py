"""A device's measured ceilings as numbers to reckon with. Reads the table that `specviz ceilings` writes; measures nothing."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from specviz.costs.shapes import Numbers

Points = tuple[tuple[float, float], ...]
COLUMNS = ("quantity", "dtype", "rows", "bytes", "seconds", "rate")


@dataclass(frozen=True)
class Ceilings:
    """What a device can do at best.

    Attributes:
        bandwidth: (working set in bytes, bytes/s), by size. A smaller working set, which fits a cache, is never slower than a larger one.
        matmul: for each dtype (rows, FLOP/s), by rows. More rows at once are never slower than fewer.
        launch_s: seconds that the host takes to launch a kernel; on a CPU, to carry out an operation on one number.
        replay_s: seconds between kernels of a replayed CUDA graph; None where there are none.
        device: its name; for words alone.

    Raises:
        ValueError: a list is empty, or a size or rate is not above 0.
    """

    bandwidth: Points
    matmul: Mapping[str, Points]
    launch_s: float
    replay_s: float | None = None
    device: str = ""

    def __post_init__(self) -> None:
        curves = {
            "bandwidth": self.bandwidth,
            **{f"matmul[{name!r}]": points for name, points in self.matmul.items()},
        }
        for name, points in curves.items():
            if not points or not all(size > 0 and 0 < rate < np.inf for size, rate in points):
                raise ValueError(
                    f"{name}={points!r} is no list of sizes and rates above 0; measure again with specviz ceilings"
                )
        for name, seconds in (
            ("launch_s", self.launch_s),
            ("replay_s", 0.0 if self.replay_s is None else self.replay_s),
        ):
            if not 0 <= seconds < np.inf:
                raise ValueError(f"{name}={seconds!r} is no time; pass seconds of at least 0")
        object.__setattr__(self, "bandwidth", _monotone(self.bandwidth, falling=True))
        object.__setattr__(
            self,
            "matmul",
            {name: _monotone(points, falling=False) for name, points in self.matmul.items()},
        )

    def bandwidth_at(self, working_set_bytes: Numbers) -> Numbers:
        """bytes/s for what is read over and over; between measured sizes interpolated, beyond them the nearest one's."""
        return _interpolate(self.bandwidth, working_set_bytes)

    def matmul_at(self, dtype: str, rows: Numbers) -> Numbers:
        """FLOP/s of a matrix product with so many rows. Raises ValueError if the dtype was not measured."""
        if dtype not in self.matmul:
            names = ", ".join(self.matmul) or "nothing"
            raise ValueError(
                f"dtype={dtype!r} was not measured, {names} was; run specviz ceilings --dtypes {dtype}"
            )
        return _interpolate(self.matmul[dtype], rows)

    @classmethod
    def from_table(cls, table: pd.DataFrame, device: str = "") -> "Ceilings":
        """From a table with the columns of `measure_ceilings`. Raises ValueError if something is missing or is no rate."""
        missing = [name for name in COLUMNS if name not in table]
        if missing:
            raise ValueError(
                f"table has no column {', '.join(missing)}; pass what specviz ceilings wrote"
            )
        kinds = {str(kind): found for kind, found in table.groupby("quantity")}
        absent = [kind for kind in ("copy", "read", "matmul", "launch") if kind not in kinds]
        if absent:
            raise ValueError(
                f"table has no measurement of {', '.join(absent)}; pass what specviz ceilings wrote"
            )
        if not (pd.to_numeric(table["rate"], errors="coerce") > 0).all():
            raise ValueError(
                "table has a rate that is no number above 0; measure again with specviz ceilings"
            )
        moved = pd.concat([kinds["copy"], kinds["read"]])
        return cls(
            bandwidth=_points(moved["bytes"], moved["rate"]),
            matmul={
                str(name): _points(found["rows"], found["rate"])
                for name, found in kinds["matmul"].groupby("dtype")
            },
            launch_s=1 / float(kinds["launch"]["rate"].iloc[0]),
            replay_s=1 / float(kinds["replay"]["rate"].iloc[0]) if "replay" in kinds else None,
            device=device,
        )

    @classmethod
    def load(cls, path: str | Path) -> "Ceilings":
        """From the CSV file that `specviz ceilings` wrote, and the JSON file beside it if there is one.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it holds something else.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(
                f"ceilings={str(path)!r} is no file; measure them with specviz ceilings --out {path}"
            )
        try:
            table = pd.read_csv(path)
        except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
            raise ValueError(
                f"ceilings={str(path)!r} is no table ({error}); pass a CSV file that specviz ceilings wrote"
            ) from None
        beside = path.with_suffix(".json")
        device = (
            json.loads(beside.read_text(encoding="utf-8")).get("device", "")
            if beside.is_file()
            else path.stem
        )
        return cls.from_table(table, device)


def _points(sizes: Sequence[float], rates: Sequence[float]) -> Points:
    return tuple((float(size), float(rate)) for size, rate in zip(sizes, rates, strict=True))


def _monotone(points: Points, *, falling: bool) -> Points:
    """By size, one rate each: the best that was measured at this size or, `falling`, a larger one, else a smaller one."""
    sizes = sorted({size for size, _ in points})
    best = {
        at: max(rate for size, rate in points if (size >= at if falling else size <= at))
        for at in sizes
    }
    return tuple(best.items())


def _interpolate(points: Points, at: Numbers) -> Numbers:
    """Linear in the logarithm of the size."""
    sizes, rates = np.array(points).T
    found = np.interp(np.log(np.maximum(at, sizes[0])), np.log(sizes), rates)
    return found if isinstance(at, np.ndarray) else float(found)
