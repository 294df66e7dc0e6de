"""Assign each token that a model read to its request.

Contract: `Labels` keeps what was found out, and knows which prompts begin alike; `context_of` and
`owner_of` say what a row sees. Not known here: how it is found out.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from specviz.checks.watch.requests import Part, WatchedRequest, common


@dataclass
class Labels:
    """Which token of which request each token is that a model read.

    Prompts that begin alike may have that beginning read only once. The K/V of all of them is then
    that of one request, and serves the others as if it were their own.

    Attributes:
        requests: all requests.
    """

    requests: Sequence[WatchedRequest]
    _by_entry: dict[int, tuple[int, int]] = field(default_factory=dict)
    _shared: dict[tuple[int, int], int] = field(default_factory=dict)

    def put(self, entry: int, request: int, index: int) -> None:
        self._by_entry[entry] = (request, index)

    def get(self, entry: int) -> tuple[int, int] | None:
        """Return (request, index) of a token; None if it is of no request."""
        return self._by_entry.get(entry)

    def of(self, entry: int, request: int) -> tuple[int, int] | None:
        """Return the same, as the request's own where its prompt begins alike."""
        label = self._by_entry.get(entry)
        if label is not None and label[1] < self.shared(label[0], request):
            return request, label[1]
        return label

    def shared(self, first: int, second: int) -> int:
        """Return how many tokens the prompts of two requests have in common."""
        if min(first, second) < 0:
            return 0
        pair = (first, second)
        if pair not in self._shared:
            self._shared[pair] = common(*(self.requests[each].prompt for each in pair))
        return self._shared[pair]

    def alike(self, owner: int, count: int) -> list[int]:
        """Return the requests that begin with the first `count` tokens of the owner."""
        beginning = self.requests[owner].tokens[:count]
        return [
            number
            for number, request in enumerate(self.requests)
            if count and request.tokens[:count] == beginning
        ]


def entries_before(part: Part) -> list[int]:
    """Return the tokens of earlier forwards whose K/V the first token of a part sees."""
    if not part.columns:
        return []
    seen, row = part.seen, part.row
    mine = set(seen.entries.ravel().tolist())
    visible = seen.held[row, seen.seen[row, part.columns[0]]]
    return [entry for entry in visible.tolist() if entry not in mine]


def context_of(part: Part, labels: Labels) -> list[tuple[int, int]]:
    """Return (request, index) of what the first token of a part sees of earlier forwards.

    If the part's request is known, what it shares with others is its own.
    """
    found = (labels.of(entry, part.request) for entry in entries_before(part))
    return [label for label in found if label is not None]


def owner_of(part: Part, labels: Labels) -> int:
    """Return the request of most of what a row sees; -1 if it sees nothing.

    What requests share counts for each of them.
    """
    entries = entries_before(part)
    owners = Counter(label[0] for label in map(labels.get, entries) if label is not None)
    shares: Counter[int] = Counter()
    for owner in owners:
        found = [labels.of(entry, owner) for entry in entries]
        shares[owner] = sum(label is not None and label[0] == owner for label in found)
    return shares.most_common(1)[0][0] if shares else -1


def goes_on(part: Part, labels: Labels, number: int, count: int) -> bool:
    """Return whether a part may be what a request reads next, behind `count` tokens."""
    request = labels.requests[number]
    if not request.parts or request.is_done or request.parts[-1].number == part.number:
        return False
    is_due = request.next_pending == count
    return is_due and request.tokens[count : count + 1] == part.tokens[:1]


def begins_behind_prefix(
    part: Part, labels: Labels, unread: Sequence[int], due: Callable[[int], Sequence[int]]
) -> bool:
    """Return whether a part begins with a prompt behind what another request has read.

    It then sees just what the two have in common, or the beginning of that. The part's request and
    index are set.

    Args:
        part: what was read.
        labels: of what was read before.
        unread: requests of which nothing has been read.
        due: gives a request's tokens, as far as they are known.
    """
    context = sorted(context_of(part, labels))
    count = len(context)
    owner = context[0][0] if context else -1
    if context != [(owner, index) for index in range(count)]:
        return False

    def fits(number: int, index: int) -> bool:
        least = len(labels.requests[number].prompt) - index
        return common(part.tokens, due(number)[index:]) >= min(len(part.tokens), max(least, 1))

    if not context and any(fits(number, 0) for number in range(len(labels.requests))):
        return False  # it begins a text, and nothing was lost
    parts = labels.requests[owner].parts
    is_read = bool(parts) and parts[-1].number == part.number  # by another row of the forward
    # The request that wrote the context may simply be going on, or another one with equal K/V.
    if fits(owner, count) and not is_read:
        return False
    if any(goes_on(part, labels, number, count) for number in labels.alike(owner, count)):
        return False
    able = [number for number in unread if labels.shared(owner, number) >= count]
    for number in able:
        if fits(number, count):
            part.request, part.index = number, count
            return True
    for number in able:  # a part of the beginning was lost
        for index in range(count + 1, len(labels.requests[number].prompt)):
            if fits(number, index):
                part.request, part.index = number, index
                return True
    return False
