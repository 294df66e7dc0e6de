"""Whether two runs wrote the same, and if not, whether rounding explains it: where they part, how close the decision was, how noisy it is.

Contract: plain lists of tokens, records, and what a target said of a text go in; numbers and a cause come out. Not known here: models.

A valid method of speculative decoding writes what the target alone writes, but for rounding: the shape of a forward changes the order
of its sums, and so the last bits of its logits. So a divergence is a *near tie* if rounding alone can have turned the choice, and if
nothing speaks against it:
1. the *gap*, from the target's best token to the lesser of the two chosen ones under the prefix that both runs share, is at most twice
   the *noise*, the change of a token's log-probability that a forward's shape makes: each of the two may be off by as much;
2. if the run was recorded: up to there its record violates no invariant, it chose what its own logits said, and its log-probabilities
   of the two leading tokens (the *deviation*) are nowhere further from the target's than twice the noise;
3. if the target could be asked about the rest of the run's text: up to the first violated invariant, if the run was recorded, no later
   token lies further below the best one (the *later gap*) than twice the noise: what computes the right thing chooses near-best tokens
   under its own prefix, too;
4. nowhere in the run is a divergence that noise does not explain and no violated invariant locates: what is wrong somewhere may be
   wrong anywhere, and a small gap is then no proof.
What contradicts 1 to 3 is *not explained by noise*; 4 leaves it *unknown*, and so does a gap or noise that could not be measured. Neither
is ever taken from what a broken state computed, which would explain itself. All are differences of log-probabilities, in natural units,
hence also of logits.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from specviz.checks.violations import Violation
from specviz.record.schema import PHASES, Array
from specviz.record.trace import Trace

NEAR_TIE, UNEXPLAINED, UNKNOWN = CAUSES = ("near tie", "not explained by noise", "unknown")

# No more noise is believed: where more is found, something else than rounding is at work. Far above what the embedded pair shows on a
# CPU, 0, 1.5e-5, 0.023 and 0.16 at the most between batch 1 and the shapes (1, 1), (8, 1), (1, 6), (8, 6) and (32, 6), by
#     measure_noise(sv.load_pair(dtype=dtype), texts, shapes, leading=5)
# with measure_noise from specviz.checks.noise, over 32 bundled prompts and 48 new tokens each.
CEILINGS = {"float64": 1e-5, "float32": 1e-3, "float16": 0.125, "bfloat16": 0.75}
_RESOLUTION = 1e-6  # of a log-probability in float32, as records and the choice of a token have it
_ACCEPT = PHASES.index("accept")


class Said(Protocol):
    """What a target said of M new tokens of a text: ids (M, k) of the leading tokens, best first, and their logprobs (M, k)."""

    @property
    def ids(self) -> Array: ...
    @property
    def logprobs(self) -> Array: ...


class Read(Said, Protocol):
    """The same of a text that was read as it stands; chosen (M,): the log-probabilities of its own tokens."""

    @property
    def chosen(self) -> Array: ...


@dataclass(frozen=True, eq=False)
class Recorded:
    """What a run's target said when it emitted the M tokens of one request, and in which round (M,): -1 where no record tells."""

    ids: Array
    logprobs: Array
    rounds: Array


