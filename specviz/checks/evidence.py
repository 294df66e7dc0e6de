"""What is known of a divergence: from the log-probabilities that came with the texts, or from a
target that reads both texts as they stand (teacher forcing). What the candidate says of itself can
speak against a tie, but never for one.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from specviz.checks.audit.duo import Duo
from specviz.checks.audit.output import Output
from specviz.checks.equivalence import NOTHING, OTHER_CHOICE, RETURNED, TARGET, Evidence
from specviz.checks.scores import ENOUGH, Place, TextScores, changes, distance, places_of
from specviz.record.schema import Array

if TYPE_CHECKING:
    from specviz.checks.noise import Scoring


def examine(
    duo: Duo, target: "Scoring | None", *, trusts_reference: bool = False
) -> Evidence | None:
    """Return what is known of a difference; None where there is nothing to judge.

    Args:
        duo: both texts.
        target: reads them where they part. None takes their own log-probabilities.
        trusts_reference: the reference's text is taken for the target's, and not read.
    """
    if duo.is_parted:
        return _weigh(duo) if target is None else _force(target, duo, trusts_reference)
    if duo.known == NOTHING:
        return None
    violated = "" if duo.at is None else duo.candidate.violated_at(duo.at)
    return replace(duo.known, violated=violated)


def _weigh(duo: Duo) -> Evidence:
    """Return what both sides' own log-probabilities say of one divergence."""
    at = duo.at
    assert at is not None
    # Without a target it is not known whether an EOS may follow.
    unknown = replace(duo.known, is_open=duo.known.is_open or bool(duo.our_ends))
    if not duo.is_counted or at >= min(len(duo.ours), len(duo.theirs)):
        return _of_record(duo, unknown)
    tokens = duo.ours[at], duo.theirs[at]
    candidate, reference = duo.candidate, duo.reference
    own, other = (distance(_sound(side, at), tokens) for side in (candidate, reference))
    if own is None and other is None:
        return _of_record(duo, unknown)
    later = []
    for m in range(at + 1, len(duo.ours)):
        place = _sound(candidate, m)
        if duo.ours[m] in place:
            later.append((max(place.values()) - place[duo.ours[m]], m))
    later_gap, later_at = max(later, default=(math.nan, None))
    deviation = math.nan
    if candidate.is_recorded:
        deviation = _deviation(candidate, [_sound(reference, m) for m in range(at + 1)])
    elif own is not None and other is not None:
        # Both sides read the same prefix, so at a tie they say the same, whatever was chosen.
        best = (max(side.place(at).values()) for side in (candidate, reference))
        deviation = abs(next(best) - next(best))
    found = replace(
        unknown,
        gap=max(each[0] for each in (own, other) if each is not None),
        deviation=deviation,
        later_gap=later_gap,
        is_bound=other is None or other[1],
        candidate_gap=math.nan if own is None else own[0],
        reference_gap=math.nan if other is None else other[0],
        later_at=later_at,
        measured_from=RETURNED,
    )
    return _of_record(duo, found)


def _force(target: "Scoring", duo: Duo, trusts_reference: bool) -> Evidence:
    """Return what a target says of one divergence."""
    assert duo.at is not None
    at = duo.at
    below, scores = _read(target, duo, duo.ours, duo.our_ends)
    candidate = duo.candidate
    # What follows a violated invariant is located by it.
    later = below[at + 1 : None if candidate.violated_at(at) else candidate.sound]
    places = places_of(scores, at + 1)
    found = replace(
        duo.known,
        gap=float(below[at]),
        deviation=_deviation(candidate, places) if candidate.is_recorded else math.nan,
        later_gap=float(later.max()) if later.size else math.nan,
        candidate_gap=float(below[at]),
        later_at=int(later.argmax()) + at + 1 if later.size else None,
        measured_from=TARGET,
        is_end=at == len(duo.ours),
        is_retokenised=duo.is_retokenised,
    )
    if trusts_reference:
        other = distance(places[at], [duo.theirs[at]])
        assert other is not None
        found = replace(found, gap=max(found.gap, other[0]), is_bound=other[1])
    else:
        theirs, _ = _read(target, duo, duo.theirs, duo.their_ends)
        worst = int(theirs.argmax())
        found = replace(
            found,
            gap=max(found.gap, float(theirs[at])),
            reference_gap=float(theirs[at]),
            before=float(theirs[:at].max(initial=0)),
            below=float(theirs[worst]),
            below_at=worst,
            is_reference_end=at == len(duo.theirs),
        )
    return _of_record(duo, found)


