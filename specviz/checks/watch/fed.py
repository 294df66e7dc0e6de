"""Say which prompts are not what was fed.

Contract: prompts and what the target read go in, a difference comes out. Not known here: verdicts.

A decoder that reads padding as text is at fault, and its prompts are right: so one and the same
token before prompts, as often as fills a rectangle, is no part of them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specviz.checks.watch.origins import NOTHING
from specviz.checks.watch.requests import Part, WatchedRequest, best_after, common
from specviz.util.validate import short

ENOUGH = 3  # tokens that show that a prompt was read, if it has as many


@dataclass(frozen=True)
class FedPrompt:
    """What was fed for a prompt.

    Attributes:
        tokens: all of it, as far as it was seen.
        how: how it differs from the prompt, in a clause; "" if it does not.
        before: what stands before the prompt.
        behind: how many tokens stand behind it.
    """

    tokens: list[int]
    how: str = ""
    before: tuple[int, ...] = ()
    behind: int = 0


def fed_before(
    requests: Sequence[WatchedRequest], parts: Sequence[Part], bos: object
) -> list[FedPrompt]:
    """Return what was fed of each prompt, by what stands before it or was cut there."""
    heads = [part for part in parts if _is_head(part)]
    shown = [_tokens(part) for part in heads]
    whole = [part.seen.tokens[part.row].tolist() for part in heads]  # also what a mask hides
    found = [_left(request.prompt, shown, whole) for request in requests]
    before = {each.before for each in found}
    fills = {token for each in before for token in each}
    is_ragged = len(before) > 1 or (max(map(len, before), default=0) > 1 and fills != {bos})
    if len(fills) == 1 and is_ragged:  # padding that is read as text
        return [FedPrompt(request.prompt) for request in requests]
    return found


def fed_behind(requests: Sequence[WatchedRequest], parts: Sequence[Part]) -> list[FedPrompt]:
    """Return what may have been fed of each prompt, by what stands behind it or was cut there."""
    heads = [part for part in parts if _is_head(part)]
    found = [_right(request, heads) for request in requests]
    counts = Counter(each.behind for each in found if each.behind)
    if counts:  # a first token may be chosen behind the prompt itself by chance
        ((count, _),) = counts.most_common(1)
        found = [_right(request, heads, count) for request in requests]
    return found


def _is_head(part: Part) -> bool:
    """Return whether a row reads its first token without any K/V of earlier forwards."""
    columns = _columns(part)
    if not columns:
        return False
    seen, row = part.seen, part.row
    visible = set(seen.held[row, seen.seen[row, columns[0]]].tolist())
    return visible <= {NOTHING, *seen.entries[row].tolist()}


def _columns(part: Part) -> list[int]:
    found: list[int] = np.flatnonzero(~part.seen.padding[part.row]).tolist()
    return found


def _tokens(part: Part) -> list[int]:
    found: list[int] = part.seen.tokens[part.row, _columns(part)].tolist()
    return found


def _begins(head: Sequence[int], prompt: Sequence[int]) -> bool:
    """Return whether both begin alike, as far as the shorter one goes."""
    return common(head, prompt) == min(len(head), len(prompt))


def _left(prompt: list[int], heads: Sequence[list[int]], whole: Sequence[list[int]]) -> FedPrompt:
    if any(_begins(head, prompt) for head in heads):
        return FedPrompt(prompt)
    least = min(len(prompt), ENOUGH)
    for head in heads:
        for count in range(1, len(head) - least + 1):
            if _begins(head[count:], prompt):
                before = head[:count]
                how = f"{short(before)} stands before it"
                return FedPrompt([*before, *prompt], how, tuple(before))
    least = min(len(prompt), ENOUGH)
    if any(_begins(row[i:], prompt) for row in whole for i in range(len(row) - least + 1)):
        return FedPrompt(prompt)  # the mask hides a part of it
    for count in range(1, len(prompt) - 1):
        rest = prompt[count:]
        least = min(len(rest), ENOUGH)
        for size in (0, 1):  # BOS may stand before the rest
            if any(len(head) - size >= least and _begins(head[size:], rest) for head in heads):
                what = "token is" if count == 1 else f"{count} tokens are"
                return FedPrompt(rest, f"its first {what} missing")
    return FedPrompt(prompt)


def _right(request: WatchedRequest, heads: Sequence[Part], count: int | None = None) -> FedPrompt:
    """Return what may have been fed of one prompt, with `count` tokens behind it if known."""
    prompt = request.prompt
    head = max(heads, key=lambda part: common(_tokens(part), prompt), default=None)
    if head is None:
        return FedPrompt(prompt)
    read = _tokens(head)
    shared = common(read, prompt)
    if shared == len(prompt):
        behind = read[shared:][: _decided(request, head) if count is None else count]
        how = f"{short(behind)} stands behind it" if behind else ""
        return FedPrompt([*prompt, *behind], how, behind=len(behind))
    if shared:
        missing = len(prompt) - shared
        what = "token is" if missing == 1 else f"{missing} tokens are"
        return FedPrompt(prompt[:shared], f"its last {what} missing")
    return FedPrompt(prompt)


def _decided(request: WatchedRequest, head: Part) -> int:
    """Return behind how many tokens that follow its prompt a text's first token was chosen.

    What follows may be drafts: then it was chosen behind the prompt itself.
    """
    columns = _columns(head)
    whole = Part(head.seen, head.row, -1, columns, 0)
    last = len(request.prompt) - 1
    if request.is_known:
        for count in range(len(columns) - last):
            if [best_after(whole, last + count)] == request.output[:1]:
                return count
    return len(columns)