@dataclass(frozen=True, eq=False)
class Outputs:
    """What a run was asked and wrote, a list entry per prompt; its record if there is one, and all violations found in there, in order."""

    meta: Mapping[str, Any]
    prompts: Sequence[Sequence[int]]
    budgets: Sequence[int]
    tokens: Sequence[Sequence[int]]
    trace: Trace | None
    found: Sequence[Violation] = ()

    @cached_property
    def records(self) -> list[Recorded] | None:
        return None if self.trace is None else recorded(self.trace)

    @cached_property
    def violations(self) -> dict[int, Violation]:
        """The first violation of each request that reaches its text; what is wrong in the draft's cache alone does not."""
        firsts: dict[int, Violation] = {}
        for violation in self.found:
            if violation.model != "draft" and violation.rule != "caches":
                firsts.setdefault(violation.request, violation)
        return firsts

    @property
    def first_violated(self) -> str:
        """The rule of the first violation of the run, "" if none."""
        return min(self.violations.values(), key=_when).rule if self.violations else ""

    def sound(self, request: int) -> Array:
        """Which of a request's recorded tokens (M,) were emitted before anything was violated."""
        assert self.records is not None
        rounds = self.records[request].rounds
        violation = self.violations.get(request)
        return (
            rounds >= 0
            if violation is None
            else (rounds >= 0) & (rounds * len(PHASES) + _ACCEPT < _when(violation))
        )

    def violated(self, request: int, at: int | None) -> str:
        """The first rule that a request violated before its token `at` was emitted, or at all; "" if none."""
        violation = self.violations.get(request)
        if violation is None or (
            at is not None and at < len(self.tokens[request]) and self.sound(request)[at]
        ):
            return ""
        return violation.rule


@dataclass(frozen=True)
class Evidence:
    """What is known of one divergence; NaN where nothing is.

    Attributes:
        gap, deviation, later_gap: see above.
        violated: the first rule that the run's record violates up to there, "" if none.
        plausible: False if one of the outputs simply ends, or if the run's own logits said something else than what it emitted.
    """

    gap: float = math.nan
    deviation: float = math.nan
    later_gap: float = math.nan
    violated: str = ""
    plausible: bool = True

    def cause(self, noise: float, ceiling: float) -> str:
        """NEAR_TIE, UNEXPLAINED or UNKNOWN; noise: NaN if it was not measured; ceiling: the most that is believed."""
        believed = noise <= ceiling
        limit = 2 * (max(noise, _RESOLUTION) if believed else ceiling)
        if (
            self.violated
            or not self.plausible
            or any(size > limit for size in (self.gap, self.deviation, self.later_gap))
        ):
            return UNEXPLAINED
        return NEAR_TIE if believed and not math.isnan(self.gap) else UNKNOWN


def divergence(tokens: Sequence[int], reference: Sequence[int]) -> int | None:
    """The first index at which two outputs differ, the end of the shorter one included; None if they are equal."""
    for m, (ours, theirs) in enumerate(zip(tokens, reference, strict=False)):
        if ours != theirs:
            return m
    return None if len(tokens) == len(reference) else min(len(tokens), len(reference))


def partial_match(tokens: Sequence[int], reference: Sequence[int]) -> float:
    """Length of the common prefix over the length of the reference, 1.0 for equal outputs: the partial match of arXiv 2510.22876."""
    at = divergence(tokens, reference)
    return 1.0 if at is None else at / max(len(reference), 1)


def recorded(trace: Trace) -> list[Recorded]:
    """What the target said of each request's output. A token counts where it was emitted, so its prefix is what was committed before."""
    rows, requests = trace.rows, trace.requests
    total, k = int(requests["output_offsets"][-1]), rows["target_top_ids"].shape[-1]
    ids, logprobs, rounds = np.full((total, k), -1), np.full((total, k), np.nan), np.full(total, -1)
    first = (
        rows["length"]
        - np.diff(requests["prompt_offsets"])[rows["request"]]
        + requests["output_offsets"][rows["request"]]
    )
    for j in range(rows["emitted"].shape[1]):
        kept = rows["gained"] > j
        at = first[kept] + j
        ids[at], logprobs[at] = (
            rows["target_top_ids"][kept, j],
            rows["target_top_logprobs"][kept, j],
        )
        rounds[at] = rows["round"][kept]
    spans = zip(requests["output_offsets"], requests["output_offsets"][1:], strict=False)
    return [Recorded(ids[a:b], logprobs[a:b], rounds[a:b]) for a, b in spans]


