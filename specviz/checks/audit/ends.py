"""Where texts end, and what explains it: an EOS, or a budget that the request states.

Contract: two texts side by side go in, and come back with what their ends say. An EOS that a text
does not show is a token like any other. Not known here: models.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from specviz.checks.audit.duo import EQUAL, PARTED, SHORTER, Duo
from specviz.checks.audit.output import Output
from specviz.checks.equivalence import OPEN_END

BEHIND_EOS = "tokens behind EOS"
BEHIND_BUDGET = "tokens behind the budget"
BEFORE_BUDGET = "an end before the budget and without EOS"
EMPTY = "both texts are empty"

# How a text ended: with an EOS that it shows, with one that it does not show, at its budget, before
# its budget though it says otherwise, or nobody knows.
SHOWN, HIDDEN, FULL, EARLY, OPEN = "shown", "hidden", "full", "early", "open"


@dataclass(frozen=True)
class Endings:
    """The ids that end a text.

    Attributes:
        eos: none where unknown.
        padding: what may fill a row behind its EOS.
        are_ignored: whether the reference goes on behind EOS in a text.
        usual: the tokens of the reference's longest text without EOS; 0 where unknown.
    """

    eos: frozenset[int] = frozenset()
    padding: frozenset[int] = frozenset()
    are_ignored: bool = False
    usual: int = 0

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of EOS, sorted."""
        return tuple(sorted(self.eos))

    def cut(self, tokens: Sequence[Any]) -> Sequence[Any]:
        """Return a text without the padding behind its EOS."""
        stop = next((i for i, token in enumerate(tokens, 1) if token in self.eos), len(tokens))
        is_padded = self.eos | self.padding >= set(tokens[stop:])
        return tokens[:stop] if is_padded else tokens

    def behind(self, tokens: Sequence[Any]) -> int | None:
        """Return the index of the first token behind an EOS, None if there is only padding."""
        written = self.cut(tokens)
        return next((i for i, token in enumerate(written[:-1], 1) if token in self.eos), None)

    def of(self, reference: Sequence[Output]) -> "Endings":
        """Return these endings with what the reference's texts say."""
        texts = [output.tokens or () for output in reference]
        open_ended = [len(text) for text in texts if not self.eos & set(text[-1:])]
        are_ignored = any(self.behind(text) is not None for text in texts)
        return replace(self, are_ignored=are_ignored, usual=max(open_ended, default=0))


def judge_ends(duo: Duo, endings: Endings) -> Duo:
    """Return both texts with what their ends say: a fault, a place to judge, or that it is open."""
    candidate, reference = duo.candidate, duo.reference
    behind = endings.behind(duo.ours)
    if behind is not None and endings.behind(duo.theirs) is None:
        # Where the reference ignores EOS, it may be that it only has not met one here.
        is_own_way = duo.how == PARTED and duo.at is not None and duo.at < behind
        if not (endings.are_ignored and is_own_way):
            return replace(duo, fault=BEHIND_EOS, at=behind)
    if _exceeds(candidate, duo.ours, duo) and not _exceeds(reference, duo.theirs, duo):
        return replace(duo, fault=BEHIND_BUDGET, at=candidate.budget)
    if duo.how == EQUAL:
        return duo if duo.ours else replace(duo, unjudged=EMPTY)
    if duo.how == PARTED:
        return _judge_parted(duo, endings)
    if duo.how == SHORTER:
        return _judge_shorter(duo, candidate, reference, duo.ours, duo.theirs, endings)
    return _judge_shorter(duo, reference, candidate, duo.theirs, duo.ours, endings)


def _judge_parted(duo: Duo, endings: Endings) -> Duo:
    """Judge where the candidate ends after it has parted from the reference."""
    end = _end(duo.candidate, duo.ours, duo, endings, other=duo.reference)
    if end == EARLY:
        return replace(duo, fault=BEFORE_BUDGET)
    if end == HIDDEN and duo.has_ids:
        return replace(duo, our_ends=endings.ids, is_open=not endings.ids)
    return replace(duo, is_open=end in (HIDDEN, OPEN) and not duo.candidate.is_cut)


def _judge_shorter(
    duo: Duo,
    shorter: Output,
    longer: Output,
    tokens: Sequence[Any],
    others: Sequence[Any],
    endings: Endings,
) -> Duo:
    """Judge where the shorter of two texts ends; `others` are the tokens of the longer one."""
    other = longer if shorter is duo.candidate else None
    end = _end(shorter, tokens, duo, replace(endings, usual=0), other)
    if end == SHOWN:
        return duo  # and the longer one was told to ignore it
    parts_there = duo.at == len(tokens) < len(others)
    may_be_hidden = end == HIDDEN or (end == OPEN and shorter.finish_reason == "")
    if may_be_hidden and parts_there and others[len(tokens)] in endings.eos:
        has_more = len(others) > len(tokens) + 1
        return duo if has_more else replace(duo, how=EQUAL, at=None)
    if end == HIDDEN and parts_there and endings.eos and duo.has_ids:
        if shorter is duo.candidate:
            return replace(duo, how=PARTED, our_ends=endings.ids)
        return _judge_parted(replace(duo, how=PARTED, their_ends=endings.ids), endings)
    if end == EARLY and shorter is duo.candidate:
        return replace(duo, fault=BEFORE_BUDGET)
    # A candidate that goes on has to say up to where.
    is_explained = end == FULL and (longer.budget is not None or longer is duo.reference)
    if is_explained and not duo.is_counted and shorter.token_ids is None:
        assert shorter.budget is not None
        is_explained = longer.budget is None or shorter.budget < longer.budget
    return duo if is_explained else replace(duo, unjudged=OPEN_END)


def _end(
    output: Output, tokens: Sequence[Any], duo: Duo, endings: Endings, other: Output | None
) -> str:
    """Return how a text ended.

    other: the output whose budget counts where this one states none and no reason for its end.
    """
    if tokens and duo.is_counted and tokens[-1] in endings.eos:
        return SHOWN
    reason = output.finish_reason
    if reason == "stop":
        return HIDDEN
    if reason not in ("", "length"):
        return OPEN
    count = len(tokens) if duo.is_counted else len(output.token_ids or ())
    is_known = duo.is_counted or output.token_ids is not None
    if not is_known:
        return FULL if reason == "length" and output.budget is not None else OPEN
    budget = output.budget
    if budget is None and other is not None and reason == "":
        budget = other.budget
    if budget is None:
        return FULL if count == endings.usual else OPEN
    if count > budget:
        return FULL if output.budget is not None else OPEN
    if count == budget:
        return FULL
    return EARLY if reason == "length" else HIDDEN


def _exceeds(output: Output, tokens: Sequence[Any], duo: Duo) -> bool:
    return duo.is_counted and output.budget is not None and len(tokens) > output.budget
