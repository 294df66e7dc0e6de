"""Say of outputs that are not what was fed what they may be instead.

Contract: plain answers about finished texts. Not known here: forwards of a decoder, and causes.
"""

from collections.abc import Sequence

from specviz.checks.watch.arguments import without_filling
from specviz.checks.watch.requests import WatchedRequest, common


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