def noise_of(duos: Sequence[Duo]) -> float:
    """Return the largest change of a leading token's log-probability from one side to the other.

    It is taken under equal prefixes, from what both sides say themselves. NaN if there are fewer
    than ENOUGH changes.
    """
    found: list[float] = []
    for duo in duos:
        if duo.is_counted:
            # Not where the texts part: a fault there would explain itself.
            stop = len(duo.ours) if duo.at is None else duo.at
            for m in range(min(stop, len(duo.ours), len(duo.theirs))):
                found += changes(_sound(duo.reference, m), _sound(duo.candidate, m))
    return max(found) if len(found) >= ENOUGH else math.nan


def noise_of_target(
    target: "Scoring", duos: Sequence[Duo], shapes: Iterable[tuple[int, int]]
) -> float:
    """Return the largest change of a log-probability that the shapes of the forwards make.

    It is measured in the references of diverging texts and, if those are few, in others.
    """
    # Imported here, so that records can be compared without torch.
    from specviz.checks.noise import measure_noise

    texts = []
    for duo in sorted(duos, key=lambda duo: (not duo.is_parted, duo.at is not None)):
        ids = [token for token in duo.theirs or duo.ours if isinstance(token, int)]
        limit = target.max_positions
        fits = limit is None or len(duo.prompt_ids or ()) + len(ids) <= limit
        if duo.prompt_ids and ids and fits:
            texts.append((duo.prompt_ids, ids))
    diverging = sum(duo.is_parted for duo in duos)
    return measure_noise(target, texts, sorted(set(shapes)), diverging=diverging)


def _of_record(duo: Duo, found: Evidence) -> Evidence:
    """Return the evidence with what the candidate's record says, if there is one."""
    candidate, at = duo.candidate, duo.at
    if not candidate.is_recorded or at is None:
        return found
    place = candidate.place(at)
    is_other = at < len(duo.ours) and place and max(place, key=lambda i: place[i]) != duo.ours[at]
    fault = OTHER_CHOICE if is_other else found.fault
    return replace(found, violated=candidate.violated_at(at), fault=fault)


def _sound(side: Output, m: int) -> Place:
    """Return what a side says of one place, nothing where its record was out of step."""
    return {} if side.violated_at(m) else side.place(m)


def _deviation(candidate: Output, places: Sequence[Place]) -> float:
    """Return how far a candidate's recorded log-probabilities lie from these."""
    pairs = ((place, candidate.place(m)) for m, place in enumerate(places))
    found = [change for pair in pairs for change in changes(*pair, bounds=True)]
    return max(found, default=math.nan)


def _read(
    target: "Scoring", duo: Duo, tokens: Sequence[object], ends: Sequence[int]
) -> tuple[Array, TextScores]:
    """Return how far each token of a text lies below the target's best one, (M,), and its scores.

    ends: if there are some, the likeliest one stands behind the text.
    """
    from specviz.checks.noise import score_text

    ids = [token for token in tokens if isinstance(token, int)]
    found = []
    for text in [[*ids, end] for end in ends] or [ids]:
        prompt = duo.prompt_ids or ()
        processors_of = getattr(target, "processors_of", None)  # a pair has none
        processors = processors_of(prompt, text) if processors_of else None
        scores = score_text(target, (prompt, text), processors=processors)
        found.append((scores.logprobs[:, 0] - scores.chosen, scores))
    return min(found, key=lambda each: float(each[0][-1]))
