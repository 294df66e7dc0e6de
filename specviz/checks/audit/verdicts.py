"""What a divergence is: a tie that rounding turned, or something else.

Contract: numbers go in, a verdict comes out, by the rule of `specviz.checks.equivalence`. Not known
here: where the numbers come from.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from specviz.checks.equivalence import (
    CEILINGS,
    NEAR_TIE,
    UNKNOWN,
    Evidence,
    doubt_near_ties,
    largest_gap,
)
from specviz.checks.equivalence import UNEXPLAINED as BEYOND_NOISE

UNEXPLAINED = "unexplained"
NOT_MEASURED = "it is not known whether rounding explains the divergence"
OTHER_TOKENS = "texts that were read again may have had other tokens behind a near tie"
STOPPED = "the reference ends where this target goes on, as a stop string would end it"
FOREIGN = "the reference is not what this target writes"
PROCESSED = "the target's generation_config asks for processed scores, which are not computed here"
DOUBTED = "a near tie, which proves nothing beside an unexplained divergence"
# The dtype with the most noise that is believed, for runs whose dtype is unknown.
LOOSEST = max(CEILINGS, key=lambda dtype: CEILINGS[dtype])


@dataclass(frozen=True)
class Finding:
    """What is known of one divergence. Differences of log-probabilities; NaN where unknown.

    Attributes:
        gap: from the target's best token to the lesser of the two.
        is_bound: whether the gap is known to be at least this large, and no more.
        candidate_gap, reference_gap: the same for one side's token alone.
        later_gap: the largest distance of a later token of the candidate from the target's best
            one, under the candidate's own prefix.
        later_at: the index of that token; None where unknown.
        before: the largest distance of an earlier token of the reference from the target's best
            one.
        below, below_at: the same for all tokens of the reference.
        deviation: how far both sides' best log-probabilities there differ.
        measured_from: "target", "log-probabilities" or "".
        is_end, is_reference_end: whether the candidate's or the reference's text ends there, so
            that its token is an EOS that it left out.
        is_retokenised: whether the tokens are those of a tokenizer that read the texts again.
    """

    gap: float = math.nan
    is_bound: bool = False
    candidate_gap: float = math.nan
    reference_gap: float = math.nan
    later_gap: float = math.nan
    later_at: int | None = None
    before: float = math.nan
    below: float = math.nan
    below_at: int | None = None
    deviation: float = math.nan
    measured_from: str = ""
    is_end: bool = False
    is_reference_end: bool = False
    is_retokenised: bool = False


def judge(finding: Finding, noise: float, dtype: str) -> tuple[str, str]:
    """Return NEAR_TIE, UNEXPLAINED or UNKNOWN, and why it is UNKNOWN.

    Args:
        finding: of the divergence.
        noise: NaN if it was not measured.
        dtype: of the runs, which decides how much noise is believed.
    """
    limit = largest_gap(noise, CEILINGS[dtype])
    if finding.is_end and finding.candidate_gap > limit:
        return UNEXPLAINED, ""
    if max(finding.before, finding.reference_gap) > limit and finding.measured_from == "target":
        is_stopped = finding.is_reference_end and not finding.before > limit
        return UNKNOWN, STOPPED if is_stopped else FOREIGN
    if finding.is_retokenised and finding.gap <= limit < finding.later_gap:
        return UNKNOWN, OTHER_TOKENS
    evidence = Evidence(finding.gap, finding.deviation, finding.later_gap)
    cause = evidence.cause(noise, CEILINGS[dtype])
    if cause == BEYOND_NOISE:
        return UNEXPLAINED, ""
    if cause == UNKNOWN or finding.is_bound:
        return UNKNOWN, NOT_MEASURED
    return NEAR_TIE, ""


def doubt(verdicts: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return verdicts in the light of each other, by the rule of `doubt_near_ties`."""
    causes = [BEYOND_NOISE if verdict == UNEXPLAINED else verdict for verdict, _ in verdicts]
    doubted = doubt_near_ties(causes, [""] * len(causes))
    found = []
    for each, before, after in zip(verdicts, causes, doubted, strict=True):
        found.append(each if before == after else (after, DOUBTED))
    return found
