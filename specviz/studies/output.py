"""How a command prints and saves a table."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specviz.util.files import save_measured
from specviz.util.text import harmless

if TYPE_CHECKING:
    import pandas as pd


def show(table: "pd.DataFrame", conditions: Mapping[str, object], path: Path | None) -> None:
    """Print a table and its conditions, and save both if there is a path. Raises WriteError."""
    print_table(table)
    print_conditions(conditions)
    if path is not None:
        print_written(save_measured(table, conditions, path))


def print_table(table: "pd.DataFrame") -> None:
    """Print a table with three decimals."""
    print(harmless(table.round(3).to_string(index=False)))


def print_precise_table(table: "pd.DataFrame") -> None:
    """Print a table whose numbers differ by orders of magnitude: four significant digits."""
    print(table.to_string(index=False, float_format="{:.4g}".format, na_rep=""))


def print_conditions(conditions: Mapping[str, object]) -> None:
    """Print what a table was measured on. The versions of the libraries stay in the file."""
    shown = [f"{name} {value}" for name, value in conditions.items() if name != "versions"]
    print("\n" + ", ".join(shown))


def print_written(paths: Sequence[Path]) -> None:
    """Print which files were written."""
    print("written to " + " and ".join(map(str, paths)))
