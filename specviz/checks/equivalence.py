"""Whether two texts are the same, and if not, whether rounding explains it: the rule of `compare`,
of `audit` and of the step-through.

A valid method of speculative decoding writes what the target alone writes, except for rounding: the
shape of a forward changes the order of its sums, and so the last bits of its logits. A divergence
is a *near tie* if rounding alone can have turned the choice, and if nothing speaks against that:
1. The *gap* is the distance from the target's best token to the lesser of the two chosen ones,
   under the prefix that both texts share. It is at most twice the *noise*, the change of a leading
   token's log-probability that a forward's shape makes, because each of the two may be off by as
   much. `largest_gap` allows 5 % more.
2. If the run was recorded: up to there its record violates no invariant, it chose what its own
   logits said, and the *deviation* of its log-probabilities of the two leading tokens from the
   target's is nowhere more than twice the noise.
3. If the target scored the rest of the text: no later token lies further below the best one (the
   *later gap*) than twice the noise. A correct run chooses near-best tokens under its own prefix,
   too. If the run was recorded, this holds up to the first violated invariant.
4. Nowhere in the run is a divergence that noise does not explain and that no violated invariant
   locates. A fault of unknown place may be anywhere, and a small gap is then no proof.
What contradicts 1 to 3 is *not explained by noise*; a violated invariant is, even where nothing
could be measured. What contradicts only 4 is *unknown*, and so is a divergence that contradicts
nothing and whose gap or noise could not be measured. Neither is taken from what a broken state
computed, which would explain itself. All are differences of log-probabilities, in natural units,
and hence also of logits.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

CAUSES = ("near tie", "not explained by noise", "unknown")
NEAR_TIE, UNEXPLAINED, UNKNOWN = CAUSES
TARGET, RETURNED = "target", "log-probabilities"  # what a gap is measured from

# Why a cause is what it is, where the numbers do not say it.
VIOLATED = "the run's record violates the invariant {!r}"
OTHER_CHOICE = "the run's own logits say another token"
NOT_MEASURED = "it is not known whether rounding explains the divergence"
OTHER_TOKENS = "texts that were read again may have had other tokens behind a near tie"
STOPPED = "the reference ends where this target goes on, as a stop string would end it"
FOREIGN = "the reference is not what this target writes"
OPEN_END = "neither a stated budget nor an EOS explains where a text ends"
DOUBTED = "a near tie, which proves nothing beside an unexplained divergence"

# More noise than this is not believed: something else than rounding is at work. The limits lie far
# above the noise of the embedded pair, which is 0.125 in figures/data/agreement-bfloat16.csv.
CEILINGS = {"float64": 1e-5, "float32": 1e-3, "float16": 0.125, "bfloat16": 0.75}
# The dtype with the most noise that is believed, for runs whose dtype is unknown.
LOOSEST = max(CEILINGS, key=lambda dtype: CEILINGS[dtype])
# One unit in the last place of a logit changes its log-probability by a little less, because the
# sum over all tokens changes, too; two such units are a gap that rounding explains.
_MARGIN = 1.05
_RESOLUTION = 1e-6  # of a log-probability in float32, as records and the choice of a token have it


@dataclass(frozen=True)
class Evidence:
    """What is known of one divergence. Sizes are NaN where nothing is.

    Attributes:
        gap, deviation, later_gap: see above.
        is_bound: whether the gap is known to be at least this large, and no more.
        candidate_gap, reference_gap: the gap of one side's token alone.
        later_at: index of the token with the later gap; None where unknown.
        before: the largest distance of an earlier token of the reference from the target's best.
        below, below_at: the same for all tokens of the reference, and where.
        measured_from: TARGET, RETURNED or "".
        violated: the first rule that the run's record violates up to there, "" if none.
        fault: what else is wrong, whatever the numbers say; "" if nothing.
        unjudged: why it cannot be judged, whatever the numbers say; "" if it can.
        is_end, is_reference_end: whether the text of the candidate or the reference ends there, so
            that its token is an EOS that it left out.
        is_open: whether it is not known what ended the candidate's text behind the divergence.
        is_retokenised: whether the tokens are those of a tokenizer that read the texts again.
    """

    gap: float = math.nan
    deviation: float = math.nan
    later_gap: float = math.nan
    is_bound: bool = False
    candidate_gap: float = math.nan
    reference_gap: float = math.nan
    later_at: int | None = None
    before: float = math.nan
    below: float = math.nan
    below_at: int | None = None
    measured_from: str = ""
    violated: str = ""
    fault: str = ""
    unjudged: str = ""
    is_end: bool = False
    is_reference_end: bool = False
    is_open: bool = False
    is_retokenised: bool = False


NOTHING = Evidence()


def judge(known: Evidence, noise: float, ceiling: float) -> tuple[str, str]:
    """Return NEAR_TIE, UNEXPLAINED or UNKNOWN, and why, where the sizes do not say it.

    Args:
        known: what is known of the divergence.
        noise: NaN if it was not measured.
        ceiling: the most noise that is believed; NaN where that is unknown.
    """
    limit = largest_gap(noise, ceiling)
    if known.violated or known.fault:
        return UNEXPLAINED, VIOLATED.format(known.violated) if known.violated else known.fault
    if known.unjudged:
        return UNKNOWN, known.unjudged
    if known.is_end and known.candidate_gap > limit:
        return UNEXPLAINED, ""
    if known.measured_from == TARGET and (known.before > limit or known.reference_gap > limit):
        is_stopped = known.is_reference_end and not known.before > limit
        return UNKNOWN, STOPPED if is_stopped else FOREIGN
    if known.is_retokenised and known.gap <= limit < known.later_gap:
        return UNKNOWN, OTHER_TOKENS
    if any(size > limit for size in (known.gap, known.deviation, known.later_gap)):
        return UNEXPLAINED, ""
    if math.isnan(known.gap) or known.is_bound or not noise <= ceiling:
        return UNKNOWN, NOT_MEASURED
    return (UNKNOWN, OPEN_END) if known.is_open else (NEAR_TIE, "")


def judge_all(
    known: Sequence[Evidence | None], noise: float, ceiling: float
) -> list[tuple[str, str]]:
    """Judge the texts of a run in the light of each other: 4 above. See `judge`.

    known: of each text; None where there is nothing to judge, which has the cause "".
    """
    found = [("", "") if each is None else judge(each, noise, ceiling) for each in known]
    if not any(
        cause == UNEXPLAINED and each is not None and not each.violated
        for each, (cause, _) in zip(known, found, strict=True)
    ):
        return found
    return [(UNKNOWN, DOUBTED) if cause == NEAR_TIE else (cause, why) for cause, why in found]


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


def partial_match(tokens: Sequence[object], reference: Sequence[object]) -> float:
    """Return the length of the common prefix over that of the reference, 1.0 for equal outputs.

    This is the partial match of arXiv 2510.22876.
    """
    at = divergence(tokens, reference)
    return 1.0 if at is None else at / max(len(reference), 1)
