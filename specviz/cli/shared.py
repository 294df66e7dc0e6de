"""What several commands share: the pair that their options name, and how tables are printed."""

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

    from specviz.engine.models.pair import Pair

DtypeName = Literal["float32", "bfloat16", "float16", "float64"]


@dataclass(frozen=True)
class NamedPair:
    """A target and a draft by name.

    Attributes:
        target: hub id or folder of the target (the embedded pair).
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


def check_both(target: str | None, draft: str | None) -> None:
    """Raise ValueError if only one model is named."""
    if target is not None and draft is None:
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
