"""Where texts end, and what explains it: an EOS, or a budget that the request states.

Contract: two texts side by side go in, and come back with what their ends say. An EOS that a text
does not show is a token like any other. Not known here: models.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from specviz.checks.audit.duo import EQUAL, LONGER, PARTED, SHORTER, Duo
from specviz.checks.audit.output import Output

BEHIND_EOS = "tokens behind EOS"
BEHIND_BUDGET = "tokens behind the budget"
BEFORE_BUDGET = "an end before the budget and without EOS"
OPEN_END = "neither a stated budget nor an EOS explains where a text ends"
EMPTY = "both texts are empty"


@dataclass(frozen=True)
class Endings:
    """The ids that end a text.

    Attributes:
        eos: none where unknown.
        padding: what may fill a row behind its EOS.
        are_ignored: whether the reference goes on behind EOS, so that the candidate may, too.
    """

    eos: frozenset[int] = frozenset()
    padding: frozenset[int] = frozenset()
    are_ignored: bool = False

    def cut(self, tokens: Sequence[Any]) -> Sequence[Any]:
        """Return a text without the padding behind its EOS."""
        stop = next((i for i, token in enumerate(tokens, 1) if token in self.eos), len(tokens))
        is_padded = not self.are_ignored and self.eos | self.padding >= set(tokens[stop:])
        return tokens[:stop] if is_padded else tokens

    def behind(self, tokens: Sequence[Any]) -> int | None:
        """Return the index of the first token behind EOS; None if there is none to complain of."""
        if self.are_ignored:
            return None
        written = self.cut(tokens)
        return next((i for i, token in enumerate(written[:-1], 1) if token in self.eos), None)


def judge_ends(duo: Duo, endings: Endings) -> Duo:
    """Return both texts with what their ends say: a fault, a place to judge, or that it is open."""
    candidate, reference = duo.candidate, duo.reference
    behind = endings.behind(duo.ours)
    if behind is not None:
        return replace(duo, fault=BEHIND_EOS, at=behind)
    if _exceeds(candidate, duo.ours, duo) and not _exceeds(reference, duo.theirs, duo):
        return replace(duo, fault=BEHIND_BUDGET, at=candidate.budget)
    if duo.how == EQUAL and not duo.ours:
        return replace(duo, unjudged=EMPTY)
    if duo.how == SHORTER:
        return _judge_end(duo, candidate, reference, duo.ours, duo.theirs, endings)
    if duo.how == LONGER:
        return _judge_end(duo, reference, candidate, duo.theirs, duo.ours, endings)
    return duo


def _judge_end(
    duo: Duo,
    shorter: Output,
    longer: Output,
    tokens: Sequence[Any],
    others: Sequence[Any],
    endings: Endings,
) -> Duo:
    """Judge where the shorter of two texts ends; `others` are the tokens of the longer one."""
    if tokens and tokens[-1] in endings.eos:
        return duo  # and the longer one was told to ignore it
    is_open = shorter.finish_reason == ""
    if (is_open or shorter.finish_reason == "stop") and others[len(tokens)] in endings.eos:
        has_more = len(others) > len(tokens) + 1
        return duo if has_more else replace(duo, how=EQUAL, at=None)
    budget = shorter.budget
    if is_open and budget is None and shorter is duo.candidate:
        budget = longer.budget
    is_early = budget is not None and duo.is_counted and len(tokens) < budget
    if shorter.finish_reason == "stop" or (is_open and is_early):
        # Its end stands for an EOS, if the texts part there as tokens, too.
        if endings.eos and duo.at == len(tokens) and duo.has_ids:
            return replace(duo, how=PARTED, ends=tuple(sorted(endings.eos)))
        return replace(duo, unjudged=OPEN_END)
    if shorter.finish_reason == "length" and is_early and shorter is duo.candidate:
        return replace(duo, fault=BEFORE_BUDGET)
    is_explained = _is_explained(shorter, longer, tokens, duo)
    return duo if is_explained else replace(duo, unjudged=OPEN_END)


def _is_explained(shorter: Output, longer: Output, tokens: Sequence[Any], duo: Duo) -> bool:
    """Return whether stated budgets explain that one text ends earlier than the other."""
    if shorter.budget is None or (longer.budget is None and longer is duo.candidate):
        return False
    if duo.is_counted:
        return len(tokens) >= shorter.budget
    is_less = longer.budget is None or shorter.budget < longer.budget
    return shorter.finish_reason == "length" and is_less


def _exceeds(output: Output, tokens: Sequence[Any], duo: Duo) -> bool:
    return duo.is_counted and output.budget is not None and len(tokens) > output.budget