def changes(sound: Said, said: Said, stop: int) -> Array:
    """By how much the log-probabilities of the two leading tokens differ, (stop, 2); at least, where one is not among those `said`."""
    ids, before = sound.ids[:stop, :2], sound.logprobs[:stop, :2]
    same = ids[:, :, None] == said.ids[:stop, None, :]  # (stop, 2, k)
    now, least = (
        np.where(same, said.logprobs[:stop, None, :], -np.inf).max(-1),
        said.logprobs[:stop, -1:],
    )
    return np.where(same.any(-1), np.abs(now - before), np.maximum(before - least, 0))


def gap(sound: Said, at: int, tokens: Sequence[int]) -> float:
    """How far the last of `tokens` lies below the best one at `at`; at least, where it is not among the leading ones."""
    known = dict(zip(sound.ids[at].tolist(), sound.logprobs[at].tolist(), strict=True))
    return float(
        max(known.values()) - min(known.get(token, min(known.values())) for token in tokens)
    )


def evidence(
    result: Outputs, reference: Outputs, request: int, read: Read | None = None
) -> Evidence:
    """What is known of the first divergence of a request, whose outputs differ.

    read: what the target says of the result's text, computed apart from both runs; None takes the reference's record for it, up to the
        first violation in there.
    """
    ours, theirs = result.tokens[request], reference.tokens[request]
    at = divergence(ours, theirs)
    assert at is not None
    violated = result.violated(request, at)
    if at >= min(len(ours), len(theirs)):
        return Evidence(violated=violated, plausible=False)
    if result.meta["sampling"] is not None:
        return Evidence(violated=violated)
    record = None if result.records is None else result.records[request]
    plausible = record is None or record.rounds[at] < 0 or bool(record.ids[at, 0] == ours[at])
    sound: Said | None = read
    if sound is None and reference.records is not None and reference.sound(request)[at]:
        sound = reference.records[request]
    if sound is None:
        return Evidence(violated=violated, plausible=plausible)
    deviation = math.nan if record is None else _largest(changes(sound, record, at + 1))
    size, later = gap(sound, at, (ours[at], theirs[at])), math.nan
    if read is not None:
        below = read.logprobs[:, 0] - read.chosen  # (M,)
        promised = np.full(len(ours), True) if record is None else result.sound(request)
        size, later = max(size, float(below[at])), _largest(below[at + 1 :][promised[at + 1 :]])
    return Evidence(size, deviation, later, violated, plausible)


def settled(causes: Sequence[str], violated: Sequence[str]) -> list[str]:
    """The causes of a run's divergences, each seen in the light of the others: see 4 above. `violated`: "" where nothing is."""
    lost = any(
        cause == UNEXPLAINED and not rule for cause, rule in zip(causes, violated, strict=True)
    )
    return [UNKNOWN if lost and cause == NEAR_TIE else cause for cause in causes]


def noise_of_records(result: Outputs, reference: Outputs) -> float:
    """The largest change of a leading token's log-probability between two recorded runs, over all prefixes that both have, up to where
    one of them violates an invariant. NaN if there is none.
    """
    if result.records is None or reference.records is None:
        return math.nan
    found = []
    for request, (ours, theirs) in enumerate(zip(result.tokens, reference.tokens, strict=True)):
        at = divergence(ours, theirs)
        stop = min(len(ours), len(theirs)) if at is None else min(at + 1, len(ours), len(theirs))
        sound = result.sound(request)[:stop] & reference.sound(request)[:stop]
        found.append(
            _largest(changes(reference.records[request], result.records[request], stop)[sound])
        )
    return _largest(np.array(found))


def _largest(values: Array) -> float:
    return float(np.fmax.reduce(values, axis=None, initial=math.nan))


def _when(violation: Violation) -> int:
    """When a violation happened, as round * 5 + phase."""
    return int(violation.round) * len(PHASES) + PHASES.index(violation.phase)
