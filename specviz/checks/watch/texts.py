"""Say of a text whether it is what the target writes, and what it may be instead.

Contract: plain answers about finished texts. Not known here: forwards of a decoder, and causes.
"""

from collections.abc import Collection, Sequence

import torch

from specviz.checks.watch.arguments import without_filling
from specviz.checks.watch.fresh import FreshRow
from specviz.checks.watch.requests import WatchedRequest, common


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


def without_prompts(
    prompts: Sequence[Sequence[int]], outputs: Sequence[list[int] | None], eos: Sequence[int]
) -> tuple[list[list[int] | None], str]:
    """Return outputs without the prompts that they begin with, also behind padding.

    The second value says of the first of them what it begins with; "" if there is none.
    """
    found = list(outputs)
    said = ""
    for i, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        place = -1 if output is None else _place(output, list(prompt))
        if output is None or place < 0:
            continue
        found[i] = without_filling(output[place + len(prompt) :], eos)
        what = "padding and its prompt" if place else "its prompt"
        said = said or f"outputs[{i}] begins with {what}; pass the new tokens alone"
    return found, said


def _place(output: list[int], prompt: list[int]) -> int:
    """Return where a prompt lies behind one and the same token; -1 if it lies nowhere."""
    for place in range(len(output) - len(prompt) + 1):
        if len(set(output[:place])) > 1:
            break
        if output[place : place + len(prompt)] == prompt:
            return place
    return -1


def out_of_order(
    outputs: Sequence[Sequence[int] | None], requests: Sequence[WatchedRequest]
) -> str:
    """Say which output is the text of another request; "" if none is.

    Args:
        outputs: what was returned for each request.
        requests: with the texts that the forwards imply, which may go on behind the outputs.
    """
    for i, output in enumerate(outputs):
        if not output:
            continue
        fits = [common(output, each.output) == len(output) for each in requests]
        if any(fits) and not fits[i]:
            return (
                f"outputs[{i}] is the text of request {fits.index(True)}; return the texts in the "
                "order of the prompts"
            )
    return ""
