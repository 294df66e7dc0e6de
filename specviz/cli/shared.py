"""What several commands share: options that name a pair or a device, and how tables are printed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from specviz.util.files import save_measured
from specviz.util.text import harmless
from specviz.util.validate import shown_path

if TYPE_CHECKING:
    import pandas as pd

    from specviz.costs.roofline import Roofline
    from specviz.engine.models.pair import Pair

DtypeName = Literal["float32", "bfloat16", "float16", "float64"]


@dataclass(frozen=True)
class NamedPair:
    """A target and a draft by name.

    Attributes:
        target: hub id or folder of the target (the embedded pair; "hybrid" alone is the other pair
            that comes with specviz).
        draft: hub id or folder of the draft.
        device: cpu, cuda, cuda:1 ... (CUDA where there is one).
        device_map: spread a large target over several GPUs, without --device: auto, balanced,
            sequential.
        dtype: of both models.
    """

    target: str | None = None
    draft: str | None = None
    device: str | None = None
    device_map: str | None = None
    dtype: DtypeName | None = None

    def load(self) -> "Pair":
        """Load the pair. Raise ValueError if only one model is named; or as `load_pair`."""
        from specviz.engine.models.pair import load_pair

        check_both(self.target, self.draft)
        return load_pair(
            self.target,
            self.draft,
            device=self.device,
            device_map=self.device_map,
            dtype=self.dtype,
        )


Models = Annotated[NamedPair, arg(name="")]
EMBEDDED = NamedPair()


@dataclass(frozen=True)
class NamedRoofline:
    """A pair on a device.

    Attributes:
        shapes: a pair, for times: qwen3-8b/0.6b, vicuna-7b/68m or glm4-9b/0.6b.
        ceilings: a CSV file of measured ceilings (that of two CPU cores, which comes with specviz).
        dtype: of weights and K/V (bfloat16; float32 for the table that comes with specviz).
        captured: rounds are replayed from CUDA graphs.
    """

    shapes: str | None = None
    ceilings: Path | None = None
    dtype: DtypeName | None = None
    captured: bool = False

    def load(self) -> "Roofline | None":
        """Return the roofline; None without shapes.

        Raises:
            ValueError, OSError: the ceilings cannot be read, or lack the dtype, or options say
                nothing without shapes.
        """
        if self.shapes is None:
            given: dict[str, object] = {"ceilings": self.ceilings, "dtype": self.dtype}
            given["captured"] = self.captured or None
            for name, value in given.items():
                if value is not None:
                    raise ValueError(
                        f"--{name} {shown_path(value)} says nothing without a pair; give --shapes"
                        " too"
                    )
            return None

        from specviz.costs.ceilings import CPU_TABLE, Ceilings
        from specviz.costs.roofline import Roofline
        from specviz.costs.shapes import named_pair

        pair = named_pair(self.shapes)
        dtype = self.dtype or ("bfloat16" if self.ceilings else "float32")
        return Roofline(*pair, Ceilings.load(self.ceilings or CPU_TABLE), dtype, self.captured)


Device = Annotated[NamedRoofline, arg(name="")]
NOWHERE = NamedRoofline()


def check_both(target: str | None, draft: str | None) -> None:
    """Raise ValueError if only one model is named."""
    if target not in (None, "hybrid") and draft is None:
        raise ValueError(f"--target {shown_path(target)} needs a draft; give --draft too")
    if draft is not None and target is None:
        raise ValueError(f"--draft {shown_path(draft)} needs a target; give --target too")


def show(table: "pd.DataFrame", conditions: Mapping[str, object], path: Path | None) -> None:
    """Print a table and its conditions, and save both if there is a path. Raises WriteError."""
    print_table(table)
    print_conditions(conditions)
    if path is not None:
        print_written(save_measured(table, conditions, path))


def print_table(table: "pd.DataFrame") -> None:
    """Print a table with three decimals."""
    print(harmless(table.round(3).to_string(index=False)))


def print_conditions(conditions: Mapping[str, object]) -> None:
    """Print what a table was measured on. The versions of the libraries stay in the file."""
    shown = [f"{name} {value}" for name, value in conditions.items() if name != "versions"]
    print("\n" + ", ".join(shown))


def print_written(paths: Sequence[Path]) -> None:
    """Print which files were written."""
    print("written to " + " and ".join(map(str, paths)))
