"""Write what was followed as rounds: forwards, the moves between them, and what was decided.

Contract: `Builder` takes forwards in order, and the places where a round ends. A decoder may read a
prompt when it verifies; the phases of a record have an order, so calls wait for the round's end.
Not known here: models, and what is right.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from specviz.checks.watch.caches import Caches, Place
from specviz.checks.watch.labels import Labels
from specviz.checks.watch.origins import SeenForward
from specviz.checks.watch.requests import Part, WatchedRequest, WatchedRound, choices
from specviz.record.given import RoundEnd
from specviz.record.schema import PHASES
from specviz.record.writer import TraceWriter

BEFORE = "before"  # of moves before the first forward of a round


@dataclass
class Builder:
    """Writes forwards, moves and rounds.

    Attributes:
        writer: takes them.
        requests: what the target read.
        verified: {(forward, row): what was verified there}.
        batch: rows of the largest batch.
        labels: which token each one is that the target read.
        widest: the most drafts of a round.
        admitting: forwards of the target in whose rounds prompts were read before them.
        moving: rows of forwards whose request is read elsewhere next.
        coming: {forward that decided: the next one that did}.
        last: {(model, request): the last forward that read it}.
    """

    writer: TraceWriter
    requests: Sequence[WatchedRequest]
    verified: Mapping[Place, WatchedRound]
    batch: int
    labels: Labels
    widest: int
    admitting: Collection[int]
    moving: Collection[Place]
    coming: Mapping[int, int]
    last: Mapping[tuple[str, int], int]
    waiting: list[tuple[str, Callable[..., None], dict[str, Any]]] = field(default_factory=list)
    drafted: dict[int, int] = field(default_factory=dict)  # {request: what its draft has read}
    decided: set[int] = field(default_factory=set)  # requests of the last round
    drafts: bool = False  # whether the draft phase of the round has begun
    caches: Caches = field(init=False)

    def __post_init__(self) -> None:
        self.caches = Caches(self.batch, len(self.requests), self.last, self._read_again)

    def add(self, seen: SeenForward, parts: Sequence[Part]) -> None:
        """Add one forward and its rows."""
        model = seen.forward.model
        known = [part for part in parts if part.request >= 0]
        if not known:
            return
        rows = {part.row: self._row(part) for part in known}
        is_target = model == "target"
        begun = "draft" if self.drafts and not is_target else "schedule"
        self._moves(seen, known, rows, begun)
        early: list[tuple[Part, list[int]]] = []
        late: list[tuple[Part, list[int]]] = []
        for part in known:
            first = self._first_decided(part, model)
            places = range(self._count(part, model))
            early.append((part, [i for i in places if part.index + i < first]))
            late.append((part, [i for i in places if part.index + i >= first]))
            if not is_target:
                self.drafted[part.request] = part.index + len(places)
        self._forward(seen, early, rows, begun)
        if is_target:
            # One forward may hold prompts of new rows and drafts of others: two phases of a record.
            self._forward(seen, late, rows, "verify")
        elif any(places for _, places in late):
            self.drafts = True
            self._forward(seen, late, rows, "draft")

    def end_round(self, decided: Sequence[WatchedRound]) -> None:
        """End the round in which these were verified."""
        # The phases of a record have an order. A decoder may read a prompt when it verifies.
        for phase in (BEFORE, *PHASES):
            for _, call, arguments in (each for each in self.waiting if each[0] == phase):
                call(**arguments)
        self.waiting.clear()
        self.drafts = False
        self.decided = {verified.part.request for verified in decided}
        known = [self._choices(verified) for verified in decided]
        starts, pending = self._before(decided)
        starts_after, pending_after = self._after(decided)
        self.writer.round(
            RoundEnd(
                rows=[verified.part.row for verified in decided],
                requests=[verified.part.request for verified in decided],
                drafts=[verified.drafts for verified in decided],
                accepted=[verified.accepted for verified in decided],
                emitted=[self._emitted(verified) for verified in decided],
                finished=[verified.is_last for verified in decided],
                discarded=[self._discarded(verified) for verified in decided],
                starts=starts,
                pending=pending,
                starts_after=starts_after,
                pending_after=pending_after,
                # A record has choices for all rows of a round or for none.
                choices=known if all(known) else None,
            )
        )

    def _discarded(self, verified: WatchedRound) -> int:
        return 0 if verified.is_last else max(verified.matched + 1 - verified.gained, 0)

    def _slots_of(self, verified: WatchedRound) -> Place:
        """Return the slots of a row's first token and of its pending one."""
        part = verified.part
        row, first = part.row, part.columns[0]
        pending = int(part.seen.slots[row, part.column(verified.pending)])
        if part.index == 0:
            return int(part.seen.slots[row, first]), pending
        for slot in np.flatnonzero(part.seen.seen[row, first]).tolist():
            label = self.labels.of(int(part.seen.held[row, slot]), part.request)
            if label == (part.request, 0):
                return slot, pending
        return pending - verified.pending, pending

    def _before(self, decided: Sequence[WatchedRound]) -> tuple[list[int], list[int]]:
        """Return the slots of the rows' first tokens and pending ones, as they were verified."""
        places = [self._slots_of(verified) for verified in decided]
        return [start for start, _ in places], [pending for _, pending in places]

    def _after(self, decided: Sequence[WatchedRound]) -> tuple[list[int], list[int]]:
        """Return the same as of the next round, if K/V is moved inside of rows until then."""
        following = [self._next(verified) for verified in decided]
        stay = all(
            after is None
            or (after.part.row == verified.part.row and after.part.number not in self.admitting)
            for verified, after in zip(decided, following, strict=True)
        )
        starts, pending = [], []
        for verified, after in zip(decided, following, strict=True):
            start, last = self._slots_of(verified)
            last += verified.gained
            if after is not None and after.part.row == verified.part.row:
                place = self._slots_of(after)
                if stay or place[0] == start:
                    start, last = place
            starts.append(start)
            pending.append(last)
        return starts, pending

    def _next(self, verified: WatchedRound) -> WatchedRound | None:
        """Return what a request verified in the next round, if it was part of that."""
        after = self.requests[verified.part.request].after(verified.part.number)
        is_next = after is not None and after.part.number == self.coming[verified.part.number]
        return after if is_next else None

    def _choices(self, verified: WatchedRound) -> list[int]:
        found = choices(verified)
        return found if len(found) == len(verified.drafts) + 1 else []

    def _emitted(self, verified: WatchedRound) -> list[int]:
        first = verified.pending + 1
        return self.requests[verified.part.request].tokens[first : first + verified.gained]

    def _row(self, part: Part) -> int:
        """Return the row of the record's cache that a part uses."""
        request, place = self.requests[part.request], (part.number, part.row)
        is_prompt = part.index + len(part.columns) <= len(request.prompt)
        is_decided = place in self.verified or self._is_read_again(part)
        if is_prompt and not is_decided and place in self.moving:
            return self.batch + part.request
        # Read alone and from the first token on: drafts of the row that is verified next.
        seen = part.seen
        is_alone = seen.forward.model == "draft" and part.index == 0 and len(seen.tokens) == 1
        coming = request.after(part.number) if is_alone else None
        return coming.part.row if coming else part.row

    def _read_again(self, part: Part) -> list[int]:
        """Return the slots of committed tokens that a draft model reads again."""
        coming = self.requests[part.request].after(part.number)
        again = part.columns[: max(coming.pending - part.index, 0)] if coming else []
        return [int(part.seen.slots[part.row, column]) for column in again]

    def _is_read_again(self, part: Part) -> bool:
        """Return whether the draft model has read the first token of a part before."""
        is_draft = part.seen.forward.model == "draft"
        return is_draft and part.index < self.drafted.get(part.request, 0)

    def _count(self, part: Part, model: str) -> int:
        """Return how many tokens of a part can be noted: no drafts behind those of the round."""
        count = len(part.columns)
        request = self.requests[part.request]
        if model == "target":
            return 0 if any(part is each for each in request.idle) else count
        coming = request.after(part.number)
        pending = coming.pending if coming else -1
        return max(min(count, pending + self.widest + 1 - part.index), 0)

    def _first_decided(self, part: Part, model: str) -> int:
        """Return the index from which on the tokens of a part belong to a round."""
        if model == "target":
            verified = self.verified.get((part.number, part.row))
            return part.index + len(part.columns) if verified is None else verified.pending
        if part.seen.forward.top_ids is None:  # no logits, so nothing was drafted
            return part.index + len(part.columns)
        if self._is_read_again(part):
            return part.index
        return len(self.requests[part.request].prompt) - 1

    def _moves(
        self, seen: SeenForward, parts: Sequence[Part], rows: Mapping[int, int], phase: str
    ) -> None:
        """Note what was moved since the forward before: where K/V lies in another place now."""
        model = seen.forward.model
        going_on = [part for part in parts if part.request in self.decided]
        others = [part for part in parts if part.request not in self.decided]
        is_first = all(
            given["model"] != model and (when != "schedule" or given["model"] != "target")
            for when, _, given in self.waiting
        )
        groups = {BEFORE: going_on, phase: others} if is_first else {phase: [*others, *going_on]}
        found = self.caches.moves(seen, list(groups.values()), rows)
        for when, moved in zip(groups, found, strict=True):
            for each in moved:
                given = {**each, "phase": None if when == BEFORE else when}
                self.waiting.append((when, self.writer.move, given))

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
                self.caches.put(model, (rows[part.row], slot), mark)
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
        self.waiting.append((phase, self.writer.forward, given))
