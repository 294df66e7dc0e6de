"""What an audit cannot tell, and what speaks against its reference and log-probabilities."""

import math
from collections.abc import Iterator, Sequence

from specviz.checks.audit.duo import EQUAL, LONGER, SHORTER, Duo
from specviz.checks.equivalence import CEILINGS, LOOSEST, TARGET, Evidence, largest_gap


def notes_on(
    duos: Sequence[Duo],
    known: Sequence[Evidence | None],
    limit: float,
    *,
    has_target: bool,
    doubts: tuple[str, ...],
    is_own_noise: bool,
    dtype: str | None,
    ignored: str | None,
) -> tuple[str, ...]:
    """Return the sentences of a report.

    Args:
        duos: all prompts.
        known: what is known of each that differs.
        limit: the largest gap that noise explains.
        has_target: whether a target scored them.
        doubts: what is wrong with log-probabilities that came with the texts.
        is_own_noise: without a target, whether the noise is that of the reference against the
            candidate.
        dtype: of the target, or of the runs; None where unknown.
        ignored: what the target asks of `generate` that an audit does not compute.
    """
    found = [*doubts, *_on_texts(duos)]
    if ignored and not all(duo.how == EQUAL and not duo.candidate.logprobs for duo in duos):
        found.append(ignored)
    parted = [duo for duo in duos if duo.is_parted]
    if parted and has_target:
        found += _on_target(known, limit, dtype)
    elif not all(duo.unit == "character" for duo in parted):  # of which that is said already
        found += _without_target(parted, is_own_noise, dtype)
    return tuple(found)


def _on_texts(duos: Sequence[Duo]) -> Iterator[str]:
    sides = [(duo.reference, duo.candidate) for duo in duos]
    total = len(duos)
    if again := sum(duo.is_retokenised for duo in duos):
        yield (
            f"{again} of {total} outputs are texts, which the target's tokenizer read again. "
            "A decoder may have written other tokens for the same text, so a gap may be that of "
            "another token."
        )
    if letters := sum(duo.unit == "character" for duo in duos):
        yield (
            f"{letters} of {total} outputs are texts without token ids and were compared "
            "letter by letter. Different tokens of the same text, and special tokens, are not "
            "seen; and no letter has a log-probability, so no divergence can be judged."
        )
    if short := sum(duo.how in (SHORTER, LONGER) and not duo.known.fault for duo in duos):
        yield (
            f"{short} of {total} texts are equal as far as the shorter one goes. The rest of "
            "the longer one is not judged; give both sides one budget, and state it as max_tokens."
        )
    if reasoned := sum(any(side.has_reasoning for side in both) for both in sides):
        yield f"{reasoned} of {total} texts are reasoning and content, compared as one text."
    has_prompts = [all(side.has_prompt for side in both) for both in sides]
    if unknown := sum(
        duo.prompt_ids is None and not has for duo, has in zip(duos, has_prompts, strict=True)
    ):
        yield (
            f"{unknown} outputs could not be matched by their prompts, because a side names none. "
            "They were matched by their order."
        )


def _on_target(known: Sequence[Evidence | None], limit: float, dtype: str | None) -> Iterator[str]:
    read = [(i, each) for i, each in enumerate(known) if each and each.measured_from == TARGET]
    off = [(i, each) for i, each in read if each.below > limit]
    if off:
        i, first = off[0]
        yield (
            f"The reference itself is not what the target writes in {len(off)} of {len(read)} "
            f"diverging texts (prompt {i}, token {first.below_at}: {first.below:.3g} below "
            "the best). It was sampled, or made with another model, prompt template or dtype, or "
            "is wrong; compare the columns reference_gap and candidate_gap."
        )
    largest = max((each.gap for _, each in read if each.gap > limit), default=math.inf)
    if dtype in ("float32", "float64") and largest <= largest_gap(math.nan, CEILINGS[LOOSEST]):
        yield (
            f"The target reads in {dtype}. If the outputs were written in bfloat16 or float16, "
            "these gaps may be its noise: pass dtype= (--dtype), or the target in that dtype."
        )


def _without_target(parted: Sequence[Duo], is_own_noise: bool, dtype: str | None) -> Iterator[str]:
    sides = [side for duo in parted for side in (duo.reference, duo.candidate)]
    if all(side.logprobs is None and side.candidates is None for side in sides):
        yield (
            "There is neither a target nor a log-probability, so no divergence can be judged. "
            "Pass the target, or outputs with log-probabilities."
        )
        return
    yield (
        "No target scored these texts. The gaps are what the decoders said of themselves, and what "
        "the candidate wrote after a divergence is not judged."
    )
    if is_own_noise:
        yield (
            "The noise is the change of log-probabilities from the reference to the candidate, up "
            "to where they part. A slight fault of the candidate would count as noise; pass a "
            "control, or the target."
        )
    if any(duo.reference.candidates is None for duo in parted):
        yield (
            "The reference has no candidates beside its own tokens, so what it gave the "
            "candidate's token is not known, and no divergence can be called a near tie. Ask for "
            "the log-probabilities of the top 2 or more."
        )
    if dtype is None:
        yield f"The dtype of the runs is not known; {LOOSEST} is assumed, which has most noise."
