"""`specviz bench --check`: are the comparisons of a benchmark's table at equal work?

The lines are those of docs/equal-work.md. A table comes from a file, or from the run before.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from specviz.cli.exit import NotPassedError
from specviz.studies.arguments import file_path
from specviz.util.files import is_file
from specviz.util.text import harmless
from specviz.util.validate import quoted_path, require_choice

if TYPE_CHECKING:
    import pandas as pd

# The keys of LINES, which imports torch.
LINE_NAMES = (
    "outputs", "verified tokens", "drafting time", "requests in flight", "devices", "memory",
    "training", "best settings",
)  # fmt: skip


def add_check(parser: argparse.ArgumentParser) -> None:
    """Add --check and --lines."""
    text = (
        "check whether methods are compared at equal work, in the table of this run or in that of "
        "an earlier one (PATH: its bench.csv or the folder of it), which measures nothing; exit "
        "with 1 if not"
    )
    parser.add_argument("--check", type=file_path, nargs="?", const=True, metavar="PATH", help=text)
    text = "with --check: lines of docs/equal-work.md to check, such as memory (all)"
    parser.add_argument("--lines", nargs="+", metavar="LINE", help=text)


def checks_file(options: argparse.Namespace) -> bool:
    """Return whether a file is to be checked, and nothing measured."""
    return isinstance(options.check, Path)


def check_options(
    options: argparse.Namespace, add_arguments: Callable[[argparse.ArgumentParser], None]
) -> None:
    """Raise ValueError or FileNotFoundError if what is to be checked cannot be.

    A folder as PATH is replaced with the file bench.csv in it.

    Args:
        add_arguments: adds all options of the command.
    """
    if options.lines is not None and options.check is None:
        raise ValueError(f"--lines {' '.join(options.lines)} needs --check; give --check too")
    if not checks_file(options):
        return
    given = options.check
    if is_file(given / "bench.csv"):
        options.check = given / "bench.csv"
    elif not is_file(given):
        raise FileNotFoundError(
            f"check={quoted_path(given)} must be a file, or a folder with a bench.csv; "
            "pass the bench.csv of a benchmark"
        )
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for name, default in vars(parser.parse_args([])).items():
        if name not in ("check", "lines") and getattr(options, name) != default:
            action = next(each for each in parser._actions if each.dest == name)
            raise ValueError(
                f"{action.option_strings[0]} is for measuring, and --check PATH measures nothing; "
                "leave one of them out"
            )


def check_lines(options: argparse.Namespace) -> None:
    """Raise ValueError for a line that is unknown."""
    for i, line in enumerate(options.lines or ()):
        require_choice(f"lines[{i}]", line, LINE_NAMES)


def check_file(options: argparse.Namespace) -> None:
    """Check the table in a file.

    Raises:
        ValueError: the file holds no table of a benchmark, or nothing to compare.
        NotPassedError: a line is broken.
    """
    from specviz.bench import read_table

    report_check(read_table(options.check), options)


def report_check(table: "pd.DataFrame", options: argparse.Namespace) -> None:
    """Print each comparison of the table and what is known of its lines.

    Raises:
        ValueError: there is nothing to compare.
        NotPassedError: a line is broken.
    """
    from specviz.bench import comparisons
    from specviz.bench.equal_lines import BROKEN, LINES
    from specviz.bench.marks import listed, summary

    found = comparisons(table, options.lines or tuple(LINES))
    if not found:
        raise ValueError(
            "the table has no two methods with a speed at one B to which a line applies, so there "
            "is nothing to check; measure autoregressive, or another method, too"
        )
    print(harmless(f"\n{listed(found)}\n"))
    if any(comparison.of(BROKEN) for comparison in found):
        raise NotPassedError(f"{summary(found)}; docs/equal-work.md says what to change")
    print(summary(found))
