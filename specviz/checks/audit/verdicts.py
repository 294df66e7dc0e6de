"""What a divergence is: a tie that rounding turned, or something else.

Contract: numbers go in, a verdict comes out. The rule is that of `specviz.checks.equivalence`: a
divergence is a near tie if both tokens lie within twice the noise of the target's best one, and
all later tokens of the candidate too, under its own prefix. Not known here: where the numbers come
from.
"""

import math
from dataclasses import dataclass

from specviz.checks.equivalence import CEILINGS, NEAR_TIE, UNKNOWN, largest_gap

UNEXPLAINED = "unexplained"
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
        below, below_at: the same for all tokens of the reference.
        deviation: how far both sides' best log-probabilities there differ.
        measured_from: "target", "log-probabilities" or "".
    """

    gap: float = math.nan
    is_bound: bool = False
    candidate_gap: float = math.nan
    reference_gap: float = math.nan
    later_gap: float = math.nan
    later_at: int | None = None
    below: float = math.nan
    below_at: int | None = None
    deviation: float = math.nan
    measured_from: str = ""


def limit_of(noise: float, dtype: str) -> float:
    """Return the largest gap that noise explains in a dtype, see `largest_gap`."""
    return largest_gap(noise, CEILINGS[dtype])


def judge(finding: Finding, noise: float, dtype: str) -> str:
    """Return NEAR_TIE, UNEXPLAINED or UNKNOWN.

    Args:
        finding: of the divergence.
        noise: NaN if it was not measured.
        dtype: of the runs, which decides how much noise is believed.
    """
    limit = limit_of(noise, dtype)
    sizes = (finding.gap, finding.later_gap, finding.deviation)
    if any(size > limit for size in sizes):
        return UNEXPLAINED
    is_known = noise <= CEILINGS[dtype] and not math.isnan(finding.gap)
    return NEAR_TIE if is_known and not finding.is_bound else UNKNOWN
