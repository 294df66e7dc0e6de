"""Both sides of an audit side by side, prompt by prompt, and where they part.

Contract: outputs and a tokenizer go in; tokens, texts and places come out. Not known here: models,
and why they part.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from specviz.checks.audit.duo import EQUAL, LONGER, PARTED, SHORTER, Duo
from specviz.checks.audit.ends import Endings, judge_ends
from specviz.checks.audit.output import Output
from specviz.checks.audit.reading import OutputSet
from specviz.checks.equivalence import divergence
from specviz.checks.scores import Token
from specviz.util.validate import require_list, short

NO_TEMPLATE = "the target's tokenizer has no chat template that reads the messages"
REASONING = "the marks around the reasoning are not in the texts"


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
    endings = endings.of(reference.outputs)
    duos = []
    for theirs, ours in zip(reference.outputs, candidate.outputs, strict=True):
        duos.append(judge_ends(_duo(theirs, ours, tokenizer, endings), endings))
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
        how = _how(ours, theirs)
    elif tokenizer is None and candidate.pieces is not None and reference.pieces is not None:
        ours, theirs = candidate.pieces, reference.pieces
        how = _how(ours, theirs)
    else:
        ours = _text_of(candidate, reference, tokenizer, endings)
        theirs = _text_of(reference, candidate, tokenizer, endings)
        how = _how(ours, theirs)
        unit, is_retokenised = ("character", False) if tokenizer is None else ("token", True)
        if is_retokenised:
            ours = tuple(tokenizer(ours, add_special_tokens=False)["input_ids"])
            theirs = tuple(tokenizer(theirs, add_special_tokens=False)["input_ids"])
            if how == PARTED and (candidate.has_reasoning or reference.has_reasoning):
                unjudged = REASONING
    at = None if how == EQUAL else divergence(ours, theirs)
    if how == EQUAL:
        unjudged = ""
    return Duo(
        reference, candidate, prompt_ids, ours, theirs, unit, is_retokenised, how, at,
        unjudged=unjudged,
    )  # fmt: skip


def _how(ours: Sequence[Token], theirs: Sequence[Token]) -> str:
    at = divergence(ours, theirs)
    if at is None:
        return EQUAL
    if at == len(ours):
        return SHORTER
    return LONGER if at == len(theirs) else PARTED


def _text_of(output: Output, other: Output, tokenizer: Any, endings: Endings) -> str:
    """Return an output as text, without an EOS at its end."""
    text = output.text
    if text is None and tokenizer is not None:
        text = tokenizer.decode(output.token_ids, skip_special_tokens=True)
    elif text is not None and tokenizer is not None:
        for end in endings.eos:
            text = text.removesuffix(tokenizer.decode([end]))
    if text is None:
        raise ValueError(
            f"{output.where} has token ids only and {other.where} text only; pass the target, "
            "whose tokenizer reads both"
        )
    # A budget may cut a letter of up to four bytes in two, which is shown as this character.
    return re.sub("\ufffd{1,3}$", "", text)


def _same_prompt(
    reference: Output, candidate: Output, tokenizer: Any
) -> tuple[tuple[int, ...] | None, str]:
    """Return the prompt's ids, None where unknown, and why no target can read it, "" if it can.

    Raises ValueError if the prompts differ.
    """
    # Two tools count their prompts differently, so only names of one kind compare.
    keys = reference.key, candidate.key
    if keys[0] != keys[1] and keys[0].split(" ")[0] == keys[1].split(" ")[0]:
        raise _differ(reference, candidate, *keys)
    for theirs, ours in (
        (reference.prompt_ids, candidate.prompt_ids),
        (reference.messages, candidate.messages),
        (reference.prompt, candidate.prompt),
    ):
        if (
            theirs is not None
            and ours is not None
            and _bare(theirs, tokenizer) != _bare(ours, tokenizer)
        ):
            raise _differ(reference, candidate, theirs, ours)
        if theirs is not None and ours is not None:
            break
    ids = reference.prompt_ids if candidate.prompt_ids is None else candidate.prompt_ids
    text = reference.prompt if candidate.prompt is None else candidate.prompt
    messages = candidate.messages or reference.messages
    if ids is not None or tokenizer is None:
        return ids, ""
    if messages is not None:
        ids = _templated(messages, tokenizer)
        return ids, NO_TEMPLATE if ids is None else ""
    if text is None:
        return None, ""
    has_bos = _bare(text, tokenizer) != text
    return tuple(tokenizer(text, add_special_tokens=not has_bos)["input_ids"]), ""


def _bare(prompt: Any, tokenizer: Any) -> Any:
    """Return a prompt without the BOS that some servers return before it."""
    bos = getattr(tokenizer, "bos_token", None)
    return prompt.removeprefix(bos) if bos and isinstance(prompt, str) else prompt


def _templated(messages: Sequence[Any], tokenizer: Any) -> tuple[int, ...] | None:
    """Return messages as the tokenizer's chat template writes them; None if it cannot."""
    if not tokenizer.chat_template:
        return None
    try:
        ids = tokenizer.apply_chat_template(
            [dict(each) for each in messages], add_generation_prompt=True, return_dict=False
        )
    except Exception:  # a template may raise whatever it wants
        return None
    return tuple(ids)


def _differ(reference: Output, candidate: Output, theirs: Any, ours: Any) -> ValueError:
    shown = [each if isinstance(each, str) else list(each) for each in (ours, theirs)]
    return ValueError(
        f"the prompts of {candidate.where} and {reference.where} differ: {short(shown[0])} and "
        f"{short(shown[1])}; write both for one list of prompts, in one order"
    )
