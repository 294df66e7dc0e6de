"""Say what is wrong with the input of a forward, and since when.

Contract: `Causes.find` takes the repairs that mend a forward and returns the rule that was broken,
and a sentence. Wrong K/V is followed back to the forward that computed it, or to the move. Not
known here: logits, and how a repair was found.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

from specviz.checks.watch.fresh import FreshRow
from specviz.checks.watch.origins import NOTHING, UNKNOWN
from specviz.checks.watch.repair import REPAIRS, Bench
from specviz.checks.watch.requests import Part, WatchedRequest


class Cause(NamedTuple):
    """What broke a forward.

    Attributes:
        rule: of RULES; "" if it is not known.
        cause: what was found, in a sentence.
        advice: which advice helps, if it is not that of the rule.
    """

    rule: str
    cause: str
    advice: str = ""


UNREAD = "unread"  # the advice where a token was never read


def smallest_repair(mends: Callable[[Collection[str]], bool]) -> tuple[str, ...] | None:
    """Return the fewest of REPAIRS that mend a forward, () if it needs none; None if all fail."""
    # The fewest repairs first: putting all right nearly always mends, and names no cause.
    for count in range(len(REPAIRS) + 1):
        for repairs in combinations(REPAIRS, count):
            if mends(repairs):
                return repairs
    return None


@dataclass
class Causes:
    """Finds causes in one run.

    Attributes:
        bench: repeats forwards.
        parts: what the target read, row by row.
        rounds: {number of a forward: its round}.
    """

    bench: Bench
    parts: Sequence[Part]
    rounds: dict[int, int]

    def find(
        self,
        part: Part,
        request: WatchedRequest,
        fresh: FreshRow,
        place: int,
        repairs: tuple[str, ...],
    ) -> Cause:
        """Return the rule that a part breaks, and what was found.

        Args:
            part: what was read.
            request: whose tokens these are.
            fresh: the same tokens, read at once.
            place: of the token that is wrong, among those of the part.
            repairs: what mends it.
        """
        if not repairs:
            what = "its logits are not those that its own input gives"
            return _of_unseen_mask(part, what) or Cause("", f"{what}, so they were changed")
        if "kv" in repairs:
            return self._of_kv(part, request, fresh, "mask" in repairs)
        if "mask" in repairs:
            return self._of_mask(part, request)
        if "inputs" in repairs:
            wrong = next(
                i for i, token in enumerate(part.tokens) if token != request.tokens[part.index + i]
            )
            due = request.tokens[part.index + wrong]
            return Cause(
                "lengths",
                f"token {part.index + wrong} of the row is {due}, and {part.tokens[wrong]} was fed "
                "in its place",
            )
        given = int(part.seen.positions[part.row, part.columns[place]])
        return Cause("positions", f"token {part.index + place} was given position {given}")

    def _of_mask(self, part: Part, request: WatchedRequest) -> Cause:
        past, _ = self.bench.slots(part)
        due = self.bench.due(part, request)
        seen = part.seen.seen[part.row, part.columns[0]]
        for slot in past:
            if seen[slot] and slot not in due:
                what = self._at(part, request, slot)
                return Cause("mask", f"token {part.index} sees slot {slot}, which holds {what}")
        for slot, index in due.items():
            if not seen[slot]:
                return Cause(
                    "mask",
                    f"token {part.index} does not see slot {slot}, which holds K/V of token "
                    f"{index} of its row",
                )
        missing = sorted(set(range(part.index)) - set(due.values()))
        if missing:
            if not self._was_read(part, request, missing[0]):
                return Cause("kv", f"token {missing[0]} of the row was never read", UNREAD)
            return Cause("kv", f"K/V of token {missing[0]} of the row is nowhere in the cache")
        return Cause("mask", self._among_themselves(part))

    def _among_themselves(self, part: Part) -> str:
        """Say which tokens of a forward see each other wrongly."""
        _, own = self.bench.slots(part)
        for i, column in enumerate(part.columns):
            sees = part.seen.seen[part.row, column]
            for j, slot in enumerate(own):
                if sees[slot] != (j <= i):
                    verb = "sees" if sees[slot] else "does not see"
                    return (
                        f"token {part.index + i} {verb} slot {slot}, which holds token "
                        f"{part.index + j}"
                    )
        return "what its tokens see is wrong"

    def _of_kv(
        self, part: Part, request: WatchedRequest, fresh: FreshRow, is_misled: bool = False
    ) -> Cause:
        """Follow wrong K/V back to the forward or the move after which it was wrong.

        `is_misled` says that the mask of this forward is wrong as well.
        """
        due = self.bench.due(part, request)
        seen = part.seen.seen[part.row, part.columns[0]]
        held = part.seen.held[part.row]
        visible = sorted((slot for slot in due if seen[slot]), key=lambda slot: due[slot])
        for slot in visible:
            entry = int(held[slot])
            is_own = self.bench.labels.of(entry, part.request) == (part.request, due[slot])
            if not is_own or not self.bench.is_true(entry, request, due[slot]):
                holds = f"holds {self._at(part, request, slot)}"
                if not self._was_read(part, request, due[slot]):
                    what = f"token {due[slot]} of the row was never read, and slot {slot}"
                    return Cause("kv", f"{what}, which its K/V should be in, {holds}", UNREAD)
                return Cause(
                    "kv",
                    f"slot {slot} should hold K/V of token {due[slot]} of the row, and {holds}"
                    f"{self._since(part)}",
                )
        for slot in visible:
            entry = int(held[slot])
            if not self._is_right(entry, due[slot], fresh):
                return self._computed(entry, request, fresh, slot, due[slot])
        return (
            self._of_mask(part, request) if is_misled else Cause("kv", "K/V that it reads is wrong")
        )

    def _is_right(self, entry: int, index: int, fresh: FreshRow) -> bool:
        """Return whether a token's K/V, in the last layer, is what its row gives at once."""
        number, row, column = self.bench.where[entry]
        forward = self.bench.forwards[number]
        # An error in any layer reaches the last one, so one comparison is enough.
        last = max(forward.keys)
        keys, values = fresh.states[sorted(forward.keys).index(last)]
        is_key = close(forward.keys[last][row, :, column], keys[:, index])
        return is_key and close(forward.values[last][row, :, column], values[:, index])

    def _computed(
        self, entry: int, request: WatchedRequest, fresh: FreshRow, slot: int, index: int
    ) -> Cause:
        """Name what broke the forward that computed wrong K/V."""
        number, row, column = self.bench.where[entry]
        part = next(each for each in self.parts if each.number == number and each.row == row)
        place = part.columns.index(column)
        when = f"forward {number}"
        if number in self.rounds:
            when += f" (round {self.rounds[number]})"

        def mends(repairs: Collection[str]) -> bool:
            found = self.bench.repeat(part, request, fresh, repairs).states[-1]
            due = fresh.states[-1]
            return all(
                close(one[:, place], right[:, index]) for one, right in zip(found, due, strict=True)
            )

        repairs = smallest_repair(mends)
        if not repairs:
            what = f"K/V of token {index} in slot {slot} was computed wrongly in {when}"
            return _of_unseen_mask(part, what) or Cause("kv", what)
        found = self.find(part, request, fresh, place, repairs)
        what = f"K/V of token {index} in slot {slot} is wrong since {when}: {found.cause}"
        return found._replace(cause=what)

    def _was_read(self, part: Part, request: WatchedRequest, index: int) -> bool:
        """Return whether an earlier forward read the request's token at this index."""
        return any(
            self.bench.where[entry][0] < part.number and self.bench.is_true(entry, request, index)
            for entry in self.bench.labels.entries(part.request, index)
        )

    def _since(self, part: Part) -> str:
        """Say after which forward a row's K/V was last read."""
        before = [each for each in self.parts if each.number < part.number]
        numbers = [each.number for each in before if each.request == part.request]
        return f"; it was moved or cut there after forward {numbers[-1]}" if numbers else ""

    def _at(self, part: Part, request: WatchedRequest, slot: int) -> str:
        """Say what a slot holds."""
        entry = int(part.seen.held[part.row, slot])
        if entry == NOTHING:
            return "zeros, and no token's K/V"
        if entry == UNKNOWN:
            return "K/V that no forward computed, or layers that disagree"
        label = self.bench.labels.get(entry)
        if label is None:
            return "padding"
        owner, index = label
        if owner != part.request:
            return f"K/V of token {index} of request {owner}"
        number, row, column = self.bench.where[entry]
        token = int(self.bench.forwards[number].tokens[row, column])
        is_rejected = index < len(request.tokens) and request.tokens[index] != token
        of = "a rejected draft for index" if is_rejected else "index"
        return f"K/V of {of} {index}, read in forward {number}"


def _of_unseen_mask(part: Part, what: str) -> Cause | None:
    """Blame a mask that could not be seen, where all that was seen is right; None if it was."""
    if not part.seen.forward.unseen:
        return None
    why = "all that was seen of its input is right, and its mask could not be seen"
    return Cause("mask", f"{what}; {why}, so suspect the mask")


def close(found: Tensor, due: Tensor) -> bool:
    """Return whether K/V are equal but for rounding."""
    # Half the digits of the dtype: far above rounding, far below the effect of another token.
    slack = float(torch.finfo(due.dtype).eps ** 0.5)
    due = due.float()
    scale = float(due.abs().max()) + 1e-9
    return float((found.float() - due.to(found.device)).abs().max()) <= slack * scale
