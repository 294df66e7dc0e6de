"""The report of an audit: a verdict, totals with intervals, and a row per prompt.

Contract: it holds tables and sentences and draws nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import pandas as pd

from specviz.checks.audit.duo import EQUAL, LONGER, SHORTER
from specviz.checks.audit.statistics import Control
from specviz.checks.equivalence import NEAR_TIE, UNKNOWN
from specviz.util.text import harmless

UNEXPLAINED = "unexplained"  # the word of an audit for "not explained by noise"
VERDICTS = (EQUAL, SHORTER, LONGER, NEAR_TIE, UNEXPLAINED, UNKNOWN)
TEXTS = ("prompt_text", "before", "reference_text", "candidate_text")
_MAX_SHOWN = 20  # prompts in the printed report


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """What `audit` found.

    Gaps and noise are differences of log-probabilities in natural units.

    Attributes:
        prompts: one entry per prompt. NA or NaN where there is nothing to say:
            verdict: "equal", "shorter" or "longer" (the candidate ends earlier or later, with the
                same tokens as far as both go, and an EOS or a stated budget explains it),
                "near tie", "unexplained", or "unknown".
            reason: why it is "unexplained" whatever the target says, or "unknown"; "" otherwise.
            unit: what is compared and counted: "token" or "character".
            first_divergence: index into the new tokens.
            reference_token, candidate_token: what stands there.
            gap: from the target's best token to the lesser of the two, or at least this.
            reference_gap, candidate_gap: the same for one of them.
            later_gap, later_token: the largest distance of a later token of the candidate from the
                target's best one, and the index of that token.
            measured_from: "target", "log-probabilities" or "".
            reference_length, candidate_length: in units.
            control_diverges: whether the control diverges from the reference; only with a control.
            prompt_text, before, reference_text, candidate_text: the prompt, and the texts around
                the divergence.
        totals: one entry per verdict, and "divergences that a tie explains": count, total, share,
            and low and high, the ends of Wilson's interval at 95 %.
        control: how often the candidate and the control diverge; None without a control.
        noise: the largest measured change of a log-probability; NaN where none was measured.
        limit: the largest gap that it explains.
        conditions: what was compared, with which target, dtype, device and versions.
        notes: what the audit cannot tell, in sentences.
    """

    prompts: pd.DataFrame
    totals: pd.DataFrame
    control: Control | None
    noise: float
    limit: float
    conditions: Mapping[str, Any]
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether every divergence was judged, and a tie explains each."""
        return not self._count(UNEXPLAINED) and not self._count(UNKNOWN)

    @property
    def unexplained(self) -> list[int]:
        """The prompts whose divergence no tie explains: what to look at."""
        return self.prompts.index[self.prompts["verdict"] == UNEXPLAINED].tolist()

    def frame(self) -> pd.DataFrame:
        """Return a copy of `prompts`."""
        return self.prompts.copy()

    @property
    def verdict(self) -> str:
        """The outcome in one sentence."""
        total = len(self.prompts)
        texts = "1 text" if total == 1 else f"{total} texts"
        ties, equal = self._count(NEAR_TIE), self._count(EQUAL)
        others = self._others()
        if self._count(UNEXPLAINED):
            return self._wrong(texts)
        if self._count(UNKNOWN):
            return self._not_judged(total) + _listed(others)
        if ties:
            gap = self.prompts["gap"].max()
            return (
                f"near ties only: {ties} of {total} texts diverge, with a gap of {gap:.3g} at "
                f"most; {self._explained}{_listed(others)}"
            )
        if not equal:
            ended = ", ".join(others)
            return f"no divergence, but no text is equal to its end: of {texts}, {ended}"
        shown = f"all {total} texts are" if equal == total else f"{equal} of {texts} are"
        if total == 1:
            shown = "the text is"
        return f"right: {shown} equal{_listed(others)}"

    def _wrong(self, texts: str) -> str:
        """Say what is wrong: faults that are plain without a target first."""
        unexplained = self.prompts[self.prompts["verdict"] == UNEXPLAINED]
        parts = []
        for reason, entries in unexplained[unexplained["reason"] != ""].groupby("reason"):
            where = self._at(entries.index[0])
            parts.append(f"wrong: {reason} in {len(entries)} of {texts}, the first in {where}")
        rest = unexplained[unexplained["reason"] == ""]
        if len(rest):
            noun = "divergence" if len(rest) == 1 else "divergences"
            where = self._place(rest.index[0])
            parts.append(f"{len(rest)} unexplained {noun} in {texts}, the first in {where}")
        return "; ".join(parts) + _listed(self._others())

    def _not_judged(self, total: int) -> str:
        unknown = self.prompts[self.prompts["verdict"] == UNKNOWN]
        reason = unknown["reason"].value_counts().index[0]
        entries = unknown[unknown["reason"] == reason]
        where = self._at(entries.index[0])
        shown = f"not judged: {reason} ({len(entries)} of {total} texts, the first in {where}"
        if entries["gap"].notna().any():
            shown += f"; {self._explained}"
        left = len(unknown) - len(entries)
        return f"{shown})" + (f"; {left} more for other reasons" if left else "")

    def _count(self, verdict: str) -> int:
        """Return how many prompts have a verdict."""
        return int((self.prompts["verdict"] == verdict).sum())

    def _others(self) -> list[str]:
        """Count the verdicts that the first line does not begin with."""
        parts = []
        if self._count(UNEXPLAINED) and self._count(UNKNOWN):
            parts.append(f"{self._count(UNKNOWN)} not judged")
        for verdict, words in ((SHORTER, "end earlier"), (LONGER, "end later")):
            if self._count(verdict):
                parts.append(f"{self._count(verdict)} {words}")
        return parts

    @property
    def _explained(self) -> str:
        return f"noise explains {self.limit:.3g}"

    def _at(self, prompt: int) -> str:
        entry = self.prompts.loc[prompt]
        at = entry["first_divergence"]
        return f"prompt {prompt}" + ("" if pd.isna(at) else f" at {entry['unit']} {at}")

    def _place(self, prompt: int) -> str:
        """Say where a text diverges and by how much."""
        entry = self.prompts.loc[prompt]
        if entry["gap"] > self.limit or not entry["later_gap"] > self.limit:
            return f"{self._at(prompt)}, with a gap of {entry['gap']:.3g}; {self._explained}"
        later = f"its {entry['unit']} {entry['later_token']} lies {entry['later_gap']:.3g} below"
        return f"{self._at(prompt)}: {later} the target's best; {self._explained}"

    @property
    def control_sentence(self) -> str:
        """Whether the candidate diverges more than the control; "" without one."""
        found = self.control
        if found is None:
            return ""
        ours, theirs = found.candidate, found.control
        counts = (
            f"the candidate in {ours.count} of {ours.total} texts, and the control in "
            f"{theirs.count}"
        )
        how = (
            "The candidate diverges"
            if found.is_more
            else "It is not shown that the candidate diverges"
        )
        return (
            f"{how} more often than the reference does from itself: {counts} (McNemar's exact "
            f"test, one-sided, p = {found.p_value:.2g})."
        )

    def __repr__(self) -> str:
        parts = [self.verdict, ""]
        parts.append(self.totals.to_string(float_format="{:.3f}".format))
        if self.control is not None:
            parts += ["", self.control_sentence]
        shown = self.prompts[self.prompts["verdict"] != EQUAL]
        if len(shown):
            columns = ["verdict", "first_divergence", "reference_token", "candidate_token", "gap"]
            columns += ["later_gap", "measured_from"]
            table = shown[columns].head(_MAX_SHOWN)
            parts += ["", table.to_string(float_format="{:.3g}".format, na_rep="")]
        if len(shown) > _MAX_SHOWN:
            parts.append(f"... and {len(shown) - _MAX_SHOWN} more; see frame()")
        for reason, entries in shown[shown["reason"] != ""].groupby("reason"):
            prompts = ", ".join(map(str, entries.index[:_MAX_SHOWN]))
            left = len(entries) - _MAX_SHOWN
            more = f" and {left} more" if left > 0 else ""
            noun = "prompt" if len(entries) == 1 else "prompts"
            parts += ["", f"{entries['verdict'].iloc[0]}, {noun} {prompts}{more}: {reason}"]
        for note in self.notes:
            parts += ["", f"Note: {note}"]
        return harmless("\n".join(parts))

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(each)}</p>" for each in (self.control_sentence, *self.notes))
        totals = self.totals.to_html(float_format="{:.3f}".format)
        table = self.prompts.drop(columns=list(TEXTS)).to_html(float_format="{:.3g}".format)
        return f"<p><b>{escape(self.verdict)}</b></p>{totals}{notes}{table}"


def _listed(parts: list[str]) -> str:
    return "; " + ", ".join(parts) if parts else ""
