"""Shares with their intervals, and whether a candidate diverges more than a control.

Contract: counts and flags go in, numbers come out. Not known here: outputs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import binomtest

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Share:
    """A count of a total, and Wilson's interval of the share (E. B. Wilson, 1927).

    Attributes:
        count, total: the share is count / total.
        low, high: the interval at CONFIDENCE; NaN where the total is 0, as is the share.
    """

    count: int
    total: int
    low: float
    high: float

    @property
    def share(self) -> float:
        return self.count / self.total if self.total else math.nan


def share_of(count: int, total: int) -> Share:
    """Return the share of `count` in `total` with its interval."""
    if not total:
        return Share(0, 0, math.nan, math.nan)
    interval = binomtest(count, total).proportion_ci(CONFIDENCE, method="wilson")
    return Share(count, total, float(interval.low), float(interval.high))


@dataclass(frozen=True)
class Control:
    """The candidate's divergences against those of the reference in another batch.

    Attributes:
        candidate, control: how many prompts of each diverge from the reference.
        candidate_only, control_only: prompts where one of the two diverges and the other does not.
        p_value: of McNemar's exact test, one-sided: the chance of as many `candidate_only` or more
            if both diverge equally often.
    """

    candidate: Share
    control: Share
    candidate_only: int
    control_only: int
    p_value: float

    @property
    def is_more(self) -> bool:
        """Whether the candidate diverges more often than chance explains."""
        return self.p_value < 1 - CONFIDENCE


def against_control(candidate: Sequence[bool], control: Sequence[bool]) -> Control:
    """Compare which prompts diverge, for the candidate and for the control, prompt by prompt.

    The prompts are the same, and some are closer to a tie than others. So the test is McNemar's for
    pairs, which counts only the prompts where the two differ; Fisher's would take the prompts of
    both for independent draws.
    """
    pairs = list(zip(candidate, control, strict=True))
    ours = sum(a and not b for a, b in pairs)
    theirs = sum(b and not a for a, b in pairs)
    p_value = 1.0
    if ours + theirs:
        p_value = float(binomtest(ours, ours + theirs, alternative="greater").pvalue)
    count = len(pairs)
    return Control(
        share_of(sum(candidate), count), share_of(sum(control), count), ours, theirs, p_value
    )
