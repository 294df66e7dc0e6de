"""A target's scores of a text's new tokens: its leading choices and their log-probabilities.

Contract: arrays and records in, arrays out. Not known here: models, and what a difference means.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from specviz.checks.branches import Branches
from specviz.record.schema import Array
from specviz.record.trace import Trace


@dataclass(frozen=True, eq=False)
class Scores:
    """A target's k leading choices at M new tokens: ids (M, k), best first; logprobs (M, k)."""

    ids: Array
    logprobs: Array


@dataclass(frozen=True, eq=False)
class TextScores(Scores):
    """Scores of a text that was read as it stands.

    chosen: (M,), the log-probabilities of the text's own tokens.
    """

    chosen: Array


@dataclass(frozen=True, eq=False)
class RecordedScores(Scores):
    """Scores that a run recorded when it emitted the M tokens of one request.

    rounds: (M,), the round of each token; -1 where it is not recorded.
    """

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


def logprob_changes(scores: Scores, other: Scores, stop: int) -> Array:
    """Return how much the log-probabilities of the two leading tokens differ, (stop, 2).

    Where one of them is not among those of `other`, it is the least that they can differ.
    """
    ids = scores.ids[:stop, :2]
    before = scores.logprobs[:stop, :2]
    is_same = ids[:, :, None] == other.ids[:stop, None, :]  # (stop, 2, k)
    now = np.where(is_same, other.logprobs[:stop, None, :], -np.inf).max(-1)
    lowest = other.logprobs[:stop, -1:]
    return np.where(is_same.any(-1), np.abs(now - before), np.maximum(before - lowest, 0))


def gap(scores: Scores, at: int, tokens: Sequence[int]) -> float:
    """Return how far the least likely of `tokens` lies below the best one at `at`.

    Where it is not among the leading tokens, it is the least that it can lie below.
    """
    known = dict(zip(scores.ids[at].tolist(), scores.logprobs[at].tolist(), strict=True))
    lowest = min(known.values())
    return float(max(known.values()) - min(known.get(token, lowest) for token in tokens))
