"""What an audit cannot tell, and what speaks against its reference, in sentences.

Contract: what was compared goes in, sentences for the report come out.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from specviz.checks.audit.duo import EQUAL, LONGER, SHORTER, Duo
from specviz.checks.audit.output import Output
from specviz.checks.equivalence import CEILINGS, LOOSEST, Evidence, largest_gap


def notes_on(
    duos: Sequence[Duo],
    known: Mapping[int, Evidence],
    limit: float,
    *,
    has_target: bool,
    has_control_noise: bool,
    dtype: str | None,
    ignored: str | None,
) -> tuple[str, ...]:
    """Return the sentences of a report.

    Args:
        duos: all prompts.
        known: of the diverging prompts that were measured, by number.
        limit: the largest gap that noise explains.
        has_target: whether a target scored them.
        has_control_noise: whether the noise is that of the reference against a control.
        dtype: of the target, or of the runs; None where unknown.
        ignored: what the target asks of `generate` that an audit does not compute.
    """
    found = [*_on_texts(duos)]
    if ignored and not all(duo.how == EQUAL for duo in duos):
        found.append(ignored)
    if not any(duo.is_parted for duo in duos):
        return tuple(found)
    if has_target:
        found += _on_reference(known, limit)
        found += _on_dtype(known, limit, dtype)
    else:
        found += _without_target(duos, has_control_noise, dtype is not None)
    return tuple(found)


def _on_texts(duos: Sequence[Duo]) -> Iterator[str]:
    again = sum(duo.is_retokenised for duo in duos)
    if again:
        yield (
            f"{again} of {len(duos)} outputs are texts, which the target's tokenizer read again. "
            "A decoder may have written other tokens for the same text, so a gap may be that of "
            "another token."
        )
    letters = sum(duo.unit == "character" for duo in duos)
    if letters:
        yield (
            f"{letters} of {len(duos)} outputs are texts without token ids and were compared "
            "letter by letter. Different tokens of the same text, and special tokens, are not "
            "seen; and no letter has a log-probability, so no divergence can be judged."
        )
    short = sum(duo.how in (SHORTER, LONGER) and not duo.fault for duo in duos)
    if short:
        yield (
            f"{short} of {len(duos)} texts are equal as far as the shorter one goes. The rest of "
            "the longer one is not judged; give both sides one budget, and state it as max_tokens."
        )
    reasoned = sum(duo.candidate.has_reasoning or duo.reference.has_reasoning for duo in duos)
    if reasoned:
        yield f"{reasoned} of {len(duos)} texts are reasoning and content, compared as one text."
    unknown = sum(duo.prompt_ids is None and not _has_prompts(duo) for duo in duos)
    if unknown:
        yield (
            f"{unknown} outputs could not be matched by their prompts, because a side names none. "
            "They were matched by their order."
        )


def _has_prompts(duo: Duo) -> bool:
    return all(_has_prompt(side) for side in (duo.reference, duo.candidate))


def _has_prompt(output: Output) -> bool:
    return output.prompt is not None or output.prompt_ids is not None


def _on_reference(known: Mapping[int, Evidence], limit: float) -> Iterator[str]:
    off = {i: each for i, each in known.items() if each.below > limit}
    if off:
        i = min(off)
        yield (
            f"The reference itself is not what the target writes in {len(off)} of {len(known)} "
            f"diverging texts (prompt {i}, token {off[i].below_at}: {off[i].below:.3g} below the "
            "best). It was sampled, or made with another model, prompt template or dtype, or is "
            "wrong; compare the columns reference_gap and candidate_gap."
        )


def _on_dtype(known: Mapping[int, Evidence], limit: float, dtype: str | None) -> Iterator[str]:
    gaps = [each.gap for each in known.values() if each.gap > limit]
    if (
        dtype in ("float32", "float64")
        and gaps
        and max(gaps) <= largest_gap(math.nan, CEILINGS[LOOSEST])
    ):
        yield (
            f"The target reads in {dtype}. If the outputs were written in bfloat16 or float16, "
            "these gaps may be its noise: pass dtype= (--dtype), or the target in that dtype."
        )


def _without_target(duos: Sequence[Duo], has_control_noise: bool, has_dtype: bool) -> Iterator[str]:
    parted = [duo for duo in duos if duo.is_parted]
    has_any = any(_has_logprobs(side) for duo in parted for side in (duo.reference, duo.candidate))
    if all(duo.unit == "character" for duo in parted):
        return  # which is said already
    if not has_any:
        yield (
            "There is neither a target nor a log-probability, so no divergence can be judged. "
            "Pass the target, or outputs with log-probabilities."
        )
        return
    yield (
        "No target scored these texts. The gaps are what the decoders said of themselves, and what "
        "the candidate wrote after a divergence is not judged."
    )
    if not has_control_noise:
        yield (
            "The noise is the change of log-probabilities from the reference to the candidate, up "
            "to where they part. A slight fault of the candidate would count as noise; pass a "
            "control, or the target."
        )
    if not all(duo.reference.candidates is not None for duo in parted):
        yield (
            "The reference has no candidates beside its own tokens, so what it gave the "
            "candidate's token is not known, and no divergence can be called a near tie. Ask for "
            "the log-probabilities of the top 2 or more."
        )
    if not has_dtype:
        yield f"The dtype of the runs is not known; {LOOSEST} is assumed, which has most noise."


def _has_logprobs(output: Output) -> bool:
    return output.logprobs is not None or output.candidates is not None
