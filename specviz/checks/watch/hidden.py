"""Find the request of a row whose mask is so wrong that its own tokens look like padding.

Contract: each function sets a part's request, index and columns, and returns whether it found them.
Evidence is which tokens were fed. Not known here: how other rows are followed.
"""

from collections.abc import Sequence

from specviz.checks.watch.labels import Labels, owner_of
from specviz.checks.watch.requests import Part, WatchedRequest


def reads_new_prompt(part: Part, labels: Labels) -> bool:
    """Find the request whose unread prompt a part reads, though its mask is wrong.

    The part sees K/V of other requests, or not a single token. It has the whole prompt, or what it
    sees is of a text that has ended.
    """
    shown = part.columns
    owner = owner_of(part, labels)
    if shown and owner < 0:
        return False
    columns = shown or list(range(part.seen.tokens.shape[1]))
    tokens = part.seen.tokens[part.row, columns].tolist()
    has_ended = owner >= 0 and labels.requests[owner].is_done
    if owner >= 0:
        going = labels.requests[owner]
        if tokens[:1] == going.tokens[going.next_pending :][:1]:
            return False
    # Without logits the last token is often left to the first verification.
    left_out = 1 if part.seen.forward.top_ids is None else 0
    best = 1  # a single token proves nothing
    for number, request in enumerate(labels.requests):
        size = len(request.prompt) - left_out
        size = min(size, len(tokens)) if has_ended else size
        if not request.parts and size > best and tokens[:size] == request.prompt[:size]:
            best, part.request, part.columns = size, number, columns
    return best > 1


def hides_itself(part: Part, requests: Sequence[WatchedRequest]) -> bool:
    """Find the request that a row goes on with, though each token is hidden from itself.

    Padding sees nothing. This row sees K/V, and begins with the pending token of the request that
    it served before.
    """
    if part.columns or not part.seen.seen[part.row].any():
        return False
    first = [int(part.seen.tokens[part.row, 0])]
    for number, request in enumerate(requests):
        if not request.parts or request.is_done or request.row != part.row:
            continue
        if request.tokens[request.next_pending :][:1] == first:
            part.request = number
            part.columns = list(range(part.seen.tokens.shape[1]))
            part.index = request.next_pending
            return True
    return False
