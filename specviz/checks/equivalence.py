"""Whether two runs wrote the same, and if not, whether rounding explains it.

Contract: plain lists of tokens, records, and a target's scores of a text go in; numbers and a cause
come out. Not known here: models.

A valid method of speculative decoding writes what the target alone writes, except for rounding: the
shape of a forward changes the order of its sums, and so the last bits of its logits. A divergence
is a *near tie* if rounding alone can have turned the choice, and if nothing speaks against that:
1. The *gap* is the distance from the target's best token to the lesser of the two chosen ones,
   under the prefix that both runs share. It is at most twice the *noise*, the change of a token's
   log-probability that a forward's shape makes, because each of the two may be off by as much.
   `largest_gap` allows 5 % more.
2. If the run was recorded: up to there its record violates no invariant, it chose what its own
   logits said, and the *deviation* of its log-probabilities of the two leading tokens from the
   target's is nowhere more than twice the noise.
3. If the target scored the rest of the run's text: no later token lies further below the best one
   (the *later gap*) than twice the noise. A correct run chooses near-best tokens under its own
   prefix, too. If the run was recorded, this holds up to the first violated invariant.
4. Nowhere in the run is a divergence that noise does not explain and that no violated invariant
   locates. A fault of unknown place may be anywhere, and a small gap is then no proof.
What contradicts 1 to 3 is *not explained by noise*; a violated invariant is, even where nothing
could be measured. What contradicts only 4 is *unknown*, and so is a divergence that contradicts
nothing and whose gap or noise could not be measured. Neither is taken from what a broken state
computed, which would explain itself. All are differences of log-probabilities, in natural units,
and hence also of logits.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from specviz.checks.scores import (
    RecordedScores,
    Scores,
    TextScores,
    gap,
    logprob_changes,
    recorded_scores,
)
from specviz.checks.violations import Violation
from specviz.record.schema import PHASES, Array
from specviz.record.trace import Trace

CAUSES = ("near tie", "not explained by noise", "unknown")
NEAR_TIE, UNEXPLAINED, UNKNOWN = CAUSES

# More noise than this is not believed: something else than rounding is at work. The limits lie far
# above the noise of the embedded pair, which is 0.125 in figures/data/agreement-bfloat16.csv.
CEILINGS = {"float64": 1e-5, "float32": 1e-3, "float16": 0.125, "bfloat16": 0.75}
# One unit in the last place of a logit changes its log-probability by a little less, because the
# sum over all tokens changes, too; two such units are a gap that rounding explains.
_MARGIN = 1.05
_RESOLUTION = 1e-6  # of a log-probability in float32, as records and the choice of a token have it
_ACCEPT = PHASES.index("accept")


@dataclass(frozen=True, eq=False)
class Outputs:
    """A run's prompts and outputs, an entry per prompt.

    Attributes:
        trace: its record, if there is one.
        found: all violations in the record, in order.
    """

    meta: Mapping[str, Any]
    prompts: Sequence[Sequence[int]]
    budgets: Sequence[int]
    tokens: Sequence[Sequence[int]]
    trace: Trace | None
    found: Sequence[Violation] = ()

    @cached_property
    def scores(self) -> list[RecordedScores] | None:
        """The recorded scores of each request; None without a record."""
        return None if self.trace is None else recorded_scores(self.trace)

    @cached_property
    def violations(self) -> dict[int, Violation]:
        """The first violation of each request that can change its text.

        What is wrong in the draft's cache alone cannot.
        """
        firsts: dict[int, Violation] = {}
        for violation in self.found:
            if violation.model != "draft" and violation.rule != "caches":
                firsts.setdefault(violation.request, violation)
        return firsts

    @property
    def first_violated(self) -> str:
        """The rule of the first violation of the run, "" if none."""
        return min(self.violations.values(), key=_stage).rule if self.violations else ""

    def is_whole(self, request: int) -> bool:
        """Return whether a request's text ended by itself, and not because the run did."""
        status = dict(enumerate(self.meta.get("status", ())))  # older records lack it
        return status.get(request) not in ("interrupted", "elsewhere")

    def sound(self, request: int) -> Array:
        """Return which of a request's recorded tokens (M,) were emitted before any violation."""
        assert self.scores is not None
        rounds = self.scores[request].rounds
        violation = self.violations.get(request)
        if violation is None:
            return rounds >= 0
        return (rounds >= 0) & (rounds * len(PHASES) + _ACCEPT < _stage(violation))

    def violated(self, request: int, at: int | None) -> str:
        """Return the first rule that a request violated, "" if none.

        at: the token before whose emission it must have been violated; None for any time.
        """
        violation = self.violations.get(request)
        if violation is None:
            return ""
        if at is not None and at < len(self.tokens[request]) and self.sound(request)[at]:
            return ""
        return violation.rule


