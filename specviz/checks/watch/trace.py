"""Make a record of what was seen of a decoder, which all tables, checks and pictures read.

Contract: `to_trace` writes what was followed with a `TraceWriter`: forwards, the moves between
them, and rounds. A round is a forward of the target in which tokens were decided. Not known here:
models, and what is right.

A record has one cache for each model. A prompt that was read in another cache object than the batch
lies in a row of its own behind the batch's, and is moved from there.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

from specviz.checks.watch.caches import Place
from specviz.checks.watch.labels import Labels
from specviz.checks.watch.requests import Part, WatchedRequest, WatchedRound, parts_that_move
from specviz.checks.watch.rounds import Builder
from specviz.record.trace import Trace
from specviz.record.writer import TraceWriter


def to_trace(
    requests: Sequence[WatchedRequest],
    parts: Mapping[str, Sequence[Part]],
    labels: Labels,
    settings: Mapping[str, Any],
) -> Trace:
    """Return a record of what was followed.

    Args:
        requests: what became of each prompt.
        parts: the rows of all forwards, by model.
        labels: which token each one is that the target read.
        settings: arguments of `TraceWriter`, but for the prompts.
    """
    _check_beginnings(requests)
    decided = _decided(requests)
    by_place = {
        (verified.part.number, verified.part.row): verified
        for group in decided.values()
        for verified in group
    }
    by_forward = _by_forward([*parts["target"], *parts["draft"]])
    widest = max(len(verified.drafts) for verified in by_place.values())
    writer = TraceWriter(
        [request.prompt for request in requests],
        num_draft_tokens=max(widest, 1),
        budget=[max(len(request.output), 1) for request in requests],
        **settings,
    )
    builder = Builder(
        writer,
        requests,
        by_place,
        batch=1 + max(part.row for part in parts["target"]),
        labels=labels,
        widest=widest,
        admitting=_admitting(by_forward, by_place),
        moving=parts_that_move(by_forward),
        coming={**dict(pairwise(decided)), max(decided): -1},
        last=_last(by_forward),
    )
    for number, group in by_forward.items():
        builder.add(group[0].seen, group)
        if number in decided:
            builder.end_round(sorted(decided[number], key=lambda each: each.part.row))
    return writer.trace()


def _check_beginnings(requests: Sequence[WatchedRequest]) -> None:
    """Raise ValueError if a request's first tokens were read for another one."""
    for number, request in enumerate(requests):
        if all(part.index > 0 for part in request.parts):
            raise ValueError(
                f"request {number} goes on behind K/V that another request read, and a record has "
                "K/V of one request in a row"
            )


def _decided(requests: Sequence[WatchedRequest]) -> dict[int, list[WatchedRound]]:
    """Return what each forward that decided tokens verified, in the order of forwards."""
    found: dict[int, list[WatchedRound]] = {}
    for request in requests:
        for verified in request.rounds:
            found.setdefault(verified.part.number, []).append(verified)
    return dict(sorted(found.items()))


def _by_forward(parts: Sequence[Part]) -> dict[int, list[Part]]:
    """Return the rows of each forward, in the order of forwards."""
    found: dict[int, list[Part]] = {}
    for part in sorted(parts, key=lambda part: part.number):
        found.setdefault(part.number, []).append(part)
    return found


def _last(by_forward: Mapping[int, Sequence[Part]]) -> dict[tuple[str, int], int]:
    """Return the last forward of each model that read a request."""
    return {
        (part.seen.forward.model, part.request): number
        for number, group in by_forward.items()
        for part in group
    }


def _admitting(by_forward: Mapping[int, Sequence[Part]], verified: Collection[Place]) -> set[int]:
    """Return the target's forwards before which, in the same round, it read prompts."""
    found: set[int] = set()
    has_read = False
    for number, group in by_forward.items():
        if group[0].seen.forward.model != "target":
            continue
        if any((number, part.row) in verified for part in group):
            found |= {number} if has_read else set()
            has_read = False
        elif any(part.request >= 0 for part in group):
            has_read = True
    return found
