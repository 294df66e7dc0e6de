"""Make a record of what was seen of a decoder, which all tables, checks and pictures read.

Contract: `to_trace` writes what was followed with a `TraceWriter`: forwards, the moves between
them, and rounds. A round is a forward of the target in which tokens were decided. Not known here:
models, and what is right.

A record has one cache for each model. A prompt that was read in another cache object than the batch
lies in a row of its own behind the batch's, and is moved from there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from specviz.checks.watch.origins import Seen
from specviz.checks.watch.places import NAMES, Ledger, Place, blocks_of, moves_of
from specviz.checks.watch.requests import Part, Request, Verified, choices, coming_caches
from specviz.record.log.writer import TraceWriter
from specviz.record.schema import PHASES
from specviz.record.trace import Trace

BEFORE = "before"  # of moves before the first forward of a round


@dataclass
class _Builder:
    """Writes forwards, moves and rounds.

    Attributes:
        writer: takes them.
        requests: what the target read.
        verified: {(forward, row): what was verified there}.
        batch: rows of the largest batch.
        labels: (request, index) of each token that the target read.
        widest: the most drafts of a round.
    """

    writer: TraceWriter
    requests: Sequence[Request]
    verified: Mapping[Place, Verified]
    batch: int
    labels: Mapping[int, tuple[int, int]]
    widest: int
    ledgers: dict[str, Ledger] = field(
        default_factory=lambda: {"target": Ledger(), "draft": Ledger()}
    )
    waiting: list[tuple[str, Callable[..., None], dict[str, Any]]] = field(default_factory=list)
    drafts: bool = False  # whether the draft phase of the round has begun

    def add(self, seen: Seen, parts: Sequence[Part], caches: Mapping[int, int]) -> None:
        """Add one forward.

        Args:
            seen: the forward.
            parts: its rows.
            caches: {request: the cache object of its next round}.
        """
        model = seen.forward.model
        known = [part for part in parts if part.request >= 0]
        if not known:
            return
        rows = {part.row: self._row(part, caches) for part in known}
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
        self._forward(seen, early, rows, begun)
        if is_target:
            self._forward(seen, late, rows, "verify")
        elif any(places for _, places in late):
            self.drafts = True
            self._forward(seen, late, rows, "draft")

    def end_round(self, decided: Sequence[Verified]) -> None:
        """End the round in which these were verified."""
        # The phases of a record have an order. A decoder may read a prompt when it verifies.
        for phase in (BEFORE, *PHASES):
            for _, call, arguments in (each for each in self.waiting if each[0] == phase):
                call(**arguments)
        self.waiting.clear()
        self.drafts = False
        known = [self._choices(verified) for verified in decided]
        starts, pending = self._before(decided)
        starts_after, pending_after = self._after(decided)
        self.writer.round(
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
            choices=known if all(known) else None,
        )

    def _discarded(self, verified: Verified) -> int:
        return 0 if verified.is_last else max(verified.matched + 1 - verified.gained, 0)

    def _slots_of(self, verified: Verified) -> Place:
        """Return the slots of a row's first token and of its pending one."""
        part = verified.part
        row, first = part.row, part.columns[0]
        pending = int(part.seen.slots[row, part.column(verified.pending)])
        if part.index == 0:
            return int(part.seen.slots[row, first]), pending
        for slot in np.flatnonzero(part.seen.seen[row, first]).tolist():
            label = self.labels.get(int(part.seen.held[row, slot]))
            if label == (part.request, 0):
                return slot, pending
        return pending - verified.pending, pending

    def _before(self, decided: Sequence[Verified]) -> tuple[list[int], list[int]]:
        """Return the slots of the rows' first tokens and pending ones, as they were verified."""
        places = [self._slots_of(verified) for verified in decided]
        return [start for start, _ in places], [pending for _, pending in places]

    def _after(self, decided: Sequence[Verified]) -> tuple[list[int], list[int]]:
        """Return the same as of the next round, if K/V is moved inside of rows until then."""
        parts = [verified.part for verified in decided]
        following = [self.requests[part.request].after(part.number) for part in parts]
        stay = all(
            after is None or after.part.row == verified.part.row
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

    def _choices(self, verified: Verified) -> list[int]:
        found = choices(verified)
        return found if len(found) == len(verified.drafts) + 1 else []

    def _emitted(self, verified: Verified) -> list[int]:
        first = verified.pending + 1
        return self.requests[verified.part.request].tokens[first : first + verified.gained]

    def _row(self, part: Part, caches: Mapping[int, int]) -> int:
        """Return the row of the record's cache that a part uses."""
        request, seen = self.requests[part.request], part.seen
        is_prompt = part.index + len(part.columns) <= len(request.prompt)
        decided = (part.number, part.row) in self.verified
        is_other = caches.get(part.request, seen.forward.cache) != seen.forward.cache
        if is_prompt and is_other and not decided:
            return self.batch + part.request
        # Read alone and from the first token on: drafts of the row that is verified next.
        is_alone = seen.forward.model == "draft" and part.index == 0 and len(seen.tokens) == 1
        coming = request.after(part.number) if is_alone else None
        return coming.part.row if coming else part.row

    def _read_again(self, part: Part) -> list[int]:
        """Return the slots of committed tokens that a draft model reads again."""
        coming = self.requests[part.request].after(part.number)
        again = part.columns[: max(coming.pending - part.index, 0)] if coming else []
        return [int(part.seen.slots[part.row, column]) for column in again]

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
        return len(self.requests[part.request].prompt) - 1

    def _moves(
        self, seen: Seen, parts: Sequence[Part], rows: Mapping[int, int], phase: str
    ) -> None:
        """Note what was moved since the forward before: where K/V lies in another place now."""
        ledger = self.ledgers[seen.forward.model]
        found: list[tuple[Place, Place, int]] = []
        again: set[Place] = set()
        for part in parts:
            row = rows[part.row]
            if seen.forward.model == "draft":
                again |= {(row, slot) for slot in self._read_again(part)}
            own = set(seen.slots[part.row].tolist())
            visible = np.flatnonzero(seen.seen[part.row].any(0)).tolist()
            kept = {
                (row, slot): int(seen.marks[part.row, slot]) for slot in visible if slot not in own
            }
            lost = {place for place in kept if seen.held[part.row, place[1]] < 0}
            found += moves_of(ledger, row, kept, lost, (self.batch + len(self.requests), 0))
        if not found:
            return
        blocks = blocks_of(found, again, ledger.held)
        columns = {name: [block[i] for block in blocks] for i, name in enumerate(NAMES)}
        model = seen.forward.model
        is_first = all(given["model"] != model for _, _, given in self.waiting)
        given = {"model": model, "phase": None if is_first else phase, **columns}
        self.waiting.append((BEFORE if is_first else phase, self.writer.move, given))
        for _, place, mark in found:
            ledger.put(place, mark)

    def _forward(
        self,
        seen: Seen,
        chosen: Sequence[tuple[Part, list[int]]],
        rows: Mapping[int, int],
        phase: str,
    ) -> None:
        """Write the chosen tokens of one forward."""
        chosen = [(part, places) for part, places in chosen if places]
        if not chosen:
            return
        ledger = self.ledgers[seen.forward.model]
        indices = np.full((len(chosen), seen.tokens.shape[1]), -1)
        for i, (part, places) in enumerate(chosen):
            for place in places:
                column = part.columns[place]
                indices[i, column] = part.index + place
                slot = int(seen.slots[part.row, column])
                ledger.put((rows[part.row], slot), int(seen.own_marks[part.row, column]))
        own = [part.row for part, _ in chosen]
        given = {
            "model": seen.forward.model,
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


def to_trace(
    requests: Sequence[Request],
    parts: Mapping[str, Sequence[Part]],
    labels: Mapping[int, tuple[int, int]],
    settings: Mapping[str, Any],
) -> Trace | None:
    """Return a record of what was followed, or None if nothing was decided.

    Args:
        requests: what became of each prompt.
        parts: the rows of all forwards, by model.
        labels: (request, index) of each token that the target read.
        settings: arguments of `TraceWriter`, but for the prompts.
    """
    decided: dict[int, list[Verified]] = {}
    for request in requests:
        for verified in request.rounds:
            decided.setdefault(verified.part.number, []).append(verified)
    if not decided:
        return None
    by_place = {
        (verified.part.number, verified.part.row): verified
        for group in decided.values()
        for verified in group
    }
    by_forward: dict[int, list[Part]] = {}
    for part in sorted([*parts["target"], *parts["draft"]], key=lambda part: part.number):
        by_forward.setdefault(part.number, []).append(part)
    batch = 1 + max(part.row for part in parts["target"])
    widest = max(len(verified.drafts) for verified in by_place.values())
    writer = TraceWriter(
        [request.prompt for request in requests],
        num_draft_tokens=max(widest, 1),
        budget=[max(len(request.output), 1) for request in requests],
        **settings,
    )
    builder = _Builder(writer, requests, by_place, batch, labels, widest)
    coming = coming_caches(by_forward)
    for number, group in sorted(by_forward.items()):
        builder.add(group[0].seen, group, coming[number])
        if number in decided:
            builder.end_round(sorted(decided[number], key=lambda each: each.part.row))
    return writer.trace()