@dataclass(frozen=True)
class Evidence:
    """What is known of one divergence; NaN where nothing is.

    Attributes:
        gap, deviation, later_gap: see above.
        violated: the first rule that the run's record violates up to there, "" if none.
        plausible: False if one of the outputs simply ends, and its run was not interrupted, or if
            the run's own logits said something else than what it emitted.
    """

    gap: float = math.nan
    deviation: float = math.nan
    later_gap: float = math.nan
    violated: str = ""
    plausible: bool = True

    def cause(self, noise: float, ceiling: float) -> str:
        """Return NEAR_TIE, UNEXPLAINED or UNKNOWN.

        Args:
            noise: NaN if it was not measured.
            ceiling: the most noise that is believed.
        """
        limit = largest_gap(noise, ceiling)
        is_beyond = any(size > limit for size in (self.gap, self.deviation, self.later_gap))
        if self.violated or not self.plausible or is_beyond:
            return UNEXPLAINED
        return NEAR_TIE if noise <= ceiling and not math.isnan(self.gap) else UNKNOWN


def largest_gap(noise: float, ceiling: float) -> float:
    """Return the largest gap that this noise explains; that of the most believed noise beyond it.

    noise: NaN if it was not measured.
    """
    if not noise <= ceiling:
        return 2 * ceiling
    return min(2 * _MARGIN * max(noise, _RESOLUTION), 2 * ceiling)


def divergence(tokens: Sequence[object], reference: Sequence[object]) -> int | None:
    """Return the first index at which two outputs differ; None if they are equal.

    The end of the shorter one is a difference.
    """
    for m, (ours, theirs) in enumerate(zip(tokens, reference, strict=False)):
        if ours != theirs:
            return m
    return None if len(tokens) == len(reference) else min(len(tokens), len(reference))


def partial_match(tokens: Sequence[int], reference: Sequence[int]) -> float:
    """Return the length of the common prefix over that of the reference, 1.0 for equal outputs.

    This is the partial match of arXiv 2510.22876.
    """
    at = divergence(tokens, reference)
    return 1.0 if at is None else at / max(len(reference), 1)


def evidence(
    result: Outputs, reference: Outputs, request: int, scores: TextScores | None = None
) -> Evidence:
    """Return what is known of the first divergence of a request, whose outputs differ.

    Args:
        result, reference: both runs.
        request: number of the prompt.
        scores: the target's scores of the result's text, computed apart from both runs. None takes
            the reference's record for it, up to the first violation in there.
    """
    ours, theirs = result.tokens[request], reference.tokens[request]
    at = divergence(ours, theirs)
    assert at is not None
    violated = result.violated(request, at)
    if at >= min(len(ours), len(theirs)):
        shorter = result if at == len(ours) else reference
        return Evidence(violated=violated, plausible=not shorter.is_whole(request))
    if result.meta["sampling"] is not None:
        return Evidence(violated=violated)
    record = None if result.scores is None else result.scores[request]
    # A run that did not emit its own best token was not turned by rounding.
    plausible = record is None or record.rounds[at] < 0 or bool(record.ids[at, 0] == ours[at])
    trusted: Scores | None = scores
    if trusted is None and reference.scores is not None and reference.sound(request)[at]:
        trusted = reference.scores[request]
    if trusted is None:
        return Evidence(violated=violated, plausible=plausible)
    deviation = math.nan if record is None else _largest(logprob_changes(trusted, record, at + 1))
    size = gap(trusted, at, (ours[at], theirs[at]))
    later_gap = math.nan
    if scores is not None:
        below = scores.logprobs[:, 0] - scores.chosen  # (M,)
        is_sound = np.full(len(ours), True) if record is None else result.sound(request)
        # The result's token may lie below the best one by more than the two tokens differ.
        size = max(size, float(below[at]))
        # A near tie must not hide a fault that shows only afterwards.
        later_gap = _largest(below[at + 1 :][is_sound[at + 1 :]])
    return Evidence(size, deviation, later_gap, violated, plausible)


def doubt_near_ties(causes: Sequence[str], violated: Sequence[str]) -> list[str]:
    """Return the causes of a run's divergences, each in the light of the others: see 4 above.

    violated: the first violated rule of each, "" if none.
    """
    has_unlocated_fault = any(
        cause == UNEXPLAINED and not rule for cause, rule in zip(causes, violated, strict=True)
    )
    if not has_unlocated_fault:
        return list(causes)
    return [UNKNOWN if cause == NEAR_TIE else cause for cause in causes]


def noise_of_records(result: Outputs, reference: Outputs) -> float:
    """Return the largest change of a leading token's log-probability between two recorded runs.

    It is taken over all prefixes that both have, up to where one of them violates an invariant; NaN
    if there is none.
    """
    if result.scores is None or reference.scores is None:
        return math.nan
    largest = []
    for request, (ours, theirs) in enumerate(zip(result.tokens, reference.tokens, strict=True)):
        at = divergence(ours, theirs)
        shorter = min(len(ours), len(theirs))
        # At the divergence itself the prefixes are still equal, so its scores compare too.
        stop = shorter if at is None else min(at + 1, shorter)
        is_sound = result.sound(request)[:stop] & reference.sound(request)[:stop]
        changes = logprob_changes(reference.scores[request], result.scores[request], stop)
        largest.append(_largest(changes[is_sound]))
    return _largest(np.array(largest))


def _largest(values: Array) -> float:
    """Return the largest of values that are not NaN, NaN if there is none."""
    return float(np.fmax.reduce(values, axis=None, initial=math.nan))


def _stage(violation: Violation) -> int:
    """Return when a violation happened, as round * 5 + phase."""
    return int(violation.round) * len(PHASES) + PHASES.index(violation.phase)
