"""The lines of equal work: what two methods must share before their speeds are compared.

Each is judged by values that a benchmark's table records. `docs/equal-work.md` says why each one
matters. Runs nothing.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import pandas as pd

from specviz.bench.table import VERSIONS

HOLDS, BROKEN, UNKNOWN = STATES = ("holds", "broken", "unknown")
CLOSE = 0.05  # measured values that differ by no more are equal
NO_DRAFTS = "none"  # the drafter of a method that does not draft


class Side:
    """One method at one B: its entry at the best setting, and those at all settings."""

    def __init__(self, entries: pd.DataFrame, section: pd.DataFrame) -> None:
        self.entries = entries
        self.section = section
        self.best = entries.loc[entries["tokens_per_s"].idxmax()]

    @property
    def name(self) -> str:
        return str(self.best["name"])

    @property
    def drafts(self) -> bool:
        return bool(self.best["drafter"] != NO_DRAFTS)

    @property
    def measured(self) -> pd.DataFrame:
        """The entries that have a speed."""
        return self.entries[self.entries["tokens_per_s"].notna()]

    @cached_property
    def tried(self) -> list[str]:
        """The K at which the method was tried, those that failed among them."""
        return list(dict.fromkeys(self.entries["num_draft_tokens"].astype(str)))

    def value(self, name: str) -> Any:
        """Return the best entry's value; None if the table lacks it."""
        value = self.best.get(name)
        return None if pd.isna(value) else value


# A judge returns the state and why, or None where the line does not apply.
_Verdict = tuple[str, str] | None


def _outputs(ours: Side, theirs: Side) -> _Verdict:
    """Compare the prompts and the numbers of new tokens, except for near ties."""
    prompts = ours.value("prompts"), theirs.value("prompts")
    tokens = ours.value("new_tokens"), theirs.value("new_tokens")
    ties = (ours.value("near_ties") or 0) + (theirs.value("near_ties") or 0)
    if None not in prompts and prompts[0] != prompts[1]:
        return BROKEN, _against(prompts, "prompts")
    if None not in tokens and tokens[0] != tokens[1] and not ties:
        return BROKEN, _against(tokens, "new tokens")
    if None in (*prompts, *tokens):
        return UNKNOWN, "prompts or new_tokens are missing"
    return HOLDS, ""


def _verified(ours: Side, theirs: Side) -> _Verdict:
    """Find a setting of each at which both verify equally many drafts a row and round."""
    if not (ours.drafts and theirs.drafts):
        return None
    found = []
    for side in (ours, theirs):
        if "verified_a_round" not in side.entries:
            return UNKNOWN, "verified_a_round is missing"
        found.append(side.measured["verified_a_round"])
    for value in found[0].dropna():
        if any(_close(value, other) for other in found[1].dropna()):
            return HOLDS, ""
    if found[0].isna().any() or found[1].isna().any():
        return UNKNOWN, "verified_a_round is missing"
    shown = tuple(" / ".join(f"{value:.3g}" for value in sorted(set(each))) for each in found)
    return BROKEN, f"{shown[0]} drafts a row and round against {shown[1]}"


def _drafting(ours: Side, theirs: Side) -> _Verdict:
    """Check that no time of drafting was left out."""
    drafting = [side for side in (ours, theirs) if side.drafts]
    if not drafting:
        return None
    left_out = [side.value("uncounted_s") for side in drafting]
    if any(left_out):
        values = [side.value("uncounted_s") if side.drafts else 0 for side in (ours, theirs)]
        shown = ["not known" if value is None else f"{value:.3g} s" for value in values]
        return BROKEN, f"{shown[0]} left out against {shown[1]}"
    return (UNKNOWN, "uncounted_s is missing") if None in left_out else (HOLDS, "")


def _in_flight(ours: Side, theirs: Side) -> _Verdict:
    """Check that both keep equally many requests in flight."""
    found = ours.value("in_flight"), theirs.value("in_flight")
    if None not in found:
        return (HOLDS, "") if found[0] == found[1] else (BROKEN, _against(found, "requests"))
    sizes = ours.value("batch_size"), theirs.value("batch_size")
    if sizes[0] != sizes[1]:
        return BROKEN, f"B = {sizes[0]} against {sizes[1]}"
    return UNKNOWN, "in_flight is missing"


def _devices(ours: Side, theirs: Side) -> _Verdict:
    """Check that devices, threads and versions are the same."""
    missing = []
    for name in ("devices", "threads", *VERSIONS):
        values = ours.value(name), theirs.value(name)
        if None in values:
            missing.append(name)
        elif values[0] != values[1]:
            return BROKEN, f"{name}: {_against(values)}"
    return (UNKNOWN, f"{', '.join(missing)} missing") if missing else (HOLDS, "")


def _memory(ours: Side, theirs: Side) -> _Verdict:
    """Compare the peaks of memory. If they differ, say what the smaller one does with more."""
    found = ours.value("memory_mb"), theirs.value("memory_mb")
    if None in found:
        return UNKNOWN, "memory_mb is missing"
    if _close(*found):
        return HOLDS, ""
    smaller, most = (theirs, found[0]) if found[1] < found[0] else (ours, found[1])
    return BROKEN, f"{found[0]:.3g} MB against {found[1]:.3g} MB{_with_more(smaller, most)}"


def _with_more(side: Side, memory_mb: float) -> str:
    """Say which larger batch of this method fits into `memory_mb`, if one is in the table."""
    section = side.section
    larger = section[
        (section["method"] == side.best["method"])
        & (section["batch_size"] > side.best["batch_size"])
        & (section["memory_mb"] <= memory_mb)
        & (section["tokens_per_s"] > side.best["tokens_per_s"])
    ]
    if larger.empty:
        return ""
    best = larger.loc[larger["tokens_per_s"].idxmax()]
    speeds = f"{best['tokens_per_s']:.0f} tokens/s instead of {side.best['tokens_per_s']:.0f}"
    return f", in which {side.name} has room for B = {best['batch_size']}: {speeds}"


def _training(ours: Side, theirs: Side) -> _Verdict:
    """Check that the drafters are the same, or were trained equally long."""
    if not (ours.drafts and theirs.drafts):
        return None
    if ours.best["drafter"] == theirs.best["drafter"]:
        return HOLDS, ""
    found = ours.value("training_s"), theirs.value("training_s")
    if None in found:
        return UNKNOWN, "training_s is missing"
    return (HOLDS, "") if _close(*found) else (BROKEN, _against(found, "s"))


def _best_settings(ours: Side, theirs: Side) -> _Verdict:
    """Check that each is at its own best K, found among the same K."""
    tried = [side.tried for side in (ours, theirs) if side.drafts]
    if not tried:
        return None
    if len(tried) == 2 and set(tried[0]) != set(tried[1]):
        return BROKEN, f"best of K = {', '.join(tried[0])} against {', '.join(tried[1])}"
    if len(tried[0]) == 1:
        return UNKNOWN, f"K = {tried[0][0]} only"
    return HOLDS, ""


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= CLOSE * max(abs(one), abs(other))


def _against(values: tuple[Any, Any], unit: str = "") -> str:
    shown = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    return f"{shown[0]} against {shown[1]}{unit and ' ' + unit}"


LINES: dict[str, Callable[[Side, Side], _Verdict]] = {
    "outputs": _outputs,
    "verified tokens": _verified,
    "drafting time": _drafting,
    "requests in flight": _in_flight,
    "devices": _devices,
    "memory": _memory,
    "training": _training,
    "best settings": _best_settings,
}
