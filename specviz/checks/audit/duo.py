"""Both sides of an audit side by side, prompt by prompt: where they part, and what explains where
they end. An EOS that a text does not show is a token like any other.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from specviz.checks.audit.output import Output
from specviz.checks.audit.reading import OutputSet
from specviz.checks.equivalence import NOTHING, OPEN_END, Evidence, divergence
from specviz.checks.scores import Token
from specviz.util.validate import require_list, short

EQUAL, PARTED, SHORTER, LONGER = "equal", "parted", "shorter", "longer"

# What is wrong, or why it cannot be judged, whatever a target says.
BEHIND_EOS = "tokens behind EOS"
BEHIND_BUDGET = "tokens behind the budget"
BEFORE_BUDGET = "an end before the budget and without EOS"
EMPTY = "both texts are empty"
NO_TEMPLATE = "the target's tokenizer has no chat template that reads the messages"
REASONING = "the marks around the reasoning are not in the texts"

# How a text ended: with an EOS that it shows, with one that it does not show, at its budget, before
# its budget though it says otherwise, or nobody knows.
_SHOWN, _HIDDEN, _FULL, _EARLY, _OPEN = "shown", "hidden", "full", "early", "open"


@dataclass(frozen=True, eq=False)
class Duo:
    """What both sides wrote after one prompt.

    Attributes:
        reference, candidate: as they were read.
        prompt_ids: of the prompt; None where unknown.
        ours, theirs: the tokens that are compared, the candidate's and the reference's: ids, texts
            of tokens, or characters.
        unit: "token" or "character".
        is_retokenised: whether the tokens are those of a tokenizer that read the texts again.
        how: EQUAL, PARTED, SHORTER or LONGER, as the candidate is.
        at: the first index of `ours` and `theirs` that differs, or where the shorter one ends; None
            where they are equal. With a fault, where that is.
        our_ends, their_ends: the ids of which one stands behind the text, if it shows none; empty
            where that is not to be judged.
        known: what their prompt and their ends say, before anything is measured.
    """

    reference: Output
    candidate: Output
    prompt_ids: tuple[int, ...] | None
    ours: Sequence[Token]
    theirs: Sequence[Token]
    how: str
    at: int | None
    unit: str = "token"
    is_retokenised: bool = False
    our_ends: tuple[int, ...] = ()
    their_ends: tuple[int, ...] = ()
    known: Evidence = NOTHING

    @property
    def is_counted(self) -> bool:
        """Whether `ours` and `theirs` are the tokens that the decoders wrote."""
        return self.unit == "token" and not self.is_retokenised

    @property
    def is_parted(self) -> bool:
        """Whether the texts part at a token that can be judged."""
        return self.how == PARTED and not self.known.fault and not self.known.unjudged

    @property
    def parting(self) -> tuple[Token | None, Token | None]:
        """The candidate's and the reference's token where they part; None behind an end."""
        at = self.at
        if at is None:
            return None, None
        ours, theirs = (each[at] if at < len(each) else None for each in (self.ours, self.theirs))
        return ours, theirs

    @property
    def has_ids(self) -> bool:
        """Whether the compared tokens are ids, which a target can score."""
        return all(isinstance(token, int) for token in (*self.ours[:1], *self.theirs[:1]))


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

    def cut(self, tokens: Sequence[Any]) -> Sequence[Any]:
        """Return a text without the padding behind its EOS."""
        stop = next((i for i, token in enumerate(tokens, 1) if token in self.eos), len(tokens))
        is_padded = self.eos | self.padding >= set(tokens[stop:])
        return tokens[:stop] if is_padded else tokens

    def behind(self, tokens: Sequence[Any]) -> int | None:
        """Return the index of the first token behind an EOS, None if there is only padding."""
        written = self.cut(tokens)
        return next((i for i, token in enumerate(written[:-1], 1) if token in self.eos), None)


def with_prompts(side: OutputSet, prompts: Any) -> OutputSet:
    """Return a side with these prompts. Raises ValueError if there are not as many."""
    require_list("prompts", prompts, "pass a list of texts or of token ids")
    if len(prompts) != len(side.outputs):
        raise ValueError(
            f"prompts has {len(prompts)} entries, but {side.name} {len(side.outputs)} outputs; "
            "pass the prompts of these outputs"
        )
    pairs = enumerate(zip(side.outputs, prompts, strict=True))
    outputs = [output.with_prompt(prompt, f"prompts[{i}]") for i, (output, prompt) in pairs]
    return replace(side, outputs=tuple(outputs))


def pair_up(
    reference: OutputSet, candidate: OutputSet, tokenizer: Any, endings: Endings
) -> list[Duo]:
    """Return both sides prompt by prompt.

    Args:
        reference, candidate: of the same prompts in the same order.
        tokenizer: of the target; None without one.
        endings: the ids that end a text.

    Raises:
        ValueError: the sides have other prompts or another number of them, or outputs that cannot
            be compared.
    """
    counts = len(reference.outputs), len(candidate.outputs)
    if counts[0] != counts[1]:
        raise ValueError(
            f"the number of outputs differs: {counts[0]} in {reference.name}, {counts[1]} in "
            f"{candidate.name}; write both for one list of prompts"
        )
    texts = [output.tokens or () for output in reference.outputs]
    open_ended = [len(text) for text in texts if not endings.eos & set(text[-1:])]
    are_ignored = any(endings.behind(text) is not None for text in texts)
    endings = replace(endings, are_ignored=are_ignored, usual=max(open_ended, default=0))
    duos = []
    for theirs, ours in zip(reference.outputs, candidate.outputs, strict=True):
        duos.append(_judge_ends(_duo(theirs, ours, tokenizer, endings), endings))
    return duos


def _duo(reference: Output, candidate: Output, tokenizer: Any, endings: Endings) -> Duo:
    prompt_ids, unjudged = _same_prompt(reference, candidate, tokenizer)
    ours: Sequence[Token]
    theirs: Sequence[Token]
    unit, is_retokenised = "token", False
    if candidate.token_ids is not None and reference.token_ids is not None:
        ours, theirs = candidate.token_ids, reference.token_ids
        if endings.behind(theirs) is None:
            ours, theirs = endings.cut(ours), endings.cut(theirs)
    elif tokenizer is None and candidate.pieces is not None and reference.pieces is not None:
        ours, theirs = candidate.pieces, reference.pieces
    else:
        ours = _text_of(candidate, reference, tokenizer, endings)
        theirs = _text_of(reference, candidate, tokenizer, endings)
        unit, is_retokenised = ("character", False) if tokenizer is None else ("token", True)
    at = divergence(ours, theirs)
    how = PARTED
    if at is None:
        how = EQUAL
    elif at == min(len(ours), len(theirs)):
        how = SHORTER if at == len(ours) else LONGER
    if is_retokenised:
        ours = tuple(tokenizer(ours, add_special_tokens=False)["input_ids"])
        theirs = tuple(tokenizer(theirs, add_special_tokens=False)["input_ids"])
        at = None if how == EQUAL else divergence(ours, theirs)
        if how == PARTED and (candidate.has_reasoning or reference.has_reasoning):
            unjudged = REASONING
    return Duo(
        reference, candidate, prompt_ids, ours, theirs, how, at, unit, is_retokenised,
        known=Evidence(unjudged="" if how == EQUAL else unjudged),
    )  # fmt: skip


def _text_of(output: Output, other: Output, tokenizer: Any, endings: Endings) -> str:
    """Return an output as text, without an EOS at its end."""
    text = output.text
    if text is None and tokenizer is None:
        raise ValueError(
            f"{output.where} has token ids only and {other.where} text only; pass the target, "
            "whose tokenizer reads both"
        )
    if text is None:
        text = tokenizer.decode(output.token_ids, skip_special_tokens=True)
    elif tokenizer is not None:
        for end in endings.eos:
            text = text.removesuffix(tokenizer.decode([end]))
    # A budget may cut a letter of up to four bytes in two, which is shown as this character.
    return re.sub("\ufffd{1,3}$", "", text)


def _same_prompt(
    reference: Output, candidate: Output, tokenizer: Any
) -> tuple[tuple[int, ...] | None, str]:
    """Return the prompt's ids, None where unknown, and why no target can read it, "" if it can.

    Raises ValueError if the prompts differ.
    """
    bos = getattr(tokenizer, "bos_token", None)

    def bare(prompt: Any) -> Any:
        """Return a prompt without the BOS that some servers return before it."""
        return prompt.removeprefix(bos) if bos and isinstance(prompt, str) else prompt

    pairs: list[tuple[Any, Any]] = []
    # Two tools count their prompts differently, so only names of one kind compare.
    if reference.key.split(" ")[0] == candidate.key.split(" ")[0]:
        pairs.append((reference.key, candidate.key))
    known = [
        (getattr(reference, name), getattr(candidate, name))
        for name in ("prompt_ids", "messages", "prompt")
    ]
    pairs += [pair for pair in known if None not in pair][:1]
    for theirs, ours in pairs:
        if bare(theirs) != bare(ours):
            shown = [each if isinstance(each, str) else list(each) for each in (ours, theirs)]
            raise ValueError(
                f"the prompts of {candidate.where} and {reference.where} differ: "
                f"{short(shown[0])} and {short(shown[1])}; write both for one list of prompts, in "
                "one order"
            )
    ids = reference.prompt_ids if candidate.prompt_ids is None else candidate.prompt_ids
    text = reference.prompt if candidate.prompt is None else candidate.prompt
    messages = candidate.messages or reference.messages
    if ids is not None or tokenizer is None:
        return ids, ""
    if messages is not None:
        try:
            chat = [dict(each) for each in messages]
            how = {"add_generation_prompt": True, "return_dict": False}
            return tuple(tokenizer.apply_chat_template(chat, **how)), ""
        except Exception:  # there may be no template, and one may raise whatever it wants
            return None, NO_TEMPLATE
    if text is None:
        return None, ""
    has_bos = bare(text) != text
    return tuple(tokenizer(text, add_special_tokens=not has_bos)["input_ids"]), ""


def _judge_ends(duo: Duo, endings: Endings) -> Duo:
    """Return both texts with what their ends say: a fault, a place to judge, or that it is open."""
    candidate, reference = duo.candidate, duo.reference
    behind = endings.behind(duo.ours)
    if behind is not None and endings.behind(duo.theirs) is None:
        # Where the reference ignores EOS, it may be that it only has not met one here.
        is_own_way = duo.how == PARTED and duo.at is not None and duo.at < behind
        if not (endings.are_ignored and is_own_way):
            return replace(duo, at=behind, known=Evidence(fault=BEHIND_EOS))
    if _exceeds(candidate, duo.ours, duo) and not _exceeds(reference, duo.theirs, duo):
        return replace(duo, at=candidate.budget, known=Evidence(fault=BEHIND_BUDGET))
    if duo.how == EQUAL:
        return duo if duo.ours else replace(duo, known=Evidence(unjudged=EMPTY))
    if duo.how == PARTED:
        return _judge_parted(duo, endings)
    return _judge_shorter(duo, endings)


def _exceeds(output: Output, tokens: Sequence[Any], duo: Duo) -> bool:
    return duo.is_counted and output.budget is not None and len(tokens) > output.budget


def _judge_parted(duo: Duo, endings: Endings) -> Duo:
    """Judge where the candidate ends after it has parted from the reference."""
    end = _end(duo.candidate, duo.ours, duo, endings, other=duo.reference)
    if end == _EARLY:
        return replace(duo, known=Evidence(fault=BEFORE_BUDGET))
    is_open = end in (_HIDDEN, _OPEN) and not duo.candidate.is_cut
    if end == _HIDDEN and duo.has_ids:
        duo, is_open = replace(duo, our_ends=tuple(sorted(endings.eos))), not endings.eos
    return replace(duo, known=replace(duo.known, is_open=is_open))


def _judge_shorter(duo: Duo, endings: Endings) -> Duo:
    """Judge where the shorter of two texts ends."""
    is_ours = duo.how == SHORTER
    shorter, longer = (duo.candidate, duo.reference)[:: 1 if is_ours else -1]
    tokens, others = (duo.ours, duo.theirs)[:: 1 if is_ours else -1]
    end = _end(shorter, tokens, duo, replace(endings, usual=0), longer if is_ours else None)
    if end == _SHOWN:
        return duo  # and the longer one was told to ignore it
    parts_there = duo.at == len(tokens) < len(others)
    may_be_hidden = end == _HIDDEN or (end == _OPEN and shorter.finish_reason == "")
    if may_be_hidden and parts_there and others[len(tokens)] in endings.eos:
        has_more = len(others) > len(tokens) + 1
        return duo if has_more else replace(duo, how=EQUAL, at=None)
    if end == _HIDDEN and parts_there and endings.eos and duo.has_ids:
        ids = tuple(sorted(endings.eos))
        if is_ours:
            return replace(duo, how=PARTED, our_ends=ids)
        return _judge_parted(replace(duo, how=PARTED, their_ends=ids), endings)
    if end == _EARLY and is_ours:
        return replace(duo, known=Evidence(fault=BEFORE_BUDGET))
    # A candidate that goes on has to say up to where.
    is_explained = end == _FULL and (longer.budget is not None or is_ours)
    if is_explained and not duo.is_counted and shorter.token_ids is None:
        assert shorter.budget is not None
        is_explained = longer.budget is None or shorter.budget < longer.budget
    return duo if is_explained else replace(duo, known=Evidence(unjudged=OPEN_END))


def _end(
    output: Output, tokens: Sequence[Any], duo: Duo, endings: Endings, other: Output | None
) -> str:
    """Return how a text ended.

    other: the output whose budget counts where this one states none and no reason for its end.
    """
    if tokens and duo.is_counted and tokens[-1] in endings.eos:
        return _SHOWN
    reason = output.finish_reason
    if reason == "stop":
        return _HIDDEN
    if reason not in ("", "length"):
        return _OPEN
    budget = output.budget
    if not duo.is_counted and output.token_ids is None:  # the number of its tokens is not known
        return _FULL if reason == "length" and budget is not None else _OPEN
    count = len(tokens) if duo.is_counted else len(output.token_ids or ())
    if budget is None and other is not None and reason == "":
        budget = other.budget
    if budget is None:
        return _FULL if count == endings.usual else _OPEN
    if count >= budget:
        return _FULL if count == budget or output.budget is not None else _OPEN
    return _EARLY if reason == "length" else _HIDDEN
