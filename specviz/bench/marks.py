"""How a table shows which of its comparisons are at equal work: marks, footnotes, and a list."""

from collections.abc import Iterable, Sequence

from specviz.bench.equal_lines import BROKEN, HOLDS, LINES, UNKNOWN
from specviz.bench.equal_work import LineResult, MethodComparison

LETTERS = dict(zip(LINES, "abcdefghijklmnopqrstuvwxyz", strict=False))


def marks(found: Iterable[MethodComparison], place: str) -> dict[object, str]:
    """Return what stands beside an entry's number in this place if it breaks lines: " [df]".

    The keys are those of `MethodComparison.entries`.
    """
    marked: dict[object, str] = {}
    for comparison in found:
        letters = "".join(LETTERS[result.line] for result in comparison.of(BROKEN))
        if comparison.place == place and letters:
            marked |= dict.fromkeys(comparison.entries, f" [{letters}]")
    return marked


def footnotes(found: Iterable[MethodComparison], places: Sequence[str]) -> list[str]:
    """Return a sentence for each letter of the marks: the line, and where it is broken first."""
    examples: dict[str, list[str]] = {}
    for comparison in found:
        if comparison.place in places:
            for result in comparison.of(BROKEN):
                where = f"{_pair(comparison)}, B = {comparison.batch_size}: {result.why}"
                examples.setdefault(result.line, []).append(where)
    notes = []
    for line in LINES:
        if line in examples:
            first, *others = examples[line]
            more = f"; {len(others)} more" if others else ""
            notes.append(f"[{LETTERS[line]}] not at equal {line}: {first}{more}")
    return notes


def listed(found: Sequence[MethodComparison]) -> str:
    """Return comparisons as Markdown, a table for each section: which lines hold, and why not.

    Why a line is not known stands below the table if it is the same in all of its rows.
    """
    parts = []
    for heading in dict.fromkeys(comparison.section for comparison in found):
        part = [comparison for comparison in found if comparison.section == heading]
        lines = [
            heading,
            "",
            "| B | compared | holds | broken | not known |",
            "|---|---|---|---|---|",
        ]
        shared = _unknown_alike(part)
        for comparison in part:
            unknown = comparison.of(UNKNOWN)
            cells = [
                str(comparison.batch_size),
                _pair(comparison),
                _said(comparison.of(HOLDS)),
                _said(comparison.of(BROKEN)),
                _said(
                    LineResult(each.line, UNKNOWN) if each in shared else each for each in unknown
                ),
            ]
            lines.append(f"| {' | '.join(cells)} |")
        notes = ["", f"Why a line is not known: {_said(shared)}"] if shared else []
        parts.append("\n".join([*lines, *notes]))
    return "\n\n".join(parts)


def _unknown_alike(part: Sequence[MethodComparison]) -> list[LineResult]:
    """Return what is not known in several comparisons for one and the same reason."""
    found = [result for comparison in part for result in comparison.of(UNKNOWN)]
    alike = []
    for line in LINES:
        reasons = [result for result in found if result.line == line]
        if len(reasons) > 1 and len(set(reasons)) == 1:
            alike.append(reasons[0])
    return alike


def summary(found: Sequence[MethodComparison]) -> str:
    """Return how many comparisons break a line, and which lines, in a sentence."""
    broken = [comparison for comparison in found if comparison.of(BROKEN)]
    if not broken:
        unknown = sum(bool(comparison.of(UNKNOWN)) for comparison in found)
        text = f"no line is broken in {len(found)} comparisons"
        return f"{text}; in {unknown} of them a line cannot be known" if unknown else text
    counts = []
    for line in LINES:
        number = sum(result.line == line for each in broken for result in each.of(BROKEN))
        if number:
            counts.append(f"{line} in {number}")
    return f"{len(broken)} of {len(found)} comparisons are not at equal work: {', '.join(counts)}"


def _pair(comparison: MethodComparison) -> str:
    return f"`{comparison.method}` to `{comparison.reference}`"


def _said(results: Iterable[LineResult]) -> str:
    said = [f"{each.line} ({each.why})" if each.why else each.line for each in results]
    return "; ".join(said) or "-"
