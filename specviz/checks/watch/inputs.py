"""Find the first input of a query that is not what its row should have given it.

Contract: `Inputs` compares token, position, mask and K/V with the row's own text, for one query and
for all queries whose K/V it reads. Not known here: models, and logits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specviz.checks.watch.labels import Labels
from specviz.checks.watch.origins import NOTHING, UNKNOWN, Origins
from specviz.checks.watch.requests import Part
from specviz.record.schema import Array

UNREAD = "unread"  # the advice where a token was never read


@dataclass(frozen=True)
class Difference:
    """An input of a query that is not what it should be.

    Attributes:
        rule: the rule that it breaks, of RULES.
        cause: what was found, in a sentence.
        forward: the number of the forward that it was given to.
        index: of the token that the forward read there, in its row.
        advice: which advice helps, if it is not that of the rule.
        is_left: whether it is what the forward left, and not what it was given.
    """

    rule: str
    cause: str
    forward: int
    index: int
    advice: str = ""
    is_left: bool = False


class Inputs:
    """The inputs of all queries of one model.

    Args:
        origins: the tokens that it read.
        parts: the rows of its forwards.
        labels: which token of which request each of them is.
    """

    def __init__(self, origins: Origins, parts: Sequence[Part], labels: Labels) -> None:
        self._parts = {part.place: part for part in parts}
        self._own = [part for part in parts if part.request >= 0]
        self._where = origins.where
        known = [labels.get(entry) or (-1, -1) for entry in range(len(self._where))]
        self._request, self._index = np.array(known, dtype=np.int64).reshape(-1, 2).T
        self._token = np.zeros(len(known), dtype=np.int64)
        self._position = np.zeros(len(known), dtype=np.int64)
        for entry, (number, row, column) in enumerate(self._where):
            seen = self._parts[number, row].seen
            self._token[entry] = seen.tokens[row, column]
            self._position[entry] = seen.positions[row, column]
        width = max(len(request.tokens) for request in labels.requests)
        self._texts = np.full((len(labels.requests), width), -1)
        for number, request in enumerate(labels.requests):
            self._texts[number, : len(request.tokens)] = request.tokens

    def first(self, part: Part, place: int, text: Sequence[int]) -> Difference | None:
        """Return the first difference behind a query, in the order of the forwards; None for none.

        Args:
            part: the row of the forward.
            place: of the query, among the tokens of the part.
            text: the tokens that the row should have read.
        """
        for number, row, i in sorted(self.behind(part, place, text)):
            found = self.at(self._parts[number, row], i, text)
            if found is not None:
                return found
        index = part.index + place
        given = int(part.seen.positions[part.row, part.columns[place]])
        # All positions of the row are off by the same number, which learned positions do not hide.
        return None if given == index else _misplaced(index, given, part.number)

    def behind(self, part: Part, place: int, text: Sequence[int]) -> set[tuple[int, int, int]]:
        """Return (forward, row, place) of a query, and of those whose K/V it reads rightly."""
        found = set()
        waiting = [(part.number, part.row, place)]
        while waiting:
            query = waiting.pop()
            if query in found:
                continue
            found.add(query)
            source = self._parts[query[:2]]
            seen, row = source.seen, source.row
            entries = seen.held[row, seen.seen[row, source.columns[query[2]]]]
            for entry in entries[self._right(entries, part.request, text)].tolist():
                number, row, column = self._where[entry]
                columns = self._parts[number, row].columns
                if column in columns:
                    waiting.append((number, row, columns.index(column)))
        return found

    def of(self, part: Part, text: Sequence[int]) -> dict[int, Difference]:
        """Return what is wrong with the inputs of a part, by the place of the query."""
        if self._is_sound(part, text):
            return {}
        found = {i: self.at(part, i, text) for i in range(len(part.columns))}
        return {i: difference for i, difference in found.items() if difference is not None}

    def _is_sound(self, part: Part, text: Sequence[int]) -> bool:
        """Return whether all inputs of a part are right, which is cheap to see of all at once."""
        seen, row = part.seen, part.row
        own = seen.slots[row, part.columns]
        visible = seen.seen[row, part.columns]  # (m, T)
        if not own.size:
            return True
        if (own < 0).any() or (visible[:, own] != np.tri(own.size, dtype=bool)).any():
            return False
        visible[:, own] = False
        entries = seen.held[row, visible[0]]
        if (visible != visible[0]).any() or not self._right(entries, part.request, text).all():
            return False
        past = self._index[entries]
        due = text[part.index : part.index + own.size]
        if sorted(past.tolist()) != list(range(part.index)) or part.tokens[: len(due)] != due:
            return False
        positions = np.append(self._position[entries], seen.positions[row, part.columns])
        shifts = positions - np.append(past, part.index + np.arange(own.size))
        return bool((shifts == shifts[0]).all())

    def at(self, part: Part, place: int, text: Sequence[int]) -> Difference | None:
        """Return what is wrong with the input of one query; None if nothing is."""
        seen, row = part.seen, part.row
        visible = seen.seen[row, part.columns[place]].copy()
        own = seen.slots[row, part.columns]
        sees_own = visible[own] & (own >= 0)
        visible[own[own >= 0]] = False
        entries = seen.held[row, visible]
        is_right = self._right(entries, part.request, text)
        past = entries[is_right]
        if not is_right.all() or sorted(self._index[past].tolist()) != list(range(part.index)):
            found = self._of_past(part, place, visible, text)
            if found is not None:
                return found
        index = part.index + place
        for j, sees in enumerate(sees_own.tolist()):
            if sees != (j <= place):
                verb = "sees" if sees else "does not see"
                cause = f"token {index} {verb} slot {own[j]}, which holds token {part.index + j}"
                return Difference("mask", cause, part.number, index)
        token = int(seen.tokens[row, part.columns[place]])
        if index < len(text) and token != text[index]:
            cause = f"token {index} of the row is {text[index]}, and {token} was fed in its place"
            return Difference("lengths", cause, part.number, index)
        return self._of_positions(part, place, past)

    def _right(self, entries: Array, request: int, text: Sequence[int]) -> Array:
        """Return which of these tokens are those of a row's text, each behind all before it.

        Another row may have read them, for a text that begins alike.
        """
        if not entries.size:
            return np.zeros(0, dtype=bool)
        due = np.full(max(len(text), self._texts.shape[1]), -2)
        due[: len(text)] = text
        alike = self._texts == due[: self._texts.shape[1]]
        shared = np.logical_and.accumulate(alike, axis=1).sum(1)
        shared[request] = len(text)
        owner, index = self._request[entries], self._index[entries]
        is_read = (entries >= 0) & (owner >= 0)
        found: Array = is_read & (index < shared[owner])
        found &= self._token[entries] == due[np.clip(index, 0, len(due) - 1)]
        return found

    def _of_past(
        self, part: Part, place: int, visible: Array, text: Sequence[int]
    ) -> Difference | None:
        """Compare what a query sees of earlier forwards with what it should see."""
        index = part.index + place
        due = self._due(part, visible, text)
        for at, slot in sorted((at, slot) for slot, at in due.items() if visible[slot]):
            if self._holds(part, slot, at, text):
                continue
            what = self._at(part, slot, text)
            if self._was_read(part, at, text):
                cause = f"slot {slot} should hold K/V of token {at} of the row, and holds {what}"
                return Difference("kv", cause + self._since(part), part.number, index)
            cause = (
                f"token {at} of the row was never read, and slot {slot}, which its K/V should be "
                f"in, holds {what}"
            )
            return Difference("kv", cause, part.number, index, UNREAD)
        for slot in np.flatnonzero(visible).tolist():
            if slot not in due:
                cause = f"token {index} sees slot {slot}, which holds {self._at(part, slot, text)}"
                return Difference("mask", cause, part.number, index)
        for slot, at in due.items():
            if not visible[slot]:
                cause = (
                    f"token {index} does not see slot {slot}, which holds K/V of token {at} of its "
                    "row"
                )
                return Difference("mask", cause, part.number, index)
        missing = min(set(range(part.index)) - set(due.values()), default=None)
        if missing is None:
            return None
        if self._was_read(part, missing, text):
            cause = f"K/V of token {missing} of the row is nowhere in the cache"
            return Difference("kv", cause, part.number, index)
        cause = f"token {missing} of the row was never read"
        return Difference("kv", cause, part.number, index, UNREAD)

    def _due(self, part: Part, visible: Array, text: Sequence[int]) -> dict[int, int]:
        """Return {slot: index of the token whose K/V belongs there}, for what a row should see."""
        held = part.seen.held[part.row]
        own = set(part.seen.slots[part.row, part.columns].tolist())
        # Slots without K/V count only where they are seen: their scores are 0, not nothing.
        counts = (held != NOTHING) | visible
        past = [slot for slot in np.flatnonzero(counts).tolist() if slot not in own]

        def rank(slot: int) -> tuple[bool, bool, int]:
            """Put first what is seen, then what the row read itself, then what was read last."""
            is_borrowed = held[slot] < 0 or self._request[held[slot]] != part.request
            return not visible[slot], is_borrowed, -int(held[slot])

        due: dict[int, int] = {}
        wanted = set(range(part.index))
        for slot in sorted(past, key=rank):
            index = int(self._index[held[slot]])
            if index in wanted and self._holds(part, slot, index, text):
                due[slot] = index
                wanted.discard(index)
        for slot in past:  # what is visible and belongs to nothing else
            if wanted and slot not in due and visible[slot]:
                due[slot] = min(wanted)
                wanted.discard(due[slot])
        return due

    def _holds(self, part: Part, slot: int, index: int, text: Sequence[int]) -> bool:
        """Return whether a slot holds K/V of the row's token at an index."""
        entry = part.seen.held[part.row, slot : slot + 1]
        is_right = self._right(entry, part.request, text)
        return bool(is_right[0]) and int(self._index[entry[0]]) == index

    def _of_positions(self, part: Part, place: int, past: Array) -> Difference | None:
        """Compare the positions of a query and of what it sees with each other."""
        seen, row = part.seen, part.row
        positions = seen.positions[row, part.columns[: place + 1]]
        indices = np.append(self._index[past], part.index + np.arange(place + 1))
        shifts = np.append(self._position[past], positions) - indices
        # A shift that all share is harmless under rotary positions.
        due = 0 if 0 in shifts else shifts[indices.argmin()]
        wrong = np.flatnonzero(shifts != due)
        if not wrong.size:
            return None
        first = int(wrong[indices[wrong].argmin()])
        index = int(indices[first])
        number = part.number if first >= len(past) else self._where[past[first]][0]
        return _misplaced(index, index + int(shifts[first]), number)

    def _was_read(self, part: Part, index: int, text: Sequence[int]) -> bool:
        """Return whether an earlier forward read the row's token at this index."""
        entries = np.flatnonzero(self._index == index)
        found = entries[self._right(entries, part.request, text)]
        return any(self._where[entry][0] < part.number for entry in found.tolist())

    def _since(self, part: Part) -> str:
        """Say after which forward a row's K/V was last read."""
        own = [each for each in self._own if each.request == part.request]
        last = max((each.number for each in own if each.number < part.number), default=None)
        return "" if last is None else f"; it was moved or cut there after forward {last}"

    def _at(self, part: Part, slot: int, text: Sequence[int]) -> str:
        """Say what a slot holds."""
        entry = int(part.seen.held[part.row, slot])
        if entry == NOTHING:
            return "zeros, and no token's K/V"
        if entry == UNKNOWN:
            return "K/V that no forward computed, or layers that disagree"
        owner, index = int(self._request[entry]), int(self._index[entry])
        if owner < 0:
            return "padding"
        if owner != part.request:
            return f"K/V of token {index} of request {owner}"
        is_rejected = index < len(text) and text[index] != self._token[entry]
        of = "a rejected draft for index" if is_rejected else "index"
        return f"K/V of {of} {index}, read in forward {self._where[entry][0]}"


def _misplaced(index: int, given: int, forward: int) -> Difference:
    return Difference("positions", f"token {index} was given position {given}", forward, index)
