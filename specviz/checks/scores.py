"""A target's log-probabilities of a text's new tokens: how far they lie apart, and how they change.
No model is known here, nor what a difference means.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from specviz.checks.branches import Branches
from specviz.record.schema import Array
from specviz.record.trace import Trace

Token = int | str  # an id, or the text of a token where no id is known
Place = Mapping[Token, float]  # the log-probabilities that are known at one place of a text
ENOUGH = 32  # changes from which a noise is measured: most of a few lie far below the largest
_LEAST = 1e-6  # a probability below this counts as 0


@dataclass(frozen=True, eq=False)
class TextScores:
    """Scores of M tokens of a text that was read as it stands.

    ids, logprobs: (M, k), of the k leading tokens, best first.
    chosen: (M,), the log-probabilities of the text's own tokens.
    """

    ids: Array
    logprobs: Array
    chosen: Array


@dataclass(frozen=True, eq=False)
class RecordedScores:
    """Scores that a run recorded when it emitted the M tokens of one request.

    ids, logprobs: (M, k), of the k leading tokens, best first.
    rounds: (M,), the round of each token; -1 where it is not recorded.
    """

    ids: Array
    logprobs: Array
    rounds: Array


def recorded_scores(trace: Trace) -> list[RecordedScores]:
    """Return the recorded scores of each request's output.

    A token counts where it was emitted, so its prefix is what was committed before.
    """
    rows, requests = trace.rows, trace.requests
    total = int(requests["output_offsets"][-1])
    k = rows["target_top_ids"].shape[-1]
    ids = np.full((total, k), -1)
    logprobs = np.full((total, k), np.nan)
    rounds = np.full(total, -1)
    prompt = np.diff(requests["prompt_offsets"])[rows["request"]]
    first = requests["output_offsets"][rows["request"]] + rows["length"] - prompt
    columns = Branches(trace).path  # (N, K+1)
    for j in range(rows["emitted"].shape[1]):
        is_kept = (rows["gained"] > j) & (columns[:, j] >= 0)
        at = first[is_kept] + j
        column = columns[is_kept, j]
        ids[at] = rows["target_top_ids"][is_kept, column]
        logprobs[at] = rows["target_top_logprobs"][is_kept, column]
        rounds[at] = rows["round"][is_kept]
    spans = pairwise(requests["output_offsets"])
    return [RecordedScores(ids[a:b], logprobs[a:b], rounds[a:b]) for a, b in spans]


def places_of(scores: TextScores | RecordedScores, stop: int | None = None) -> list[Place]:
    """Return the leading tokens of each place, best first, up to `stop`."""
    found: list[Place] = []
    for ids, values in zip(
        scores.ids[:stop].tolist(), scores.logprobs[:stop].tolist(), strict=True
    ):
        found.append({i: value for i, value in zip(ids, values, strict=True) if value == value})
    return found


def distance(place: Place, tokens: Sequence[Token]) -> tuple[float, bool] | None:
    """Return how far the least likely of `tokens` lies below the best one, and if that is a bound.

    A token that is not among the known ones has at most the probability that they leave, and at
    most that of the last of them. None where nothing is known.
    """
    if not place:
        return None
    left = max(1 - sum(math.exp(each) for each in place.values()), _LEAST)
    most = min([*place.values(), math.log(left)])
    lowest = min(place.get(token, most) for token in tokens)
    return max(place.values()) - lowest, any(token not in place for token in tokens)


def changes(before: Place, after: Place, *, bounds: bool = False) -> Iterator[float]:
    """Yield how much the log-probabilities of the two leading tokens change.

    Unlikely tokens change more, and decide nothing. With `bounds`, a token that `after` lacks has
    changed by the least that it can have.
    """
    for token in sorted(before, key=lambda token: -before[token])[:2]:
        if token in after and math.isfinite(before[token] - after[token]):
            yield abs(after[token] - before[token])
        elif after and token not in after and bounds:
            yield max(before[token] - min(after.values()), 0.0)
