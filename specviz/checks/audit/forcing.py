"""What a target says of divergences, under teacher forcing, and the noise of its forwards.

Contract: the model reads both texts as they stand, at batch 1, by plain forwards of transformers;
nothing that the decoders computed is used. Not known here: verdicts.
"""

import math
from collections.abc import Sequence

import numpy as np

from specviz.checks.audit.duo import EQUAL, Duo
from specviz.checks.audit.output import Output
from specviz.checks.audit.reading import OutputSet
from specviz.checks.audit.target import Target
from specviz.checks.audit.verdicts import Finding
from specviz.checks.noise import Text, measure_noise, score_text
from specviz.util.validate import short


def check_target(target: Target, duos: Sequence[Duo], sides: Sequence[OutputSet]) -> None:
    """Raise ValueError if the target cannot score these outputs: other ids, no prompts, no room."""
    for side in sides:
        for output in side.outputs:
            _check_ids(target, output)
        _check_text(target, side)
    for duo in duos:
        has_text = duo.reference.prompt is not None or duo.candidate.prompt is not None
        if has_text and target.tokenizer is None and not duo.prompt_ids:
            raise ValueError(
                f"the prompt of {duo.candidate.where} is text, but the target has no tokenizer; "
                "pass its folder, or tokenizer="
            )
        if not duo.prompt_ids and not duo.is_chat:
            raise ValueError(
                f"{duo.candidate.where} has no prompt, and the target cannot score a text without "
                "its prompt; pass prompts="
            )
        if duo.is_parted and not duo.has_ids:
            raise ValueError(
                f"{duo.candidate.where} is text, but the target has no tokenizer; pass its folder, "
                "or tokenizer="
            )
        length = len(duo.prompt_ids or ()) + max(len(duo.ours), len(duo.theirs))
        limit = target.max_positions
        if limit is not None and duo.is_parted and length > limit:
            raise ValueError(
                f"{duo.candidate.where} is {length} tokens long with its prompt, but target "
                f"{target.name} has {limit} positions; pass the target that wrote it"
            )


def _check_ids(target: Target, output: Output) -> None:
    size = target.vocabulary_size
    for key, ids in (("prompt_token_ids", output.prompt_ids), ("token_ids", output.token_ids)):
        largest = max(ids or (0,))
        if largest >= size:
            raise ValueError(
                f"{output.where}: {key} has the id {largest}, but target {target.name} has a "
                f"vocabulary of {size}; pass the target that wrote these outputs"
            )


def _check_text(target: Target, side: OutputSet) -> None:
    """Raise ValueError if the target's tokenizer reads the ids of no output as its text."""
    if target.tokenizer is None:
        return
    differing = None
    for output in side.outputs:
        if not output.token_ids or not (output.text or "").strip():
            continue
        text = (output.text or "").strip().rstrip("\ufffd")
        for skip in (True, False):
            read = target.tokenizer.decode(output.token_ids, skip_special_tokens=skip)
            # A stop string may have been cut off the text, and the first space of a text, too.
            if read.strip().startswith(text):
                return
        differing = differing or (output, read)
    if differing is not None:
        output, read = differing
        raise ValueError(
            f"{output.where}: target {target.name} reads its token_ids as {short(read)}, but its "
            f"text is {short(output.text)}; pass the target that wrote these outputs"
        )


def force(target: Target, duo: Duo) -> Finding:
    """Return what the target says of one divergence."""
    assert duo.at is not None
    below = _below(target, duo, duo.ours, duo.our_ends)
    reference_below = _below(target, duo, duo.theirs, duo.their_ends)
    candidate_gap = float(below[duo.at])
    reference_gap = float(reference_below[duo.at])
    later = below[duo.at + 1 :]
    worst = int(reference_below.argmax())
    return Finding(
        gap=max(candidate_gap, reference_gap),
        is_end=duo.at == len(duo.ours),
        is_reference_end=duo.at == len(duo.theirs),
        is_retokenised=duo.is_retokenised,
        candidate_gap=candidate_gap,
        reference_gap=reference_gap,
        later_gap=float(later.max()) if later.size else math.nan,
        later_at=int(later.argmax()) + duo.at + 1 if later.size else None,
        before=float(reference_below[: duo.at].max(initial=0)),
        below=float(reference_below[worst]),
        below_at=worst,
        measured_from="target",
    )


def _below(target: Target, duo: Duo, tokens: Sequence[object], ends: Sequence[int]) -> np.ndarray:
    """Return how far each token of a text lies below the target's best one, (M,).

    ends: if there are some, the likeliest one stands behind the text.
    """
    ids = _ids(tokens)
    texts = [[*ids, end] for end in ends] or [ids]
    found = []
    for text in texts:
        scores = score_text(target, (duo.prompt_ids or (), text), leading=1)
        found.append(scores.logprobs[:, 0] - scores.chosen)
    return min(found, key=lambda below: float(below[-1]))


def noise_of_target(
    target: Target, duos: Sequence[Duo], shapes: Sequence[tuple[int, int]]
) -> float:
    """Return the largest change of a log-probability that the shapes of the forwards make.

    It is measured in the references of diverging texts, and if those are few, in equal texts.
    """
    parted = [duo for duo in duos if duo.is_parted]
    equal = [duo for duo in duos if duo.how == EQUAL and duo.has_ids]
    texts: list[Text] = []
    for duo in (*parted, *equal):
        text = _ids(duo.theirs or duo.ours)
        limit = target.max_positions
        fits = limit is None or len(duo.prompt_ids or ()) + len(text) <= limit
        if duo.prompt_ids and text and fits:
            texts.append((duo.prompt_ids, text))
    return measure_noise(target, texts, shapes, diverging=len(parted))


def _ids(tokens: Sequence[object]) -> list[int]:
    return [token for token in tokens if isinstance(token, int)]
