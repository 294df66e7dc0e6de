"""Follow the draft model's forwards, and find what makes its drafts worse.

Contract: `DraftFollower` reads the draft's forwards in order. A fault here leaves the text right,
so it is judged by structure alone: which tokens a draft's query saw, and at which positions. A
shift that all positions of a row share is harmless. Not known here: models.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from specviz.checks.watch.capture import CapturedForward
from specviz.checks.watch.labels import Labels, begins_behind_prefix, context_of, owner_of
from specviz.checks.watch.origins import Origins, SeenForward
from specviz.checks.watch.requests import Part, WatchedRequest, best_after, common


@dataclass(frozen=True)
class DraftFault:
    """The first query of a draft model that did not see its own row.

    Attributes:
        request, row, forward: where.
        cause: what was found, in a sentence.
    """

    request: int
    row: int
    forward: int
    cause: str


class DraftFollower:
    """Follows the draft's forwards, knowing what the target verified.

    Args:
        requests: what the target read.
    """

    def __init__(self, requests: Sequence[WatchedRequest]) -> None:
        self.origins = Origins()
        self.parts: list[Part] = []
        self.labels = Labels(requests)
        self.faults: dict[int, DraftFault] = {}  # by request
        self._requests = requests
        self._last: dict[int, int] = {}  # index of the last token that was read, by request
        self._seen: dict[int, SeenForward] = {}  # by number of the forward

    def read(self, forward: CapturedForward) -> None:
        """Read the next forward of the draft."""
        seen = self.origins.read(forward)
        self._seen[forward.number] = seen
        served: Counter[int] = Counter()
        for row in range(len(seen.tokens)):
            columns = np.flatnonzero(~seen.padding[row]).tolist()
            part = Part(seen, row, -1, columns, 0)
            self.parts.append(part)
            if columns:
                self._place(part)
            if part.request >= 0:
                served[part.request] += 1
                self._note(part)
        for request, rows in served.items():
            fault = self.faults.get(request)
            # Of rows that try drafts of one request, most read what is not verified in the end.
            if rows > 1 and fault is not None and fault.forward == forward.number:
                del self.faults[request]

    def ahead(self, number: int, forward: int) -> list[int]:
        """Return a request's tokens, with the drafts that are verified next after a forward."""
        request = self._requests[number]
        part = request.read_next(forward)
        return request.tokens if part is None else [*request.tokens[: part.index], *part.tokens]

    def proposal(self, number: int, index: int, forward: int) -> int | None:
        """Return the token that was drafted for an index of a request, last before a forward.

        None where it is not known: the model neither read it nor chose it.
        """
        # A draft may be proposed again in a later forward; the last one was verified.
        for part in reversed(self.parts):
            if part.number > forward or part.request != number or not part.columns:
                continue
            if part.index <= index < part.index + len(part.columns):
                return part.tokens[index - part.index]  # a draft that was read is the draft
            chosen = best_after(part, index - 1)
            if chosen is not None:
                return chosen
        return None

    def _place(self, part: Part) -> None:
        """Find the request and the index of a part."""
        tokens = part.tokens
        owner = owner_of(part, self.labels)
        if owner < 0:
            best = 0
            for number in range(len(self._requests)):
                ahead = self.ahead(number, part.number)
                shared = common(tokens, ahead)
                is_new = number not in self._last
                needed = min(len(tokens), len(self._requests[number].prompt))
                if shared >= needed and 2 * shared + is_new > best:
                    best, part.request = 2 * shared + is_new, number
            if part.request < 0:
                self._find_by_row(part)
            return
        unread = [i for i in range(len(self._requests)) if i not in self._last]
        ahead_of = partial(self.ahead, forward=part.number)
        if begins_behind_prefix(part, self.labels, unread, ahead_of):
            return
        part.request = owner
        if self._is_done(part) and self._find_by_row(part):
            return
        context = context_of(part, self.labels)
        ahead = self.ahead(part.request, part.number)
        own = sorted(index for owner, index in context if self._is_own(part, owner, index, ahead))
        due = self._last.get(part.request, -1) + 1
        part.index = due
        score: tuple[bool, bool, int] | None = None
        for index in range(len(ahead) + 1):
            known = ahead[index : index + len(tokens)]
            if known != tokens[: len(known)] or (not known and index != due):
                continue
            is_exact = own == list(range(index))
            found = (is_exact, index == due, -abs(index - due))
            if score is None or found > score:
                score, part.index = found, index

    def _is_own(self, part: Part, owner: int, index: int, ahead: list[int]) -> bool:
        """Return whether K/V is that of a part's request, or equal since both begin alike."""
        theirs = self._requests[owner].tokens[: index + 1]
        return owner == part.request or theirs == ahead[: index + 1]

    def _find_by_row(self, part: Part) -> bool:
        """Find the request that the target verifies next in this row, whatever the draft sees."""
        for number, request in enumerate(self._requests):
            is_read = any(each.number < part.number for each in request.parts)
            after = request.read_next(part.number)
            if not is_read or after is None or after.row != part.row:
                continue
            if part.tokens[0] in after.tokens:
                part.request = number
                part.index = after.index + after.tokens.index(part.tokens[0])
                return True
        return False

    def _note(self, part: Part) -> None:
        if part.seen.forward.top_ids is None:  # a prompt; what lies behind it fills the rectangle
            read = common(part.tokens, self.ahead(part.request, part.number)[part.index :])
            part.fill(read)
            if not part.columns:
                return
        for i, column in enumerate(part.columns):
            entry = int(part.seen.entries[part.row, column])
            self.labels.put(entry, part.request, part.index + i)
        self._last[part.request] = part.index + len(part.columns) - 1
        if part.request not in self.faults and not self._is_done(part):
            cause = self._wrong(part)
            if cause:
                self.faults[part.request] = DraftFault(part.request, part.row, part.number, cause)

    def _is_done(self, part: Part) -> bool:
        """Return whether nothing is verified after this forward, so that it does no harm."""
        rounds = self._requests[part.request].rounds
        return not any(verified.part.number > part.number for verified in rounds)

    def _wrong(self, part: Part) -> str:
        """Return what is wrong with what the first token of a part sees; "" if nothing is."""
        seen, row = part.seen, part.row
        ahead = self.ahead(part.request, part.number)
        visible = seen.held[row, seen.seen[row, part.columns[0]]].tolist()
        own = set(seen.entries[row].tolist())
        indices = []
        # A constant shift changes nothing under rotary positions; only a jump is a fault.
        shifts = set()
        for entry in visible:
            if entry in own:
                continue
            label = self.labels.of(entry, part.request)
            if label is None:
                return f"token {part.index} sees a slot that holds no token's K/V"
            request, index = label
            number, source, column = self.origins.where[entry]
            token = int(self._seen[number].tokens[source, column])
            if not self._is_own(part, request, index, ahead):
                return f"token {part.index} sees K/V of request {request}"
            if index < len(ahead) and token != ahead[index]:
                return f"token {part.index} sees K/V of a rejected draft for index {index}"
            indices.append(index)
            shifts.add(int(self._seen[number].positions[source, column]) - index)
        missing = sorted(set(range(part.index)) - set(indices))
        if missing:
            held = [self.labels.of(entry, part.request) for entry in seen.held[row].tolist()]
            is_hidden = (part.request, missing[0]) in held
            how = "hidden" if is_hidden else "missing"
            return f"K/V of token {missing[0]} is {how} where token {part.index} is read"
        twice = [index for index, count in Counter(indices).items() if count > 1]
        if twice:
            return f"token {part.index} sees K/V of token {twice[0]} twice"
        for i, column in enumerate(part.columns):
            shifts.add(int(seen.positions[row, column]) - part.index - i)
        if len(shifts) > 1:
            return f"token {part.index} has a position that does not fit those before it"
        return ""
