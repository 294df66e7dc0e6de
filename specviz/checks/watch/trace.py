"""Make a record of what was seen of a decoder, which all tables, checks and pictures read.

Contract: `to_trace` writes what was followed with a `TraceWriter`: forwards, the moves between
them, and rounds. A round is a forward of the target in which tokens were decided. Not known here:
models, and what is right.

A record has one cache for each model. A prompt that was read in another cache object than the batch
lies in a row of its own behind the batch's, and is moved from there.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from specviz.checks.watch.caches import Caches, Place
from specviz.checks.watch.origins import SeenForward
from specviz.checks.watch.requests import Part, WatchedRequest, WatchedRound, choices
from specviz.record.given import RoundEnd
from specviz.record.schema import PHASES
from specviz.record.trace import Trace
from specviz.record.writer import TraceWriter

BEFORE = "before"  # of moves before the first forward of a round


def to_trace(
    requests: Sequence[WatchedRequest],
    parts: Mapping[str, Sequence[Part]],
    settings: Mapping[str, Any],
    states: Mapping[str, Mapping[Place, tuple[int, int]]],
    *,
    has_choices: bool = True,
) -> Trace:
    """Return a record of what was followed.

    Args:
        requests: what became of each prompt.
        parts: the rows of all forwards, by model.
        settings: arguments of `TraceWriter`, but for the prompts.
        states: by model, forward and row, the token whose states the row went on from, as request
            and index. A model is left out if it has no states, or they are not known.
        has_choices: whether the best tokens of the target's logits are what it chose.
    """
    for number, request in enumerate(requests):
        if all(part.index > 0 for part in request.parts):
            raise ValueError(
                f"request {number} goes on behind K/V that another request read, and a record has "
                "K/V of one request in a row"
            )
    by_forward: dict[int, list[Part]] = {}
    for part in sorted([*parts["target"], *parts["draft"]], key=lambda part: part.number):
        by_forward.setdefault(part.number, []).append(part)
    builder = _Builder(
        requests, by_forward, 1 + max(part.row for part in parts["target"]), settings, states,
        has_choices=has_choices,
    )  # fmt: skip
    for group in by_forward.values():
        builder.add(group)
    return builder.writer.trace()


class _Builder:
    """Writes forwards, moves and rounds."""

    def __init__(
        self,
        requests: Sequence[WatchedRequest],
        by_forward: Mapping[int, Sequence[Part]],
        batch: int,
        settings: Mapping[str, Any],
        states: Mapping[str, Mapping[Place, tuple[int, int]]],
        *,
        has_choices: bool,
    ) -> None:
        self._requests = requests
        self._states = states
        self._has_choices = has_choices
        self._batch = batch
        self._verified = {each.part.place: each for request in requests for each in request.rounds}
        self._widest = max(len(verified.drafts) for verified in self._verified.values())
        self._moving = _parts_that_move(by_forward)
        last = {
            (part.seen.forward.model, part.request): number
            for number, group in by_forward.items()
            for part in group
        }
        self._caches = Caches(batch, len(requests), last, self._read_again)
        self._waiting: list[tuple[str, Callable[..., None], dict[str, Any]]] = []
        self._drafted: dict[int, int] = {}  # {request: what its draft has read}
        self._decided: set[int] = set()  # requests of the last round
        self._has_drafts = False  # whether the draft phase of the round has begun
        self.writer = TraceWriter(
            [request.prompt for request in requests],
            num_draft_tokens=max(self._widest, 1),
            budget=[max(len(request.output), 1) for request in requests],
            **settings,
        )

    def add(self, parts: Sequence[Part]) -> None:
        """Add one forward and its rows, and the end of the round if tokens were decided."""
        known = [part for part in parts if part.request >= 0]
        if known:
            self._add(known[0].seen, known)
        decided = [self._verified[part.place] for part in parts if part.place in self._verified]
        if decided:
            self._end_round(decided)

    def _add(self, seen: SeenForward, parts: Sequence[Part]) -> None:
        is_target = seen.forward.model == "target"
        rows = {part.row: self._row(part) for part in parts}
        begun = "draft" if self._has_drafts and not is_target else "schedule"
        self._moves(seen, parts, rows, begun)
        # One forward may hold prompts of new rows and drafts of others: two phases of a record.
        early: list[tuple[Part, list[int]]] = []
        late: list[tuple[Part, list[int]]] = []
        for part in parts:
            first, count = self._first_decided(part), self._count(part)
            early.append((part, [i for i in range(count) if part.index + i < first]))
            late.append((part, [i for i in range(count) if part.index + i >= first]))
            if not is_target:
                self._drafted[part.request] = part.index + count
        self._forward(seen, early, rows, begun)
        self._forward(seen, late, rows, "verify" if is_target else "draft")
        self._has_drafts |= not is_target and any(places for _, places in late)

    def _end_round(self, decided: Sequence[WatchedRound]) -> None:
        # The phases of a record have an order. A decoder may read a prompt when it verifies.
        for phase in (BEFORE, *PHASES):
            for when, call, given in self._waiting:
                if when == phase:
                    call(**given)
        self._waiting.clear()
        self._has_drafts = False
        self._decided = {verified.part.request for verified in decided}
        known = [choices(verified) for verified in decided]
        # A record has choices for all rows of a round or for none.
        is_known = self._has_choices and all(
            len(found) == len(verified.drafts) + 1
            for found, verified in zip(known, decided, strict=True)
        )
        self.writer.round(
            RoundEnd(
                rows=[verified.part.row for verified in decided],
                requests=[verified.part.request for verified in decided],
                drafts=[verified.drafts for verified in decided],
                accepted=[verified.accepted for verified in decided],
                emitted=[self._emitted(verified) for verified in decided],
                finished=[verified.is_last for verified in decided],
                discarded=[self._discarded(verified) for verified in decided],
                choices=known if is_known else None,
            )
        )

    def _emitted(self, verified: WatchedRound) -> list[int]:
        first = verified.pending + 1
        return self._requests[verified.part.request].tokens[first : first + verified.gained]

    def _discarded(self, verified: WatchedRound) -> int:
        """Return how many right tokens were thrown away; what lies behind the text is none."""
        left = len(self._requests[verified.part.request].tokens) - 1 - verified.pending
        right = min(verified.matched + 1, left)
        return 0 if verified.is_last else max(right - verified.gained, 0)

    def _row(self, part: Part) -> int:
        """Return the row of the record's cache that a part uses."""
        request = self._requests[part.request]
        is_prompt = part.index + len(part.columns) <= len(request.prompt)
        is_decided = part.place in self._verified or self._is_read_again(part)
        if is_prompt and not is_decided and part.place in self._moving:
            return self._batch + part.request
        # Read alone and from the first token on: drafts of the row that is verified next.
        seen = part.seen
        is_alone = seen.forward.model == "draft" and part.index == 0 and len(seen.tokens) == 1
        coming = request.after(part.number) if is_alone else None
        return coming.part.row if coming else part.row

    def _read_again(self, part: Part) -> list[int]:
        """Return the slots of committed tokens that a draft model reads again."""
        coming = self._requests[part.request].after(part.number)
        again = part.columns[: max(coming.pending - part.index, 0)] if coming else []
        return [int(part.seen.slots[part.row, column]) for column in again]

    def _is_read_again(self, part: Part) -> bool:
        """Return whether the draft model has read the first token of a part before."""
        is_draft = part.seen.forward.model == "draft"
        return is_draft and part.index < self._drafted.get(part.request, 0)

    def _count(self, part: Part) -> int:
        """Return how many tokens of a part can be noted: no drafts behind those of the round."""
        count = len(part.columns)
        request = self._requests[part.request]
        if part.seen.forward.model == "target":
            return 0 if any(part is each for each in request.idle) else count
        coming = request.after(part.number)
        pending = coming.pending if coming else -1
        return max(min(count, pending + self._widest + 1 - part.index), 0)

    def _first_decided(self, part: Part) -> int:
        """Return the index from which on the tokens of a part belong to a round."""
        none = part.index + len(part.columns)
        if part.seen.forward.model == "target":
            verified = self._verified.get(part.place)
            return none if verified is None else verified.pending
        if part.seen.forward.top_ids is None:  # no logits, so nothing was drafted
            return none
        if self._is_read_again(part):
            return part.index
        return len(self._requests[part.request].prompt) - 1

    def _moves(
        self, seen: SeenForward, parts: Sequence[Part], rows: Mapping[int, int], phase: str
    ) -> None:
        """Note what was moved since the forward before: where K/V lies in another place now."""
        model = seen.forward.model
        going_on = [part for part in parts if part.request in self._decided]
        others = [part for part in parts if part.request not in self._decided]
        is_first = all(
            given["model"] != model and (when != "schedule" or given["model"] != "target")
            for when, _, given in self._waiting
        )
        groups = {BEFORE: going_on, phase: others} if is_first else {phase: [*others, *going_on]}
        found = self._caches.moves(seen, list(groups.values()), rows)
        for when, moved in zip(groups, found, strict=True):
            for each in moved:
                given = {**each, "phase": None if when == BEFORE else when}
                self._waiting.append((when, self.writer.move, given))

    def _forward(
        self,
        seen: SeenForward,
        chosen: Sequence[tuple[Part, list[int]]],
        rows: Mapping[int, int],
        phase: str,
    ) -> None:
        """Write the chosen tokens of one forward."""
        chosen = [(part, places) for part, places in chosen if places]
        if not chosen:
            return
        model = seen.forward.model
        indices = np.full((len(chosen), seen.tokens.shape[1]), -1)
        for i, (part, places) in enumerate(chosen):
            for place in places:
                column = part.columns[place]
                indices[i, column] = part.index + place
                slot = int(seen.slots[part.row, column])
                mark = int(seen.own_marks[part.row, column])
                self._caches.put(model, (rows[part.row], slot), mark)
        own = [part.row for part, _ in chosen]
        given = {
            "model": model,
            "rows": [rows[row] for row in own],
            "requests": [part.request for part, _ in chosen],
            "tokens": seen.tokens[own],
            "indices": indices,
            "positions": np.maximum(seen.positions[own], 0),
            "slots": np.maximum(seen.slots[own], 0),
            "visible": seen.seen[own],
            "phase": phase,
        }
        if model in self._states:
            given["states"] = [
                (part.request, part.index + places[0] - 1)
                if places[0]  # what its own forward read before
                else self._states[model][part.place]
                for part, places in chosen
            ]
        self._waiting.append((phase, self.writer.forward, given))


def _parts_that_move(by_forward: Mapping[int, Sequence[Part]]) -> set[Place]:
    """Return (forward, row) of the parts whose request its model reads next somewhere else.

    That is in another cache or in another row, or in the same one after another request was there.
    """
    of_request: dict[tuple[str, int], Part] = {}
    of_row: dict[tuple[str, int], Part] = {}
    found = set()
    # From the end, so that a request's next part is known when one is reached.
    for number in sorted(by_forward, reverse=True):
        known = [part for part in by_forward[number] if part.request >= 0]
        for part in known:
            model = part.seen.forward.model
            after = of_request.get((model, part.request))
            if after is None:
                continue
            stays = after.seen.forward.cache == part.seen.forward.cache
            if not stays or of_row.get((model, part.row)) is not after:
                found.add(part.place)
        for part in known:
            model = part.seen.forward.model
            of_request[model, part.request] = of_row[model, part.row] = part
    return found
