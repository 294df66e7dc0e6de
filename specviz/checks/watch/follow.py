"""Follow requests through the forwards of a decoder that says nothing about them.

Contract: `TargetFollower` says for each row of each forward of the target which request it serves,
which index its first token has, and whether drafts were verified there. Evidence is what was fed,
what the slots hold, and the outputs. Not known here: models, and what is right.
"""

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from specviz.checks.watch.capture import CapturedForward
from specviz.checks.watch.hidden import hides_itself, reads_new_prompt
from specviz.checks.watch.labels import (
    Labels,
    begins_behind_prefix,
    context_of,
    goes_on,
    owner_of,
)
from specviz.checks.watch.origins import Origins, SeenForward
from specviz.checks.watch.requests import Part, WatchedRequest, WatchedRound, common, conclude


class TargetFollower:
    """Follows the target's forwards.

    Args:
        prompts: tokens of each prompt.
        outputs: new tokens of each, or None where they are not known.
        eos, budget: what ends a text that is not known; None for no budget.
    """

    def __init__(
        self,
        prompts: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int] | None],
        eos: Sequence[int] = (),
        budget: int | None = None,
    ) -> None:
        self.origins = Origins()
        self.requests: list[WatchedRequest] = []
        self.parts: list[Part] = []
        self.labels = Labels(self.requests)
        self._served: Counter[int] = Counter()  # rows of a forward by request, as they see it
        self.forks = 0  # rows of forwards that read a request which another row reads as well
        self._eos = frozenset(eos)
        self._budget = budget
        for prompt, output in zip(prompts, outputs, strict=True):
            tokens = [*prompt, *(output or ())]
            self.requests.append(WatchedRequest(list(prompt), tokens, output is not None))

    def read(self, forward: CapturedForward) -> None:
        """Read the next forward of the target."""
        seen = self.origins.read(forward)
        rows = range(len(seen.tokens))
        # All rows first: whether two rows serve one request cannot be seen from either.
        self._served = Counter(owner_of(self._empty(seen, row), self.labels) for row in rows)
        for row in rows:
            part = self._part(seen, row)
            self.parts.append(part)
            if part.request >= 0:
                self._note(part)

    def finish(self) -> None:
        """Say what the last rounds gained."""
        for request in self.requests:
            request.drop_end()
            for i, verified in enumerate(request.rounds):
                if i + 1 < len(request.rounds):
                    verified.gained = request.rounds[i + 1].pending - verified.pending
                else:
                    verified.gained = len(request.tokens) - 1 - verified.pending
                    verified.is_last = True

    def _empty(self, seen: SeenForward, row: int) -> Part:
        """Return a row whose request is not known yet."""
        return Part(seen, row, -1, np.flatnonzero(~seen.padding[row]).tolist(), 0)

    def _part(self, seen: SeenForward, row: int) -> Part:
        part = self._empty(seen, row)
        if hides_itself(part, self.requests):
            return part
        if reads_new_prompt(part, self.labels) or not part.columns:
            return part
        unread = [number for number, each in enumerate(self.requests) if not each.parts]
        if begins_behind_prefix(part, self.labels, unread, lambda i: self.requests[i].tokens):
            return part
        context = context_of(part, self.labels)
        part.request = owner_of(part, self.labels)
        if self._served[part.request] > 1:
            alike = self.labels.alike(part.request, len(context))
            part.request = self._waiting(part, {*alike, *(request for request, _ in context)})
        elif part.request >= 0:
            part.request = self._of_beginning(part, len(context))
        if part.request >= 0:
            context = context_of(part, self.labels)
            own = [index for request, index in context if request == part.request]
            part.index = self._index(self.requests[part.request], part.tokens, own, len(context))
            if self._fits(part):
                return part
        elif self._find_prompt(part):
            return part
        self._find_pending(part)
        return part

    def _waiting(self, part: Part, seen: Collection[int]) -> int:
        """Return which request's pending token a part begins with, if rows see the same K/V.

        That is so after K/V was copied over another row's. The row then serves one of the requests
        that it sees, or the one that it served before.
        """

        def likely(number: int) -> tuple[bool, bool, bool, int]:
            request = self.requests[number]
            shared = common(part.tokens, request.tokens[request.next_pending :])
            is_served = request.parts[-1].number == part.number  # by another row
            return shared > 0, not is_served, request.row == part.row, shared

        able = [
            number
            for number, request in enumerate(self.requests)
            if request.parts and not request.is_done and (number in seen or request.row == part.row)
        ]
        best = max(able, key=likely, default=part.request)
        return best if able and likely(best)[0] else part.request

    def _of_beginning(self, part: Part, count: int) -> int:
        """Return which of the requests that begin alike goes on behind `count` tokens.

        Their K/V is equal there, so what a row sees does not tell whose it is.
        """
        if goes_on(part, self.labels, part.request, count):
            return part.request
        able = self.labels.alike(part.request, count)
        return next((i for i in able if goes_on(part, self.labels, i, count)), part.request)

    def _fits(self, part: Part) -> bool:
        """Return whether the first token of a part is the request's at its index."""
        request = self.requests[part.request]
        if request.is_done and self._find_pending(part):  # another one in its place
            return True
        due = request.tokens[part.index : part.index + 1]
        return due == part.tokens[:1] or part.index >= len(request.tokens)

    def _find_prompt(self, part: Part) -> bool:
        """Find the request of a part that reads it from the first token on."""
        columns = part.columns
        for skipped in range(len(columns)):  # padding that its row can see
            part.columns = columns[skipped:]
            part.request = self._of_tokens(part.tokens, part.row)
            # A few tokens at the end of anything may look like the beginning of a prompt.
            if part.request >= 0 and (
                not skipped
                or len(part.columns) >= max(len(self.requests[part.request].prompt) - 1, 2)
            ):
                return True
        part.request = -1
        part.columns = columns
        return False

    def _find_pending(self, part: Part) -> bool:
        """Find the request whose pending token a part begins with, whatever its slots hold.

        A mask may hide that token, as if it were padding. Requests that other rows serve are left
        out.
        """
        hidden = part.columns[0] - 1
        found = (0, False, part.request, part.columns)
        for number, request in enumerate(self.requests):
            due = request.next_pending
            is_over = request.is_done or due >= len(request.tokens)
            if not request.parts or is_over or number in set(self._served) - {part.request}:
                continue
            for columns in ([hidden, *part.columns] if hidden >= 0 else [], part.columns):
                tokens = part.seen.tokens[part.row, columns].tolist() if columns else []
                shared = common(tokens, request.tokens[due:])
                if (shared, request.row == part.row) > found[:2]:
                    found = (shared, request.row == part.row, number, columns)
        if found[0]:
            part.request, part.columns = found[2:]
            part.index = self.requests[part.request].next_pending
        return found[0] > 0

    def _of_tokens(self, tokens: list[int], row: int) -> int:
        """Return the request whose tokens these are, from the first on; -1 for none."""
        best, found = (0, False, False, False, False), -1
        for number, request in enumerate(self.requests):
            shared = common(tokens, request.tokens)
            if shared < min(len(tokens), len(request.prompt)):
                continue
            # Of texts that begin alike, one that was read and not gone on with is not read again.
            waits = bool(request.parts) and not request.rounds
            is_free = not request.is_done and not waits
            # Nor is one read again from its beginning without the token that its last round gave.
            advances = is_free and (not request.rounds or shared > request.rounds[-1].pending + 1)
            score = (shared, advances, is_free, request.row == row, not request.parts)
            if score > best:
                best, found = score, number
        return found

    def _index(
        self, request: WatchedRequest, tokens: list[int], own: list[int], context: int
    ) -> int:
        """Return the index of the first of these tokens.

        Args:
            request: whose tokens they are.
            tokens: the tokens that were fed.
            own: indices of the request's tokens in the slots that the first of them sees.
            context: how many tokens of any request these slots hold.
        """
        if not request.rounds:  # a prompt that is read in parts
            return max(own, default=-1) + 1
        due = min(request.next_pending, len(request.tokens) - 1)
        is_exact = len(own) == context and sorted(own) == list(range(context))
        # Rejected drafts that are still seen look like a longer context if the text repeats itself.
        shared = common(tokens, request.tokens[due:])
        is_behind = context > due and 0 < shared >= common(tokens, request.tokens[context:])
        if is_exact and not is_behind and request.tokens[context : context + 1] == tokens[:1]:
            return context
        for index in range(due, -1, -1):
            known = request.tokens[index : due + 1]
            if known == tokens[: len(known)]:
                return index
        is_due = is_exact and context == due  # and another token was fed in its place
        if is_due or request.is_done:  # what is read behind the end of a text is in no output
            return request.next_pending
        for index in range(due, -1, -1):
            if request.tokens[index] == tokens[0]:
                return index
        return request.next_pending

    def _note(self, part: Part) -> None:
        """Add a part to its request, and what it verified."""
        request = self.requests[part.request]
        request.row = part.row
        has_logits = part.seen.forward.top_ids is not None
        if not has_logits:  # a prompt; what lies behind it fills the rectangle
            read = common(part.tokens, request.tokens[part.index :])
            part.fill(read)
        for i, column in enumerate(part.columns):
            entry = int(part.seen.entries[part.row, column])
            self.labels.put(entry, part.request, part.index + i)
        was_read = part.index + len(part.columns)
        if was_read < len(request.prompt) or not has_logits:
            request.parts.append(part)
            return
        rival = None
        if request.rounds and request.rounds[-1].part.number == part.number:
            rival = request.rounds.pop()  # several rows try drafts of one request
            self.forks += 1
        pending = self._pending(request, part) if request.rounds else request.next_pending
        if request.is_done and not self._goes_back(request, part, pending):
            # Many decoders keep finished rows in the batch. That costs time and changes no text.
            request.idle.append(part)
            return
        request.parts.append(part)
        drafts = part.tokens[pending - part.index + 1 :]
        verified = WatchedRound(part, pending, drafts)
        reads_again = pending > part.index
        while request.rounds and request.rounds[-1].pending >= pending:
            if request.rounds[-1].pending > pending and not reads_again:
                break
            request.dropped.append(request.rounds.pop())
        if not request.is_known:
            conclude(request, verified, self._eos, self._budget)
        verified.matched = common(drafts, request.tokens[pending + 1 :])
        is_worse = rival is not None and rival.matched >= verified.matched
        request.rounds.append(rival if rival is not None and is_worse else verified)

    def _pending(self, request: WatchedRequest, part: Part) -> int:
        """Return the index of the pending token among those that were fed."""
        due = request.next_pending
        if part.index > due:  # more was accepted than the drafts that the target read
            return part.index
        first = request.rounds[-1].pending
        if first <= part.index <= due and self._sees_all(part):
            if not self._reads_again(request, part, due):
                return part.index
            return due
        last = min(due, part.index + len(part.columns) - 1)
        for index in range(last, part.index, -1):
            known = request.tokens[part.index : index + 1]
            if known == part.tokens[: len(known)]:
                return index
        return part.index

    def _goes_back(self, request: WatchedRequest, part: Part, pending: int) -> bool:
        """Return whether a request that seemed to be done had not kept all that was right."""
        last = request.rounds[-1]
        first = last.pending if last.is_misfed(request) else last.pending + 1
        is_between = first <= pending < len(request.tokens) - 1
        return is_between and part.tokens[pending - part.index] == request.tokens[pending]

    def _reads_again(self, request: WatchedRequest, part: Part, due: int) -> bool:
        """Return whether a part begins with committed tokens, rather than after a cut acceptance.

        Both look alike where its tokens are those of the output up to the due one. A decoder that
        reads tokens again feeds more of them than it ever drafted.
        """
        known = request.tokens[part.index : due + 1]
        if len(known) < 2 or known != part.tokens[: len(known)]:
            return False
        most = max(len(verified.drafts) for verified in request.rounds)
        return bool(most) and len(part.columns) - 1 > most

    def _sees_all(self, part: Part) -> bool:
        """Return whether the first token sees all tokens before it, and no other."""
        found = sorted(index for _, index in context_of(part, self.labels))
        return found == list(range(part.index))
