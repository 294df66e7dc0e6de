"""How many drafts of a batch are worth verifying: the C that writes the most tokens a second.

A round writes b + the sum of the top C chances tokens, and takes t + V(b + C) ms, of which t is
drafting. V is a straight line through the times of the run's rounds so far, by tokens verified. The
chances fall from one draft to the next, so that the rate rises up to the best C and falls after it.

Two things follow from the line. The best C is found by going down the sorted chances until the rate
rises no more. So whether a draft is judged depends on no draft behind it, which
coupling="rejection" needs: a search over all C would look at those, and change the text. And V is
two numbers that the host knows, so that C is computed where the scores are and nothing waits for a
GPU. There the host does not know C, so the forward stays a rectangle. Where that costs the same for
any C, the line is flat and everything is verified.

Source: the rule is that of DSpark (arXiv 2607.05147), with times that are measured.
"""

import torch
from torch import Tensor

from specviz.engine.selectors.base import count_working
from specviz.engine.state import State


def best_capacity(state: State, scores: Tensor, ranked: Tensor, usable: Tensor) -> int | Tensor:
    """Return C for the round: a tensor (), or an int while there are too few times to go by.

    Args:
        scores: (b, K), logarithms of chances.
        ranked: (b, K), the scores by which drafts are chosen, infinite for those that are due.
        usable: bool (b, K).
    """
    rows = len(state.batch)
    working = count_working(state)
    line = state.times.line(rows, scores.shape[1])
    if line is None:
        # Rounds of two sizes are measured first: everything, and as many drafts as rows.
        return working if state.round % 2 else working * scores.shape[1]
    found, order = sortable(ranked, usable).flatten().sort(descending=True)
    chances = sortable(scores, usable).flatten()[order].exp()
    return rising(chances, working, *line, is_due=found == torch.inf)


def sortable(scores: Tensor, usable: Tensor) -> Tensor:
    """Return the scores with the lowest finite one for NaN, and less for what is not usable."""
    lowest = torch.finfo(scores.dtype).min
    return scores.nan_to_num(lowest, torch.inf, lowest).masked_fill(~usable, -torch.inf)


def rising(
    chances: Tensor, working: int, base_ms: float, draft_ms: float, is_due: Tensor | None = None
) -> Tensor:
    """Return how many of the first drafts each let the round write more tokens a second, ().

    Args:
        chances: (n,), that each draft is accepted, none larger than the one before it but for
            those that are due.
        working: rows that write a token of the target's own.
        base_ms: what the round takes without any of these drafts.
        draft_ms: what it takes more for each that is verified.
        is_due: bool (n,), drafts that are verified in any case, which come first.
    """
    tokens = working + torch.nn.functional.pad(chances.cumsum(0), (1, 0))
    counts = torch.arange(len(tokens), device=tokens.device)
    rate = tokens / (base_ms + draft_ms * counts)  # (n+1,)
    rises = rate[1:] > rate[:-1]
    if is_due is not None:
        rises |= is_due
    return rises.long().cumprod(0).sum()
