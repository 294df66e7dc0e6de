"""Equal work: what two methods must share before their speeds are compared. Runs nothing.

Each method is taken at its best setting of a benchmark's table, and compared with autoregressive
decoding at the same B, HF assisted generation at B = 1, and the fastest other method that drafts at
the same B. `docs/compare.md` says why each line of LINES matters.
"""

import re
from collections.abc import Callable
from typing import Any

import pandas as pd

from specviz.bench.table import USED, VERSIONS, names, sections
from specviz.util.files import as_saved

HOLDS, BROKEN, UNKNOWN, PRICE = "holds", "broken", "unknown", "price"
CLOSE = 0.05  # measured values that differ by no more are equal
COLUMNS = ["section", "batch_size", "method", "reference", "line", "state", "why"]
_NUMBER = re.compile(r"=-?[\d.]+(e-?\d+)?$")  # an option that is a number


def check(table: pd.DataFrame) -> pd.DataFrame:
    """Return what is not at equal work in the comparisons of a benchmark's table.

    Args:
        table: of `run_bench` or `read_table`, or a section of it.

    Returns:
        An entry for each line of a comparison that does not hold: section (its heading),
        batch_size, method, reference, line, state and why (the column with both values, or the
        column that is missing). The state is "broken"; or "unknown", if the table does not say; or
        "price": the memory of drafts, which decoding without drafts leaves free.
    """
    found = comparisons(table)
    return found[found["state"] != HOLDS].reset_index(drop=True)


def comparisons(table: pd.DataFrame) -> pd.DataFrame:
    """Return the same as `check`, with the lines that hold.

    Lines that do not apply to a comparison have no entry.
    """
    found = []
    # Judge the digits that are saved, so that a table is judged alike in memory and from a file.
    columns = [*table, *(name for name in USED if name not in table)]
    for heading, section in sections(as_saved(table).reindex(columns=columns)):
        section = section.assign(
            name=names(section),
            method=section["strategy"].map(method_of) + " " + section["drafter"].map(method_of),
        )
        assisted = _fastest(_sides(section, section["strategy"].str.startswith("hf_assisted")))
        for size in sorted(section["batch_size"].unique()):
            sides = _sides(section, section["batch_size"] == size)
            plain = [side for side in sides if side.best["strategy"] == "autoregressive"]
            for ours in sides:
                others = [each for each in sides if each.drafts and each is not ours]
                drafting = _fastest(others) if ours.drafts else None
                # By name: the fastest of those that draft may be HF's own.
                against = {
                    each.name: each
                    for each in (_fastest(plain), assisted, drafting)
                    if each is not None and each.best["method"] != ours.best["method"]
                }
                for theirs in against.values():
                    for line, judge in LINES.items():
                        verdict = judge(ours, theirs)
                        if verdict is not None:
                            compared = (heading, int(size), ours.name, theirs.name)
                            found.append((*compared, line, *verdict))
    return pd.DataFrame(found, columns=COLUMNS)


def by_line(found: pd.DataFrame) -> pd.DataFrame:
    """Count the broken and unknown lines of `comparisons`, with an example of each.

    Returns:
        An entry for each line that does not hold everywhere: line, broken and unknown (in how many
        comparisons), and example (of a broken one, if there is one).
    """
    entries = []
    for line in LINES:
        here = found[found["line"] == line]
        broken = here[here["state"] == BROKEN]
        unknown = here[here["state"] == UNKNOWN]
        if len(broken) + len(unknown):
            first = (broken if len(broken) else unknown).iloc[0]
            what = f"{first['method']} to {first['reference']}, B = {first['batch_size']}"
            counts = (line, len(broken), len(unknown))
            entries.append((*counts, f"{what}: {first['why']}"))
    return pd.DataFrame(entries, columns=["line", "broken", "unknown", "example"])


def summary(found: pd.DataFrame) -> str:
    """Say in a sentence how many of `comparisons` break a line, and which lines."""
    compared = found.groupby(COLUMNS[:4], sort=False)["state"].agg(set)
    broken = sum(BROKEN in states for states in compared)
    if not broken:
        unknown = sum(UNKNOWN in states for states in compared)
        text = f"no line is broken in {len(compared)} comparisons"
        return f"{text}; in {unknown} of them a line cannot be known" if unknown else text
    lines = by_line(found).query("broken > 0")
    counts = ", ".join(f"{each.line} in {each.broken}" for each in lines.itertuples())
    return f"{broken} of {len(compared)} comparisons are not at equal work: {counts}"


def method_of(label: str) -> str:
    """Return a strategy or a drafter without its settings.

    K and options that are numbers are settings, among which a method's best is looked for. Other
    options make another method, and so do the rates of synthetic drafts.
    """
    name, colon, rest = label.partition(":")
    if not colon or name == "synthetic":
        return label
    # A selector's own options follow it, joined by "+".
    options = [
        "+".join(part for part in option.split("+") if not _NUMBER.search(part))
        for option in rest.split(",")
    ]
    return f"{name}:{','.join(filter(None, options))}".rstrip(":")


class Side:
    """One method at one B: its entry at the best setting, and those at all settings."""

    def __init__(self, entries: pd.DataFrame, section: pd.DataFrame) -> None:
        self.entries = entries
        self.section = section
        self.best = entries.loc[entries["tokens_per_s"].idxmax()]
        self.name = str(self.best["name"])
        self.drafts = bool(self.best["drafter"] != "none")
        # The K at which the method was tried, those that failed among them.
        self.tried = list(dict.fromkeys(entries["num_draft_tokens"].astype(str)))

    def value(self, column: str) -> Any:
        """Return the best entry's value; None if the table lacks it."""
        value = self.best.get(column)
        return None if pd.isna(value) else value


