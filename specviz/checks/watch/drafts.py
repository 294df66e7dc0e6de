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
from specviz.checks.watch.inputs import Inputs
from specviz.checks.watch.labels import Labels, begins_behind_prefix, context_of, owner_of
from specviz.checks.watch.origins import UNKNOWN, Origins
from specviz.checks.watch.requests import Part, WatchedRequest, WatchedRound, best_after, common
from specviz.checks.watch.states import States


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
        self.borrows = False  # whether drafts of fewer layers read K/V that all layers wrote
        self._requests = requests
        self._last: dict[int, int] = {}  # index of the last token that was read, by request

    def read(self, forward: CapturedForward) -> None:
        """Read the next forward of the draft."""
        seen = self.origins.read(forward)
        for row in range(len(seen.tokens)):
            columns = np.flatnonzero(~seen.padding[row]).tolist()
            part = Part(seen, row, -1, columns, 0)
            self.parts.append(part)
            if columns:
                visible = seen.held[row, seen.seen[row, columns[-1]]]
                self.borrows |= forward.is_early and UNKNOWN in visible
                self._place(part)
            if part.request >= 0:
                self._note(part)

    def finish(self) -> None:
        """Find the first fault of each request, and leave out what is wrong and nobody used.

        Only what was read for drafts that were verified can make drafts worse.
        """
        served = Counter((part.number, part.request) for part in self.parts)
        used = self._used()
        inputs = Inputs(self.origins, self.parts, self.labels)
        states = States(self.parts, self._requests)
        for part in self.parts:
            if part.request < 0 or self._is_done(part):
                continue
            places = [i for i, column in enumerate(part.columns) if column in used[part.place]]
            ahead = self.ahead(part.request, part.number)
            wrong = inputs.of(part, ahead)
            first = next((wrong[i] for i in places if i in wrong), None)
            if places and first is None:
                first = states.at(part, ahead)
            if wrong and not places:
                part.request = -1
            # Of rows that try drafts of one request, most read what is not verified in the end.
            elif first and served[part.number, part.request] == 1:
                fault = DraftFault(part.request, part.row, part.number, first.cause)
                self.faults.setdefault(part.request, fault)
            elif wrong:  # a filler behind what is used
                part.columns = part.columns[: places[-1] + 1]

    def _used(self) -> dict[tuple[int, int], set[int]]:
        """Return the columns of each row of each forward that verified drafts were computed from.

        They are the queries behind which the drafts were chosen, and all tokens whose K/V such a
        query reads, or one of these tokens did.
        """
        used: dict[tuple[int, int], set[int]] = {part.place: set() for part in self.parts}
        for number, request in enumerate(self._requests):
            own = [part for part in self.parts if part.request == number]
            for verified in request.rounds:
                for index in range(verified.pending, verified.pending + len(verified.drafts)):
                    found = self._chosen_at(own, verified, index)
                    if found is not None:
                        used[found[0].place].add(found[1])
        for part in reversed(self.parts):  # K/V is read after it was written
            seen, row, columns = part.seen, part.row, used[part.place]
            count = -1
            while len(columns) > count:  # they see other tokens of their own forward
                count = len(columns)
                held = seen.held[row, seen.seen[row, sorted(columns)].any(0)]
                for entry in np.unique(held[held >= 0]).tolist():
                    number, source, column = self.origins.where[entry]
                    used[number, source].add(column)
        return used

    def _chosen_at(
        self, parts: Sequence[Part], verified: WatchedRound, index: int
    ) -> tuple[Part, int] | None:
        """Return behind which token a draft was chosen, last before it was verified.

        Args:
            parts: what was read of the request.
            verified: the round of the draft.
            index: of the token before the draft.

        Returns:
            What was read, and the column.
        """
        draft = verified.drafts[index - verified.pending]
        token = verified.part.tokens[index - verified.part.index]
        last = None
        for part in reversed(parts):
            place = index - part.index
            if part.number > verified.part.number or not 0 <= place < len(part.columns):
                continue
            chosen = best_after(part, index)
            if chosen == draft and part.tokens[place] == token:  # later ones were read for K/V
                return part, part.column(index)
            if last is None and chosen is not None:
                last = part
        if last is None:
            return None
        for behind in range(index + 1, last.index + len(last.columns)):
            if best_after(last, behind) == draft:  # chosen behind what fills the row
                return last, last.column(behind)
        return last, last.column(index)

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
        best_score: tuple[bool, bool, int, bool, int] | None = None
        for index in range(len(ahead) + 1):
            known = ahead[index : index + len(tokens)]
            shared = common(tokens, known)
            if not shared and (known or index != due):
                continue
            is_exact, is_whole = own == list(range(index)), shared == len(known)
            score = (is_whole, is_exact, 0 if is_whole else shared, index == due, -abs(index - due))
            if best_score is None or score > best_score:
                best_score, part.index = score, index

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

    def _is_done(self, part: Part) -> bool:
        """Return whether nothing is verified after this forward, so that it does no harm."""
        rounds = self._requests[part.request].rounds
        return not any(verified.part.number > part.number for verified in rounds)
