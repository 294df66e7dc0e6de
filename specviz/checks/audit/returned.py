"""What the log-probabilities that came with the outputs say of divergences, without a model.

Contract: outputs go in, findings and a noise come out. The reference's own numbers decide; what the
candidate says of itself can speak against a tie, but never for one.
"""

import math
from collections.abc import Iterator, Sequence

from specviz.checks.audit.duo import Duo
from specviz.checks.audit.output import Output, Token
from specviz.checks.audit.verdicts import Finding

_LEAST = 1e-6  # a probability below this counts as 0
_ENOUGH = 32  # log-probabilities from which a noise is measured


def weigh(duo: Duo) -> Finding:
    """Return what both sides' log-probabilities say of one divergence."""
    at = duo.at
    assert at is not None
    if not duo.is_counted or at >= min(len(duo.ours), len(duo.theirs)):
        return Finding()
    ours, theirs = duo.ours[at], duo.theirs[at]
    own = _distance(duo.candidate, at, (ours, theirs))
    other = _distance(duo.reference, at, (theirs, ours))
    if other is None and own is None:
        return Finding()
    gaps = [each[0] for each in (own, other) if each is not None]
    is_bound = other is None or other[1]
    later = _later(duo.candidate, at)
    return Finding(
        max(gaps),
        is_bound,
        math.nan if own is None else own[0],
        math.nan if other is None else other[0],
        later_gap=later[0],
        later_at=later[1],
        deviation=_deviation(duo, at),
        measured_from="log-probabilities",
    )


def _later(output: Output, at: int) -> tuple[float, int | None]:
    """Return the largest distance of a later token from the best one, as the output says."""
    tokens = output.tokens or ()
    found: list[tuple[float, int | None]] = []
    for place in range(at + 1, len(tokens)):
        known = _known(output, place)
        if tokens[place] in known:
            found.append((max(known.values()) - known[tokens[place]], place))
    return max(found, default=(math.nan, None))


def _deviation(duo: Duo, at: int) -> float:
    """Return how far the best tokens' log-probabilities of both sides differ at one place.

    Both sides read the same prefix there, so at a tie they are alike, whatever was chosen.
    """
    ours, theirs = _known(duo.candidate, at), _known(duo.reference, at)
    if not ours or not theirs:
        return math.nan
    return abs(max(ours.values()) - max(theirs.values()))


def _distance(output: Output, at: int, tokens: tuple[Token, Token]) -> tuple[float, bool] | None:
    """Return how far the lesser of two tokens lies below the best one, and if that is a bound.

    A token that is not among the known ones has at most the probability that they leave, and at
    most that of the last of them.
    """
    known = _known(output, at)
    if not known:
        return None
    best = max(known.values())
    left = max(1 - sum(math.exp(each) for each in known.values()), _LEAST)
    most = min([*known.values(), math.log(left)])
    lowest = min(known.get(token, most) for token in tokens)
    return best - lowest, any(token not in known for token in tokens)


def _known(output: Output, at: int) -> dict[Token, float]:
    """Return the known log-probabilities at one place, with the written token's among them."""
    known: dict[Token, float] = {}
    if output.candidates is not None:
        known.update(output.candidates[at])
    if output.logprobs is not None and output.tokens is not None:
        known.setdefault(output.tokens[at], output.logprobs[at])
    return {token: value for token, value in known.items() if not math.isnan(value)}


def noise_between(duos: Sequence[Duo]) -> float:
    """Return the largest change of a log-probability between both sides, under equal prefixes.

    NaN if there are fewer than _ENOUGH: most changes of a few are far below the largest.
    """
    changes = [change for duo in duos for change in _changes(duo)]
    return max(changes) if len(changes) >= _ENOUGH else math.nan


def _changes(duo: Duo) -> Iterator[float]:
    if not duo.is_counted:
        return
    # Not where the texts part: a fault there would explain itself.
    stop = len(duo.ours) if duo.at is None else duo.at
    stop = min(stop, len(duo.ours), len(duo.theirs))
    for at in range(stop):
        ours = _known(duo.candidate, at)
        theirs = _known(duo.reference, at)
        # The leading two: the noise of unlikely tokens is larger and decides nothing.
        leading = sorted(theirs, key=lambda token: -theirs[token])[:2]
        for token in leading:
            if token in ours and math.isfinite(ours[token]) and math.isfinite(theirs[token]):
                yield abs(ours[token] - theirs[token])