def _sides(section: pd.DataFrame, where: pd.Series) -> list[Side]:
    """Return the methods that have a speed among the entries `where`."""
    groups = section[where].groupby(["method", "batch_size"], sort=False)
    return [Side(each, section) for _, each in groups if each["tokens_per_s"].notna().any()]


def _fastest(sides: list[Side]) -> Side | None:
    return max(sides, key=lambda side: float(side.best["tokens_per_s"]), default=None)


# A judge returns the state and why, or None where the line does not apply.
_Verdict = tuple[str, str] | None


def _same(ours: Side, theirs: Side, *columns: str, close: bool = False) -> tuple[str, str]:
    """Compare the values of columns, which may be close instead of equal."""
    missing = []
    for column in columns:
        values = ours.value(column), theirs.value(column)
        if None in values:
            missing.append(column)
        elif values[0] != values[1] and not (close and _close(*values)):
            return BROKEN, f"{column}: {_shown(values[0])} against {_shown(values[1])}"
    return (UNKNOWN, f"{', '.join(missing)} missing") if missing else (HOLDS, "")


def _outputs(ours: Side, theirs: Side) -> _Verdict:
    """Compare the prompts, and the numbers of new tokens unless a near tie may change them."""
    ties = ours.value("near_ties") or theirs.value("near_ties")
    return _same(ours, theirs, "prompts", *([] if ties else ["new_tokens"]))


def _verified(ours: Side, theirs: Side) -> _Verdict:
    """Find a setting of each at which both verify equally many drafts a row and round."""
    if not (ours.drafts and theirs.drafts):
        return None
    column = "verified_a_round"
    both = [
        side.entries.loc[side.entries["tokens_per_s"].notna(), column] for side in (ours, theirs)
    ]
    found = [sorted(set(values.dropna())) for values in both]
    if any(_close(value, other) for value in found[0] for other in found[1]):
        return HOLDS, ""
    if any(values.isna().any() for values in both):
        return UNKNOWN, f"{column} missing"
    shown = [" / ".join(map(_shown, values)) for values in found]
    return BROKEN, f"{column}: {shown[0]} against {shown[1]}"


def _drafting(ours: Side, theirs: Side) -> _Verdict:
    """Check that no time of drafting was left out."""
    left_out = [side.value("uncounted_s") for side in (ours, theirs) if side.drafts]
    if any(left_out):
        values = [side.value("uncounted_s") if side.drafts else 0.0 for side in (ours, theirs)]
        return BROKEN, f"uncounted_s: {_shown(values[0])} against {_shown(values[1])}"
    if None in left_out:
        return UNKNOWN, "uncounted_s missing"
    return (HOLDS, "") if left_out else None


def _in_flight(ours: Side, theirs: Side) -> _Verdict:
    """Check that both keep equally many requests in flight: other B cannot be equal."""
    verdict = _same(ours, theirs, "in_flight")
    by_size = _same(ours, theirs, "batch_size")
    return by_size if verdict[0] == UNKNOWN and by_size[0] == BROKEN else verdict


def _memory(ours: Side, theirs: Side) -> _Verdict:
    """Compare the peaks of memory. If they differ, say what the smaller one does with more.

    That a method with drafts takes more than one without is its price: no setting changes it.
    """
    state, why = _same(ours, theirs, "memory_mb", close=True)
    if state != BROKEN:
        return state, why
    less, more = sorted((ours, theirs), key=lambda side: float(side.value("memory_mb")))
    if more.drafts and not less.drafts:
        state = PRICE
    section = less.section
    larger = section[
        (section["method"] == less.best["method"])
        & (section["batch_size"] > less.best["batch_size"])
        & (section["memory_mb"] <= more.value("memory_mb"))
        & (section["tokens_per_s"] > less.best["tokens_per_s"])
    ]
    if larger.empty:
        return state, why
    best = larger.loc[larger["tokens_per_s"].idxmax()]
    speeds = f"{best['tokens_per_s']:.0f} tokens/s instead of {less.best['tokens_per_s']:.0f}"
    return state, f"{why}, in which {less.name} has room for B = {best['batch_size']}: {speeds}"


def _training(ours: Side, theirs: Side) -> _Verdict:
    """Check that the drafters are the same, or were trained equally long."""
    if not (ours.drafts and theirs.drafts):
        return None
    if ours.best["drafter"] == theirs.best["drafter"]:
        return HOLDS, ""
    return _same(ours, theirs, "training_s", close=True)


def _best_settings(ours: Side, theirs: Side) -> _Verdict:
    """Check that each is at its own best K, found among the same K."""
    tried = [side.tried for side in (ours, theirs) if side.drafts]
    if not tried:
        return None
    if set(tried[0]) != set(tried[-1]):
        return BROKEN, f"best of K = {', '.join(tried[0])} against {', '.join(tried[1])}"
    return (UNKNOWN, f"K = {tried[0][0]} only") if len(tried[0]) == 1 else (HOLDS, "")


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= CLOSE * max(abs(one), abs(other))


def _shown(value: Any) -> str:
    if value is None:
        return "unknown"
    return value if isinstance(value, str) else f"{value:.7g}"


LINES: dict[str, Callable[[Side, Side], _Verdict]] = {
    "outputs": _outputs,
    "verified tokens": _verified,
    "drafting time": _drafting,
    "requests in flight": _in_flight,
    "devices": lambda ours, theirs: _same(ours, theirs, "devices", "threads", *VERSIONS),
    "memory": _memory,
    "training": _training,
    "best settings": _best_settings,
}
