"""What an audit of a sampling decoder found, first line first."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from html import escape

import pandas as pd

from specviz.util.text import harmless

_SHOWN = 8  # findings in print


@dataclass(frozen=True)
class SamplingFinding:
    """One test whose evidence exceeds what chance allows.

    Attributes:
        test: its name.
        sentence: what was found, where and by how much.
        log_evidence: the natural logarithm of the evidence, after the correction for all tests.
        row: the row of the batch; None for several.
        place: the new token, from 0; None for several.
        prompt, prefix: the prompt and the new tokens before; None for several.
        token: what was drawn too often or too rarely; None if the test is of no single token.
        expected, observed: its chance and its share.
        draws: how many draws the share is of.
    """

    test: str
    sentence: str
    log_evidence: float
    row: int | None = None
    place: int | None = None
    prompt: tuple[int, ...] | None = None
    prefix: tuple[int, ...] | None = None
    token: int | None = None
    expected: float = math.nan
    observed: float = math.nan
    draws: int = 0

    @property
    def odds(self) -> str:
        """The chance that a right decoder gives as much evidence, at most, in words.

        It is "0" where p rules out what was drawn.
        """
        if math.isinf(self.log_evidence):
            return "0"
        if self.log_evidence <= math.log(10):
            return f"{min(math.exp(-self.log_evidence), 1.0):.2g}"
        return f"1 in 10^{int(self.log_evidence / math.log(10))}"


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

        def rank(finding: SamplingFinding) -> tuple[int, int]:
            if finding.test in ("runs", "rows"):
                return 0, 0
            if finding.token is not None:
                return 1, finding.place or 0
            return (2 if finding.test == "lean" else 3), 0

        return min(self.findings, key=rank, default=None)

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
        hidden = first.test in ("drafts", "selection")
        unseen = f", though {self.texts} texts do not show it" if hidden else ""
        return f"wrong: {first.sentence}; {odds}{unseen}"

    def frame(self) -> pd.DataFrame:
        """Return a table of the findings, with the attributes of `SamplingFinding` and the odds."""
        rows = [asdict(each) | {"odds": each.odds} for each in self.findings]
        return pd.DataFrame(
            rows, columns=[*(each.name for each in fields(SamplingFinding)), "odds"]
        )

    def __str__(self) -> str:
        lines = [self.verdict, *self._explanation]
        rest = [each for each in self.findings if each is not self.first]
        if rest:
            lines += ["", "also:"]
            lines += [f"  {each.sentence} ({_at_most(each.odds)})" for each in rest[:_SHOWN]]
            if len(rest) > _SHOWN:
                lines.append(f"  and {len(rest) - _SHOWN} more; see frame()")
        lines += ["", self.reach.to_string(float_format="{:.3f}".format)]
        return harmless("\n".join(lines))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{escape(line)}</li>" for line in self._explanation)
        parts = [f"<p><b>{escape(self.verdict)}</b></p>", f"<ul>{items}</ul>" if items else ""]
        if self.findings:
            shown = self.frame()[["test", "sentence", "odds", "draws"]]
            parts.append(shown.to_html(index=False))
        parts.append(self.reach.to_html(float_format="{:.3f}".format))
        return "".join(parts)

    @property
    def _explanation(self) -> list[str]:
        return [*(f"cause: {cause}" for cause in self.causes), *self.facts]


def _at_most(odds: str) -> str:
    return odds if odds == "0" else f"at most {odds}"
