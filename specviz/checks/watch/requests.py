"""What a decoder did for each request, as far as its forwards show it.

Contract: plain values, and what can be computed from them. Not known here: how it is found out.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from specviz.checks.watch.origins import SeenForward


@dataclass
class Part:
    """What one row of one forward read of a request.

    Attributes:
        seen: the forward.
        row: the row.
        request: the request; -1 if it cannot be known.
        columns: the columns of the tokens that are not padding, in order.
        index: of the first of them, in its own row.
    """

    seen: SeenForward = field(repr=False)
    row: int
    request: int
    columns: list[int]
    index: int

    @property
    def number(self) -> int:
        """Of the forward."""
        return self.seen.forward.number

    @property
    def place(self) -> tuple[int, int]:
        """Its forward and its row."""
        return self.number, self.row

    @property
    def tokens(self) -> list[int]:
        """The tokens that are not padding."""
        return [int(token) for token in self.seen.tokens[self.row, self.columns]]

    def column(self, index: int) -> int:
        """Return the column of a token, given its index."""
        return self.columns[index - self.index]

    def fill(self, count: int) -> None:
        """Keep this many columns of a prompt; what lies behind them fills the rectangle.

        Nor are the last ones kept of which nothing was stored: padding that looks like text.
        """
        self.columns = self.columns[:count]
        stored = np.flatnonzero(self.seen.slots[self.row, self.columns] >= 0)
        if stored.size:  # else it is not known what was
            self.columns = self.columns[: int(stored[-1]) + 1]


@dataclass
class WatchedRound:
    """One request in one round: what the target was asked, and what came of it.

    Attributes:
        part: the tokens that were read.
        pending: the index of the pending token.
        drafts: the tokens behind it.
        matched: how many of them are in the output, from the first on.
        gained: how many tokens the row gained; 0 if it had finished.
    """

    part: Part
    pending: int
    drafts: list[int]
    matched: int = 0
    gained: int = 0

    @property
    def accepted(self) -> int:
        """Drafts that were accepted: all that was gained but for the target's own token."""
        return min(self.matched, max(self.gained - 1, 0)) if not self.is_last else self.kept

    is_last: bool = False

    def is_misfed(self, request: "WatchedRequest") -> bool:
        """Return whether another token was fed in the place of the pending one."""
        fed = self.part.tokens[self.pending - self.part.index]
        return [fed] != request.tokens[self.pending : self.pending + 1]

    @property
    def kept(self) -> int:
        """Accepted drafts of a last round, in which the budget or EOS may cut the bonus."""
        return min(self.matched, self.gained)


@dataclass
class WatchedRequest:
    """One prompt, and what became of it.

    Attributes:
        prompt: its tokens.
        tokens: the prompt and all tokens that followed.
        is_known: whether the output was given, rather than concluded from the forwards.
        rounds: what was verified, in order.
        dropped: what was verified and came to nothing: its pending token was fed once more.
        idle: parts that were read after the request had finished.
        parts: all that was read, but for what was read after the end.
        row: where it was read last.
        has_ended: whether a text that is not known is concluded to its end.
    """

    prompt: list[int]
    tokens: list[int]
    is_known: bool
    rounds: list[WatchedRound] = field(default_factory=list, repr=False)
    dropped: list[WatchedRound] = field(default_factory=list, repr=False)
    idle: list[Part] = field(default_factory=list, repr=False)
    parts: list[Part] = field(default_factory=list, repr=False)
    row: int = -1
    has_ended: bool = False

    @property
    def output(self) -> list[int]:
        return self.tokens[len(self.prompt) :]

    @property
    def next_pending(self) -> int:
        """The index that the pending token has next, if all matching drafts were accepted."""
        if not self.rounds:
            return len(self.prompt) - 1
        last = self.rounds[-1]
        return last.pending + last.matched + 1

    def after(self, number: int) -> WatchedRound | None:
        """Return what was verified next after a forward; None if nothing was."""
        return next((each for each in self.rounds if each.part.number > number), None)

    def read_next(self, number: int) -> Part | None:
        """Return what the target verified next after a forward, also if nothing came of it."""
        later = [
            verified.part
            for verified in (*self.rounds, *self.dropped)
            if verified.part.number > number
        ]
        return min(later, key=lambda part: part.number, default=None)

    def drop_end(self) -> None:
        """Drop a last round in which a draft stood in the place of the last token of all."""
        while len(self.rounds) > 1:
            last = self.rounds[-1]
            if last.pending < len(self.tokens) - 1 or not last.is_misfed(self):
                return
            self.dropped.append(self.rounds.pop())

    @property
    def is_done(self) -> bool:
        ends = self.is_known or self.has_ended
        return bool(self.rounds) and ends and self.next_pending >= len(self.tokens) - 1


def best_after(part: Part, index: int) -> int | None:
    """Return the model's best token after the one with this index; None if it is not known."""
    ids = part.seen.forward.top_ids
    if ids is None or not part.index <= index < part.index + len(part.columns):
        return None
    place = part.column(index) - (part.seen.tokens.shape[1] - ids.shape[1])
    return int(ids[part.row, place, 0]) if place >= 0 else None


def choices(verified: WatchedRound) -> list[int]:
    """Return the target's choice after the pending token and after each draft; [] if unknown."""
    part = verified.part
    end = part.index + len(part.columns)
    found = [best_after(part, index) for index in range(verified.pending, end)]
    return [token for token in found if token is not None]


def conclude(
    request: WatchedRequest, verified: WatchedRound, eos: Collection[int], budget: int | None
) -> None:
    """Extend a request whose output is not known by what the target chose, up to its end."""
    # A round that is verified again replaces what was concluded from it before.
    del request.tokens[verified.pending + 1 :]
    chosen = choices(verified)
    accepted = common(verified.drafts, chosen)
    request.tokens += [*verified.drafts[:accepted], *chosen[accepted : accepted + 1]]
    ends = [i + 1 for i, token in enumerate(request.output) if token in eos]
    if budget is not None and len(request.output) >= budget:
        ends.append(budget)
    if ends:
        del request.tokens[len(request.prompt) + min(ends) :]
        request.has_ended = True


def common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many tokens two lists share at their beginning."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count
