"""Is a benchmark's comparison of two methods at equal work? Judged by what its table records.

Each method is taken at its best setting of the table. It is compared with what the table sets it
against: autoregressive decoding at the same B, HF assisted generation at B = 1, and the fastest
other method that drafts at the same B. Every line of LINES that applies to a comparison holds, is
broken, or cannot be known from the table. Runs nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from specviz.bench.equal_lines import LINES, Side
from specviz.bench.table import check_table, names, sections
from specviz.util.files import as_saved
from specviz.util.validate import require_choice, require_list


@dataclass(frozen=True)
class LineResult:
    """What is known of one line in one comparison.

    Attributes:
        line: one of LINES.
        state: one of STATES.
        why: both values where it is broken, what is missing where it is unknown, else "".
    """

    line: str
    state: str
    why: str = ""


@dataclass(frozen=True)
class MethodComparison:
    """Two methods that a table sets side by side.

    Attributes:
        section: the heading of the part of the table.
        batch_size: B of the first method.
        method, reference: their names in the table.
        place: the column that compares them: "ratio_to_autoregressive", "ratio_to_hf_assisted", or
            "tokens_per_s" with the fastest other method that drafts.
        results: of the lines that apply, in the order of LINES.
        entries: of the first method that have a speed at this B, by their index in the table.
    """

    section: str
    batch_size: int
    method: str
    reference: str
    place: str
    results: tuple[LineResult, ...]
    entries: tuple[Any, ...]

    def of(self, state: str) -> list[LineResult]:
        """Return the results in this state."""
        return [result for result in self.results if result.state == state]


def comparisons(table: pd.DataFrame, lines: Sequence[str] = tuple(LINES)) -> list[MethodComparison]:
    """Return what the table of a benchmark compares, with what is known of each line.

    Args:
        table: of `run_bench` or `read_table`, or a section of it.
        lines: which of LINES to judge. Comparisons to which none of them applies are left out.

    Raises:
        ValueError: `table` is not that of a benchmark, or a line is unknown.
    """
    check_table(table)
    require_list("lines", lines)
    for i, line in enumerate(lines):
        require_choice(f"lines[{i}]", line, LINES)
    found: list[MethodComparison] = []
    # Reasons show fewer digits. They are to be the same before and after the table is saved.
    for heading, section in sections(as_saved(table)):
        section = section.assign(
            name=names(section), method=[method_of(e) for e in section.itertuples()]
        )
        for size in section["batch_size"].drop_duplicates().sort_values():
            found += _at(heading, section, int(size), lines)
    return [comparison for comparison in found if comparison.results]


def method_of(entry: Any) -> tuple[str, str]:
    """Return the strategy and the drafter of an entry without their settings.

    K and options that are numbers are settings, among which a method's best is looked for. Other
    options make another method, and so do the rates of synthetic drafts.
    """
    return _without_numbers(str(entry.strategy)), _without_numbers(str(entry.drafter))


def _without_numbers(label: str) -> str:
    name, colon, rest = label.partition(":")
    if not colon or name == "synthetic":
        return label
    options = []
    for option in rest.split(","):
        # A selector's own options follow it, joined by "+".
        kept = [part for part in option.split("+") if not _is_number(part.partition("=")[2])]
        if kept:
            options.append("+".join(kept))
    return f"{name}:{','.join(options)}" if options else name


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _at(
    heading: str, section: pd.DataFrame, size: int, lines: Sequence[str]
) -> Iterator[MethodComparison]:
    sides = list(_sides(section, section["batch_size"] == size))
    plain = [side for side in sides if side.best["strategy"] == "autoregressive"]
    assisted = list(_sides(section, section["method"].str[0].str.startswith("hf_assisted")))
    for side in sides:
        drafting = [other for other in sides if other.drafts and other is not side]
        against = {
            "ratio_to_autoregressive": _fastest(plain),
            "ratio_to_hf_assisted": _fastest(assisted),
            "tokens_per_s": _fastest(drafting) if side.drafts else None,
        }
        for place, reference in against.items():
            if reference is not None and reference.best["method"] != side.best["method"]:
                yield MethodComparison(
                    heading,
                    size,
                    side.name,
                    reference.name,
                    place,
                    tuple(_judged(side, reference, lines)),
                    tuple(side.measured.index),
                )


def _sides(section: pd.DataFrame, where: pd.Series) -> Iterator[Side]:
    """Yield the methods that have a speed among the entries `where`."""
    for _, entries in section[where].groupby(["method", "batch_size"], sort=False):
        if entries["tokens_per_s"].notna().any():
            yield Side(entries, section)


def _fastest(sides: list[Side]) -> Side | None:
    return max(sides, key=lambda side: float(side.best["tokens_per_s"]), default=None)


def _judged(ours: Side, theirs: Side, lines: Sequence[str]) -> Iterator[LineResult]:
    for line, judge in LINES.items():
        verdict = judge(ours, theirs) if line in lines else None
        if verdict is not None:
            yield LineResult(line, *verdict)
