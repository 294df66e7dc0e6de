"""Equal work: what two methods must share before their speeds are compared. Runs nothing.

Each method is taken at its best setting of a benchmark's table, and compared with autoregressive
decoding at the same B, HF assisted generation at B = 1, and the fastest other method that drafts at
the same B. `docs/compare.md` says why each line of LINES matters.
"""

import re
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pandas as pd

from specviz.bench.table import USED, VERSIONS, names, sections
from specviz.util.files import as_saved
from specviz.util.text import count

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
            name=names,
            method=section["strategy"].map(method_of) + " " + section["drafter"].map(method_of),
        )
        # The methods that have a speed.
        groups = section.groupby(["batch_size", "method"], sort=False)
        all_sides = [
            Side(each, section) for _, each in groups if each["tokens_per_s"].notna().any()
        ]
        assisted = _fastest(each for each in all_sides if each.strategy.startswith("hf_assisted"))
        for size in sorted({each.batch_size for each in all_sides}):
            sides = [each for each in all_sides if each.batch_size == size]
            plain = _fastest(each for each in sides if each.strategy == "autoregressive")
            for ours in sides:
                others = (each for each in sides if each.drafts and each is not ours)
                drafting = _fastest(others) if ours.drafts else None
                # By name: the fastest of those that draft may be HF's own.
                against = {each.name: each for each in (plain, assisted, drafting) if each}
                for theirs in against.values():
                    if theirs.best["method"] == ours.best["method"]:
                        continue
                    for line, judge in LINES.items():
                        verdict = judge(ours, theirs)
                        if verdict is not None:
                            compared = (heading, size, ours.name, theirs.name)
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
        broken, unknown = (here[here["state"] == state] for state in (BROKEN, UNKNOWN))
        for first in pd.concat([broken, unknown]).head(1).itertuples():
            what = f"{first.method} to {first.reference}, B = {first.batch_size}: {first.why}"
            entries.append((line, len(broken), len(unknown), what))
    return pd.DataFrame(entries, columns=["line", "broken", "unknown", "example"])


def summary(found: pd.DataFrame) -> str:
    """Say in a sentence how many of `comparisons` break a line, and which lines."""
    compared = found.groupby(COLUMNS[:4], sort=False)["state"].agg(set)
    broken, unknown = (sum(state in each for each in compared) for state in (BROKEN, UNKNOWN))
    if broken:
        lines = by_line(found).query("broken > 0")
        counts = ", ".join(f"{each.line} in {each.broken}" for each in lines.itertuples())
        return f"{broken} of {len(compared)} comparisons are not at equal work: {counts}"
    text = f"no line is broken in {count(len(compared), 'comparison')}"
    return f"{text}; in {unknown} of them a line cannot be known" if unknown else text


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
        self.strategy = str(self.best["strategy"])
        self.batch_size = int(self.best["batch_size"])
        self.speed = float(self.best["tokens_per_s"])
        self.drafts = bool(self.best["drafter"] != "none")
        # The K at which the method was tried, those that failed among them.
        self.tried = list(dict.fromkeys(entries["num_draft_tokens"].astype(str)))

    def value(self, column: str) -> Any:
        """Return the best entry's value; None if the table lacks it."""
        value = self.best.get(column)
        return None if pd.isna(value) else value


def _fastest(sides: Iterable[Side]) -> Side | None:
    return max(sides, key=lambda side: side.speed, default=None)


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
            return BROKEN, _against(column, *values)
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
    if any(_close(value, other) for value, other in product(*found)):
        return HOLDS, ""
    if any(values.isna().any() for values in both):
        return UNKNOWN, f"{column} missing"
    return BROKEN, _against(column, *(" / ".join(map(_shown, values)) for values in found))


def _drafting(ours: Side, theirs: Side) -> _Verdict:
    """Check that no time of drafting was left out."""
    if not (ours.drafts or theirs.drafts):
        return None
    left_out = [side.value("uncounted_s") if side.drafts else 0.0 for side in (ours, theirs)]
    if any(left_out):
        return BROKEN, _against("uncounted_s", *left_out)
    return (UNKNOWN, "uncounted_s missing") if None in left_out else (HOLDS, "")


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
        & (section["batch_size"] > less.batch_size)
        & (section["memory_mb"] <= more.value("memory_mb"))
        & (section["tokens_per_s"] > less.speed)
    ]
    for best in larger.nlargest(1, "tokens_per_s").itertuples():
        why += f", in which {less.name} has room for B = {best.batch_size}: "
        why += f"{best.tokens_per_s:.0f} tokens/s instead of {less.speed:.0f}"
    return state, why


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


def _against(column: str, one: Any, other: Any) -> str:
    return f"{column}: {_shown(one)} against {_shown(other)}"


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
