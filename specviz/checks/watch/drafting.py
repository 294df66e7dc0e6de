"""Find what makes drafts worse that MTP layers or DFlash give.

Contract: `Drafting` compares what the query of each verified draft attended to with what is due
from nothing. A fault here leaves the text right. A shift that all positions share is harmless. Not
known here: hooks, and how what is due is computed.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np
import torch
from torch import Tensor

from specviz.checks.watch.drafter import CapturedDrafting
from specviz.checks.watch.drafts import DraftFault
from specviz.checks.watch.due import Due, Truth
from specviz.checks.watch.origins import Origins, SeenForward
from specviz.checks.watch.prints import bit_print, sketch
from specviz.checks.watch.requests import WatchedRequest, WatchedRound
from specviz.record.schema import Array

ROUGH = 0.5  # how far off a hidden state may be in half precision, where another expert is chosen
MOST = 0.5  # of a request's drafts are others where their places are wrong
FAR = 10**9  # the position of K/V that no call left
SHIFTED = 0.9  # of them are then those of the next places

Query = tuple[SeenForward, int, int]  # forward, row, column


class Drafting:
    """What a drafter was given for the drafts that were verified.

    Args:
        truth: what it should have been given.
        requests: what the target read.
        forwards: of the drafter, in order.
        ids: all tokens that the drafter may have been given.
        eps: the precision of the models.
        greedy: whether drafts are the drafter's best tokens; else it is not judged which they are.

    Attributes:
        faults: by request, the first one.
        lost, judged: how many drafts are not those from nothing, of how many; 0 if not greedy.
        unseen: how many drafts were verified of which no query was seen.
    """

    def __init__(
        self,
        truth: Truth,
        requests: Sequence[WatchedRequest],
        forwards: Sequence[CapturedDrafting],
        ids: Sequence[int],
        eps: float,
        *,
        greedy: bool,
    ) -> None:
        self.faults: dict[int, DraftFault] = {}
        self.lost = self.judged = self.unseen = 0
        self._truth, self._requests, self._eps, self._greedy = truth, requests, eps, greedy
        self._entries: dict[int, _Entries] = {}
        marks = bit_print(truth.embeddings(ids)[None, None], 0)[0].tolist()
        names = dict(zip(marks, ids, strict=True))
        self._seen: list[SeenForward] = []
        self._depths = {forward.number: forward.depth for forward in forwards}
        for forward in forwards:
            entries = self._entries.setdefault(forward.depth, _Entries())
            if forward.rotation is not None:
                forward.positions = truth.positions(forward.rotation, forward.depth)
            self._seen.append(entries.read(forward, names))

    def judge(self, number: int) -> None:
        """Judge the drafts of a request that were verified."""
        request = self._requests[number]
        windows = [(each, self._between(request, each)) for each in request.rounds]
        windows = [(each, calls) for each, calls in windows if calls]
        lost = judged = 0
        cause, first = "", None
        for verified, calls in windows:
            is_next = True  # the drafter gave the draft before, and so has to read it
            for place, due in enumerate(
                self._truth.of(request.tokens, verified.pending, verified.drafts)
            ):
                query = self._query(calls, due, verified.part.row, anyhow=is_next)
                is_next = self._greedy and due.best == verified.drafts[place]
                is_lost = self._greedy and due.best != verified.drafts[place]
                judged += self._greedy
                lost += is_lost
                if query is None:
                    self.unseen += not is_lost
                elif first is None:
                    cause = self._first(query, due, number)
                    first = query if cause else None
        if lost > MOST * judged:
            places = self._of_places(request, windows)
            if places:
                cause = places
                verified, calls = windows[0]
                first = calls[-1], verified.part.row, 0
        self.lost += lost
        self.judged += judged
        if first is not None:
            self.faults[number] = DraftFault(number, first[1], first[0].forward.number, cause)

    def _of_places(
        self, request: WatchedRequest, windows: Sequence[tuple[WatchedRound, list[SeenForward]]]
    ) -> str:
        """Say whether drafts are verified one place too early or too late; "" if they are not."""
        fits: Counter[int] = Counter()
        known: Counter[int] = Counter()
        for verified, _ in windows:
            own = self._truth.choices(request.tokens, verified.pending, len(verified.drafts))
            for place, draft in enumerate(verified.drafts):
                for shift in (-1, 1):
                    known[shift] += place + shift in own
                    fits[shift] += own.get(place + shift) == draft
        shift = max((-1, 1), key=lambda each: fits[each])
        if fits[shift] <= SHIFTED * known[shift]:
            return ""
        way = "late" if shift < 0 else "early"
        return (
            f"drafts are verified one place too {way}: {fits[shift]} of {known[shift]} are what it "
            f"gives for the place {'before' if shift < 0 else 'behind'}"
        )

    def _between(self, request: WatchedRequest, verified: WatchedRound) -> list[SeenForward]:
        """Return the drafter's calls between the request's last forward and its verification."""
        read = [*request.parts, *(each.part for each in request.dropped)]
        end = verified.part.number
        start = max((part.number for part in read if part.number < end), default=-1)
        return [each for each in self._seen if start < each.forward.number < end]

    def _query(
        self, window: Sequence[SeenForward], due: Due, row: int, *, anyhow: bool
    ) -> Query | None:
        """Return the query of a draft: that of its token which attends to most of what is due.

        anyhow: whether it is one of another token where there is none of this.
        """
        entries = self._entries.get(due.depth)
        own = [seen for seen in window if self._depths[seen.forward.number] == due.depth]
        if entries is None or not own:
            return None
        for wanted in (due.tokens[due.query], None) if anyhow else (due.tokens[due.query],):
            places = [
                (seen, at, column)
                for seen in own
                for at, column in self._columns(seen, due)
                if wanted is None or seen.tokens[at, column] == wanted
            ]
            if places:
                return max(places, key=lambda place: self._score(entries, place, due, row))
        return None

    def _columns(self, seen: SeenForward, due: Due) -> Iterable[tuple[int, int]]:
        """Return rows and columns of the queries that may be that of a draft."""
        rows, count = seen.tokens.shape
        columns = range(count)
        if due.is_block:  # whose places are known
            columns = range(count)[count - seen.forward.queries[1] :]
            columns = columns[due.query - int((due.tokens < 0).sum()) :][:1]
        return product(range(rows), columns)

    def _score(
        self, entries: "_Entries", place: Query, due: Due, row: int
    ) -> tuple[int, bool, bool, int]:
        """Return how much of what is due a query attends to, and what tells it from others."""
        seen, at, column = place
        held = entries.visible(seen, at, column)
        tokens = Counter(due.tokens[due.least :].tolist())
        # All may be wrong but the tokens, and other rows may have the query's own.
        shared = (tokens & Counter(entries.token[held].tolist())).total()
        alike = self._matches(entries, held, due)[:, due.least :]
        shared += min(int(alike.any(axis).sum()) for axis in (0, 1))
        is_placed = bool(seen.positions[at, column] == due.positions[due.query])
        size = len(due.tokens) - due.least
        return shared - 2 * abs(len(held) - size), is_placed, at == row, seen.forward.number

    def _matches(self, entries: "_Entries", held: Array, due: Due) -> Array:
        """Return which entries are made of the same token and hidden state, (held, n)."""
        same = entries.token[held][:, None] == due.tokens
        same &= (held >= 0)[:, None]  # else it is of no call
        return same & self._alike(entries.hidden[torch.from_numpy(held)], due.hidden)

    def _alike(self, given: Tensor, due: Tensor) -> Array:
        """Return which sketches are equal but for rounding, (given, due); NaN equals NaN."""
        off = torch.cdist(given.nan_to_num(), due.nan_to_num())
        size = due.nan_to_num().norm(dim=1)
        found = off <= self._eps**0.5 * size
        if self._eps > 1e-5 and len(due):
            found |= (off <= 2 * off.amin(1, keepdim=True)) & (off <= ROUGH * size)
        same = given.isnan().any(1)[:, None] == due.isnan().any(1)
        return (found & same).numpy()

    def _first(self, query: Query, due: Due, number: int) -> str:
        """Say which input of a query is wrong; "" if none is."""
        seen, row, column = query
        entries = self._entries[due.depth]
        held = entries.visible(seen, row, column)
        found = _paired(entries, held, due, self._matches(entries, held, due))
        whose = self._named(due, due.query)
        for at in range(due.least, len(due.tokens)):
            if at not in found:
                if (held < 0).any():
                    whose += " attends to K/V that no call left, and"
                return f"{whose} does not attend to {self._named(due, at)}"
            entry = held[found[at]]
            if not self._matches(entries, held[[found[at]]], due)[0, at]:
                cause = self._of_entry(entries, entry, due, at, number)
                made = entries.where[entry][0]
                return cause + (", and was not read again" if made < seen.forward.number else "")
        extra = [entry for i, entry in enumerate(held) if i not in found.values()]
        if extra:
            what = "K/V that no call left" if extra[0] < 0 else entries.named(extra[0])
            return f"{whose} also attends to {what}"
        return self._of_positions(entries, held, found, due)

    def _named(self, due: Due, at: int) -> str:
        if not due.is_block:
            return f"entry {at} of layer {due.depth}"
        context = int((due.tokens < 0).sum())
        return f"the context at {at}" if at < context else f"place {at - context} of the block"

    def _of_entry(self, entries: "_Entries", entry: int, due: Due, at: int, number: int) -> str:
        """Say which token or hidden state of an entry is wrong."""
        made = f"{self._named(due, at)}, made in forward {entries.where[entry][0]}, has"
        token = int(entries.token[entry])
        if token != due.tokens[at]:
            given = f"token id {token}" if token >= 0 else "the embedding of no token of this run"
            return f"{made} {given} instead of {due.tokens[at]}"
        of = "that" if due.depth == 0 else f"the output of layer {due.depth - 1}"
        given = self._of_hidden(entries.hidden[entry], due, number)
        return f"{made} {given} instead of {of} at {at}"

    def _of_positions(
        self, entries: "_Entries", held: Array, found: dict[int, int], due: Due
    ) -> str:
        """Say which position is wrong; "" if all are too large by the same number."""
        given = {at: int(entries.position[held[i]]) for at, i in sorted(found.items())}
        shifts = {at: given[at] - int(due.positions[at]) for at in given if given[at] >= 0}
        if len(set(shifts.values())) <= 1:
            return ""
        shift = 0 if 0 in shifts.values() else next(iter(shifts.values()))
        at = next(at for at in shifts if shifts[at] != shift)
        return (
            f"{self._named(due, at)}, made in forward {entries.where[held[found[at]]][0]}, has "
            f"position {given[at]} instead of {due.positions[at] + shift}"
        )

    def _of_hidden(self, given: Tensor, due: Due, number: int) -> str:
        """Say what a hidden state is."""
        request = self._requests[number]
        for i in [number, *(i for i in range(len(self._requests)) if i != number)]:
            at = self._at(given, sketch(self._truth.hidden(self._requests[i].tokens)))
            if at is not None:
                return f"the hidden state at {at}" + ("" if i == number else f" of request {i}")
        at = self._at(given, due.hidden) if due.depth else None
        if at is not None:
            return f"that at {at}"
        for verified in request.rounds:
            ahead = [*request.tokens[: verified.pending + 1], *verified.drafts]
            at = self._at(given, sketch(self._truth.hidden(ahead)))
            if at is not None:
                return f"the hidden state at {at}, of a rejected draft,"
        for depth, entries in self._entries.items():
            if entries.left is not None and self._alike(given[None], entries.left)[0].any():
                return f"what layer {depth} gave in an earlier call"
        return "one that the target has nowhere in these rows"

    def _at(self, given: Tensor, hidden: Tensor) -> int | None:
        found = np.flatnonzero(self._alike(given[None], hidden)[0])
        return int(found[0]) if found.size else None


class _Entries:
    """All that one depth of a drafter has read.

    Attributes:
        token, position: (n,), of each entry; -1 for no token, -2 for an unknown one.
        hidden: (n, size), sketches; left: of what was given.
        where: forward, row and column of each.
    """

    def __init__(self) -> None:
        self._origins = Origins()
        self.token = self.position = np.zeros(0, dtype=np.int64)
        self.hidden = torch.zeros(0, 0)
        self.left: Tensor | None = None

    @property
    def where(self) -> list[tuple[int, int, int]]:
        return self._origins.where

    def read(self, forward: CapturedDrafting, names: dict[int, int]) -> SeenForward:
        """Read the next call, in which tokens are the prints of their embeddings."""
        marks = forward.tokens.cpu().numpy()
        if forward.seen is not None:  # that of a block, or of all entries
            rows, count = forward.seen.shape[0], forward.shape[1] - forward.seen.shape[1]
            first = forward.seen[:, :1].expand(rows, count, -1)
            forward.seen = torch.cat([first, forward.seen], 1)
        before = len(self.where)
        seen = self._origins.read(forward)
        seen.tokens = np.array([names.get(mark, -2) for mark in marks.flat]).reshape(marks.shape)
        if forward.block:
            seen.tokens[:, : -forward.block] = -1
        new = [(row, column) for _, row, column in self.where[before:]]
        rows, columns = np.array(new).T
        self.token = np.append(self.token, seen.tokens[rows, columns])
        self.position = np.append(self.position, seen.positions[rows, columns])
        hidden = forward.hidden[rows, columns]
        self.hidden = torch.cat([self.hidden.reshape(-1, hidden.shape[1]), hidden])
        if forward.left is not None:
            left = forward.left.flatten(0, 1)
            self.left = left if self.left is None else torch.cat([self.left, left])
        return seen

    def visible(self, seen: SeenForward, row: int, column: int) -> Array:
        """Return the entries that a query attends to."""
        found: Array = seen.held[row, seen.seen[row, column]]
        return found

    def named(self, entry: int) -> str:
        number, row, _ = self.where[entry]
        return (
            f"an entry of token id {self.token[entry]} at position {self.position[entry]}, made in "
            f"forward {number}, row {row}"
        )


def _paired(entries: _Entries, held: Array, due: Due, alike: Array) -> dict[int, int]:
    """Return {place of what is due: place among what a query attends to}.

    Args:
        alike: (held, n), which are made of the same token and hidden state. Where these are not
            all, what lies at the right position is paired first.
    """
    off = np.where(held < 0, FAR, entries.position[held])[:, None] - due.positions
    shift = Counter(off[alike].tolist()).most_common(1)[0][0] if alike.any() else 0
    due_at = range(len(due.tokens))

    def pair(*order: Array) -> dict[int, int]:
        found: dict[int, int] = {}
        left = set(range(len(held)))
        for able in order:
            for at in (at for at in due_at if at not in found):
                fit = left.intersection(np.flatnonzero(able[:, at]).tolist())
                if fit:
                    found[at] = max(fit, key=lambda i: held[i])
                    left.discard(found[at])
        return found

    in_place = alike & (off == 0)
    for order in ([in_place], [alike & (off == shift)], [in_place, alike]):
        found = pair(*order)
        if len(found) == len(held) and found.keys() >= set(due_at[due.least :]):
            return found
    return pair(in_place, np.broadcast_to(off == 0, alike.shape), alike)
