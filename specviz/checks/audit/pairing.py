"""Both sides of an audit side by side, prompt by prompt, and where they part.

Contract: outputs and a tokenizer go in; tokens, texts and places come out. A text that only stops
earlier does not part from the other. Not known here: models, and why they part.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from specviz.checks.audit.output import Output, Token
from specviz.checks.audit.reading import OutputSet
from specviz.checks.equivalence import divergence
from specviz.util.validate import require_list, short

EQUAL, PARTED, SHORTER, LONGER = "equal", "parted", "shorter", "longer"


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
            where they are equal.
    """

    reference: Output
    candidate: Output
    prompt_ids: tuple[int, ...] | None
    ours: Sequence[Token]
    theirs: Sequence[Token]
    unit: str
    is_retokenised: bool
    how: str
    at: int | None

    @property
    def has_ids(self) -> bool:
        """Whether the compared tokens are ids, which a target can score."""
        return all(isinstance(token, int) for token in (*self.ours[:1], *self.theirs[:1]))


def with_prompts(side: OutputSet, prompts: Any) -> OutputSet:
    """Return a side with these prompts. Raises ValueError if there are not as many."""
    require_list("prompts", prompts, "pass a list of texts or of token ids")
    if len(prompts) != len(side.outputs):
        raise ValueError(
            f"prompts has {len(prompts)} entries, but {side.name} {len(side.outputs)} outputs; "
            "pass the prompts of these outputs"
        )
    outputs = []
    for i, (output, prompt) in enumerate(zip(side.outputs, prompts, strict=True)):
        outputs.append(output.with_prompt(prompt, f"prompts[{i}]"))
    return replace(side, outputs=tuple(outputs))


def pair_up(
    reference: OutputSet, candidate: OutputSet, tokenizer: Any, ends: frozenset[int]
) -> list[Duo]:
    """Return both sides prompt by prompt.

    Args:
        reference, candidate: of the same prompts in the same order.
        tokenizer: of the target; None without one.
        ends: the ids that end a text; none without a target.

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
    duos = []
    for theirs, ours in zip(reference.outputs, candidate.outputs, strict=True):
        duos.append(_duo(theirs, ours, tokenizer, ends))
    return duos


def _duo(reference: Output, candidate: Output, tokenizer: Any, ends: frozenset[int]) -> Duo:
    prompt_ids = _same_prompt(reference, candidate, tokenizer)
    ids = candidate.token_ids, reference.token_ids
    pieces = candidate.pieces, reference.pieces
    ours: Sequence[Token]
    theirs: Sequence[Token]
    if ids[0] is not None and ids[1] is not None:
        ours, theirs = ids[0], ids[1]
        how = _how(ours, theirs)
        if how in (SHORTER, LONGER) and _ends_alike(candidate, reference, ends):
            how = EQUAL
    elif tokenizer is None and pieces[0] is not None and pieces[1] is not None:
        ours, theirs = pieces[0], pieces[1]
        how = _how(ours, theirs)
    else:
        return _compare_texts(reference, candidate, prompt_ids, tokenizer)
    at = None if how == EQUAL else divergence(ours, theirs)
    return Duo(reference, candidate, prompt_ids, ours, theirs, "token", False, how, at)


def _compare_texts(
    reference: Output, candidate: Output, prompt_ids: tuple[int, ...] | None, tokenizer: Any
) -> Duo:
    text = _text_of(candidate, reference, tokenizer)
    other = _text_of(reference, candidate, tokenizer)
    how = _how(text, other)
    ours: Sequence[Token] = text
    theirs: Sequence[Token] = other
    if tokenizer is not None:
        ours = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
        theirs = tuple(tokenizer(other, add_special_tokens=False)["input_ids"])
    at = None if how == EQUAL else divergence(ours, theirs)
    unit = "character" if tokenizer is None else "token"
    again = tokenizer is not None
    return Duo(reference, candidate, prompt_ids, ours, theirs, unit, again, how, at)


def _how(ours: Sequence[Token], theirs: Sequence[Token]) -> str:
    at = divergence(ours, theirs)
    if at is None:
        return EQUAL
    if at == len(ours):
        return SHORTER
    return LONGER if at == len(theirs) else PARTED


def _ends_alike(candidate: Output, reference: Output, ends: frozenset[int]) -> bool:
    """Return whether one side ended by itself exactly where the other wrote the end of a text."""
    assert candidate.token_ids is not None
    assert reference.token_ids is not None
    shorter, longer = sorted((candidate, reference), key=lambda side: len(side.tokens or ()))
    assert longer.token_ids is not None
    rest = longer.token_ids[len(shorter.token_ids or ()) :]
    return shorter.finish_reason == "stop" and len(rest) == 1 and rest[0] in ends


def _text_of(output: Output, other: Output, tokenizer: Any) -> str:
    text = output.text
    if text is None and tokenizer is not None:
        text = tokenizer.decode(output.token_ids, skip_special_tokens=True)
    if text is None:
        raise ValueError(
            f"{output.where} has token ids only and {other.where} text only; pass the target, "
            "whose tokenizer reads both"
        )
    # A budget may cut a letter of several tokens in two, which is shown as this character.
    return text.rstrip("\ufffd")


def _same_prompt(reference: Output, candidate: Output, tokenizer: Any) -> tuple[int, ...] | None:
    """Return the prompt's ids, None where unknown. Raise ValueError if the prompts differ."""
    for theirs, ours in (
        (reference.prompt_ids, candidate.prompt_ids),
        (reference.prompt, candidate.prompt),
    ):
        if theirs is not None and ours is not None and theirs != ours:
            where = f"{candidate.where} and {reference.where}"
            raise ValueError(
                f"the prompts of {where} differ: {short(_readable(ours))} and "
                f"{short(_readable(theirs))}; write both for one list of prompts, in one order"
            )
        if theirs is not None and ours is not None:
            break
    ids = reference.prompt_ids if candidate.prompt_ids is None else candidate.prompt_ids
    text = reference.prompt if candidate.prompt is None else candidate.prompt
    if ids is None and text is not None and tokenizer is not None:
        ids = tuple(tokenizer(text)["input_ids"])
    return ids


def _readable(prompt: str | tuple[int, ...]) -> str | list[int]:
    return prompt if isinstance(prompt, str) else list(prompt)
