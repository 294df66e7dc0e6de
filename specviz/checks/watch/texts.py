"""Compare a text with what the target writes, however the decoder came by it.

Contract: plain answers about finished texts. Not known here: forwards of a decoder, and causes.
"""

from collections.abc import Collection

import torch

from specviz.checks.watch.fresh import FreshRow
from specviz.checks.watch.requests import WatchedRequest


def is_own(
    request: WatchedRequest,
    fresh: FreshRow,
    tolerance: float,
    eos: Collection[int],
    budget: int | None,
) -> bool:
    """Return whether a text is the target's own, near ties apart, and ends where it must.

    Args:
        request: the text.
        fresh: the target's reading of it.
        tolerance: how far a near tie may lie below the best, in nats.
        eos: ids that end a text.
        budget: how many new tokens it may have; None if that is not known.
    """
    output = request.output
    scores = fresh.logprobs[len(request.prompt) - 1 : len(request.tokens) - 1]
    found = scores.gather(1, torch.tensor(output, dtype=torch.long)[:, None])[:, 0]
    # Written so that NaN counts as a difference.
    if not bool((scores.amax(1) - found <= tolerance).all()):
        return False
    if any(token in eos for token in output[:-1]):
        return False
    if budget is None:
        return True
    # A text that is not known is concluded from what was fed, which may end before it does.
    may_end = not request.is_known or (bool(output) and output[-1] in eos)
    return len(output) <= budget if may_end else len(output) == budget
