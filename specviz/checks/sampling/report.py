"""What an audit of a sampling decoder found, first line first.

Contract: the report prints as text and as HTML, and its tables are data frames. Not known here:
models, and how anything was found.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from html import escape

import pandas as pd

from specviz.checks.sampling.findings import SamplingFinding
from specviz.util.text import harmless

_SHOWN = 8  # findings in print


@dataclass(frozen=True, repr=False, eq=False)
class SamplingReport:
    """The judgement of a decoder that samples.

    Attributes:
        findings: what no right decoder does but with a chance of alpha, the strongest first.
        causes: what was seen in the forwards that explains it, in sentences.
        facts: what else was seen there, in sentences.
        reach: for each new token, how many draws there were, and the smallest total variation
            distance from the target that so many find with a chance of 99 %: over all rows and
            prefixes, and in one row.
        texts: how many texts were drawn.
        alpha: the chance that a right decoder is called wrong, at most.
    """

    findings: Sequence[SamplingFinding]
    causes: Sequence[str]
    facts: Sequence[str]
    reach: pd.DataFrame = field(repr=False)
    texts: int
    alpha: float

    @property
    def is_right(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def first(self) -> SamplingFinding | None:
        """The finding of the verdict: the earliest new token that is wrong, if one is named."""
        if not self.findings:
            return None
        apart = [each for each in self.findings if each.test in ("runs", "rows")]
        if apart:
            return apart[0]
        named = [each for each in self.findings if each.token is not None]
        if named:
            return min(named, key=lambda each: (each.place, -each.log_evidence))
        of_texts = [each for each in self.findings if each.test == "lean"]
        return (of_texts or list(self.findings))[0]

    @property
    def verdict(self) -> str:
        """The first line: right as far as this can tell, or what is wrong, where and how much."""
        first = self.first
        if first is None:
            distance = self.reach["all_rows"].iloc[0]
            return (
                f"right as far as {self.texts} texts can tell: at the first new token a total "
                f"variation distance of {distance:.3f} or more would have been found"
            )
        odds = f"a right decoder gives this with a chance of {_at_most(first.odds)}"
        if first.test in ("drafts", "selection"):
            return f"wrong: {first.sentence}; {odds}, though {self.texts} texts do not show it"
        return f"wrong: {first.sentence}; {odds}"

    def frame(self) -> pd.DataFrame:
        """Return a table of the findings, with the attributes of `SamplingFinding` and the odds."""
        rows = [asdict(each) | {"odds": each.odds} for each in self.findings]
        return pd.DataFrame(
            rows, columns=[*(each.name for each in fields(SamplingFinding)), "odds"]
        )

    def __str__(self) -> str:
        lines = [self.verdict]
        lines += [f"cause: {cause}" for cause in self.causes]
        lines += list(self.facts)
        rest = [each for each in self.findings if each is not self.first]
        if rest:
            lines += ["", "also:"]
            lines += [f"  {each.sentence} ({_at_most(each.odds)})" for each in rest[:_SHOWN]]
            if len(rest) > _SHOWN:
                lines.append(f"  and {len(rest) - _SHOWN} more; see frame()")
        lines += ["", self.reach.to_string(float_format="{:.3f}".format)]
        return harmless("\n".join(lines))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        lines = [*(f"cause: {cause}" for cause in self.causes), *self.facts]
        items = "".join(f"<li>{escape(line)}</li>" for line in lines)
        parts = [f"<p><b>{escape(self.verdict)}</b></p>", f"<ul>{items}</ul>" if items else ""]
        if self.findings:
            shown = self.frame()[["test", "sentence", "odds", "draws"]]
            parts.append(shown.to_html(index=False))
        parts.append(self.reach.to_html(float_format="{:.3f}".format))
        return "".join(parts)


def _at_most(odds: str) -> str:
    return odds if odds == "0" else f"at most {odds}"
