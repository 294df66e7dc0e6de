"""Whether the log-probabilities that came with a candidate's texts can be right: beside those of a
target that reads the texts, or, without one, beside the reference's.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from specviz.checks.audit.duo import Duo
from specviz.checks.audit.output import Output
from specviz.checks.evidence import noise_of
from specviz.record.schema import Array
from specviz.util.text import count

if TYPE_CHECKING:
    from specviz.checks.audit.target import Target

# What wrong log-probabilities are.
ZERO, CONSTANT, BASE = "all zero", "all the same", "in base {}"
PROCESSED = "those after processing"
NEXT, BEFORE = "shifted by one (the next token's)", "shifted by one (the previous token's)"
OTHER_PROMPT, DRAFT = "those of prompt {}", "those of the draft"
NO_REASON = "for no reason that is known here"
TOO_MUCH = "more than the top candidates leave"

_ENOUGH = 8  # tokens of a text from which an explanation is believed
_MOST = 0.9  # of a text's tokens, which an explanation has to fit
_CLEARLY = 0.2  # an explanation's error over that of the right values, at most; and over the spread
_ROUNDED = 0.01  # files round to two decimals, or hold bfloat16
_CONTRADICTION = 0.05  # more than this is no rounding
_UNLIKELY = -10.0  # a token that is less likely has more noise, and is not compared
_LOWEST = -1e4  # what stands for minus infinity
_MOST_NAMED = 4


def can_compare(target: "Target", duo: Duo) -> bool:
    """Return whether a target can tell if a candidate's log-probabilities are right.

    It cannot if it asks of `generate` what changes them.
    """
    return target.ignored is None and bool(_readable(target, duo))


def compare_logprobs(target: "Target | None", duos: Sequence[Duo], limit: float) -> pd.DataFrame:
    """Return how far the candidate's log-probabilities are off; see `Audit.logprobs`.

    Each text that has some is read in a plain forward.

    Args:
        target: nothing is compared without one.
        duos: all prompts.
        limit: the largest difference that noise explains.
    """
    right = {}
    for i, duo in enumerate(duos):
        if target is not None and can_compare(target, duo):
            right[i] = _chosen(target, duo, _readable(target, duo))
    tolerance = limit + _ROUNDED
    entries: list[dict[str, Any]] = []
    for i, duo in enumerate(duos):
        entry: dict[str, Any] = {"difference": math.nan, "token": pd.NA, "explanation": ""}
        entries.append(entry)
        if target is None or i not in right:
            continue
        said = _array(duo.candidate.logprobs or ())[: len(right[i])]
        errors = np.where(right[i] > _UNLIKELY, np.abs(said - right[i]), math.nan)
        if np.isnan(errors).all():
            continue
        worst = int(np.nanargmax(errors))
        entry.update(difference=float(errors[worst]), token=worst)
        if errors[worst] > tolerance:
            others = _explanations(target, duo, said, right, i)
            fitting = (name for name, each in others if _fits(said, each, right[i], tolerance))
            entry["explanation"] = _constant(said, worst) or next(fitting, NO_REASON)
    return pd.DataFrame(entries).astype({"token": "Int64"}).rename_axis("prompt")


def sentence_on(found: pd.DataFrame, limit: float) -> str:
    """Return what a report says of them, "" if they are right. See `compare_logprobs`."""
    wrong = found[found["explanation"] != ""]
    if wrong.empty:
        return ""
    counts = wrong["explanation"].value_counts()
    named = [f"{name} in {count(n, 'text')}" for name, n in counts.items()]
    named[_MOST_NAMED:] = ["see the report's logprobs"] if len(named) > _MOST_NAMED else []
    hint = ""
    if NO_REASON in counts:
        hint = " The target may have read another prompt template or dtype than the candidate."
    return (
        f"The candidate's log-probabilities differ from the target's by up to "
        f"{wrong['difference'].max():.3g} at equal tokens in {len(wrong)} of "
        f"{count(int(found['difference'].notna().sum()), 'text')}, and noise explains {limit:.3g}: "
        f"{'; '.join(named)}.{hint}"
    )


def believed_noise(role: str, duos: Sequence[Duo]) -> tuple[list[Duo], float, str]:
    """Return the noise from the reference to a side, but none from impossible log-probabilities.

    Returns the texts, without what is impossible; the noise, see `noise_of`; and a sentence on what
    is impossible, "" if nothing.
    """
    faults = {i: fault for i, duo in enumerate(duos) if (fault := _impossible(duo))}
    if not faults:
        return list(duos), noise_of(duos), ""
    first = next(iter(faults))
    note = (
        f"The {role}'s log-probabilities cannot be right in {len(faults)} of "
        f"{count(len(duos), 'text')}; in prompt {first} they are {faults[first]}. They are not "
        f"used there, and no noise is taken from the {role}."
    )
    kept = [
        replace(duo, candidate=replace(duo.candidate, logprobs=None, candidates=None))
        if i in faults
        else duo
        for i, duo in enumerate(duos)
    ]
    return kept, math.nan, note


def _readable(target: "Target", duo: Duo) -> Sequence[int]:
    """Return the tokens that are compared: up to EOS, as padding may follow.

    There are none without numbers, or if a text does not fit into the target's positions.
    """
    output = duo.candidate
    if not duo.prompt_ids or not output.token_ids or output.logprobs is None:
        return ()
    if all(map(math.isnan, output.logprobs)):
        return ()
    ids, eos = output.token_ids, target.eos_token_ids
    # The noise is measured in the reference.
    length = len(duo.prompt_ids) + max(len(ids), len(duo.ours), len(duo.theirs))
    if target.max_positions is not None and length > target.max_positions:
        return ()
    stop = next((m for m, token in enumerate(ids, 1) if token in eos), len(ids))
    return ids[:stop]


def _chosen(target: "Target", duo: Duo, ids: Sequence[int], processors: Any = None) -> Array:
    """Return a model's log-probabilities of a text's own tokens, (M,), as processed."""
    # Imported here, so that files can be compared without torch.
    from specviz.checks.noise import score_text

    text = duo.prompt_ids or (), ids
    return score_text(target, text, processors=processors).chosen.astype(float)


def _array(logprobs: Sequence[float]) -> Array:
    """Return log-probabilities without infinities, (M,), NaN where unknown."""
    return np.maximum(np.array(logprobs, float), _LOWEST)


def _constant(said: Array, worst: int) -> str:
    """Return ZERO or CONSTANT if most values are the same, the worst one too; else ""."""
    known = said[~np.isnan(said)]
    is_same = known == said[worst]
    if is_same.sum() < max(_ENOUGH, _nearly(len(known))):
        return ""
    return CONSTANT if said[worst] else ZERO


def _nearly(n: int) -> float:
    """Return how many of n tokens have to fit: engines score the first one apart."""
    return min(_MOST * n, n - 1)


def _explanations(
    target: "Target", duo: Duo, said: Array, right: Mapping[int, Array], i: int
) -> Iterator[tuple[str, Array]]:
    """Yield what the values that prompt i is said to have may be, (M,), the cheapest first."""
    own = right[i]
    yield from _shifted(own)
    if target.processors is not None:
        ids = _readable(target, duo)
        yield PROCESSED, _chosen(target, duo, ids, target.processors_of(duo.prompt_ids or (), ids))
    for base in (10, 2):
        yield BASE.format(base), own / math.log(base)
    others = {}
    for j, values in right.items():
        if j != i:
            others[j] = np.full(len(own), math.nan)
            others[j][: len(values)] = values[: len(own)]

    def error(j: int) -> float:
        errors = np.abs(said - others[j])
        known = errors[~np.isnan(errors)]
        return float(known.mean()) if len(known) >= _ENOUGH else math.inf

    if others:
        nearest = min(others, key=error)
        yield OTHER_PROMPT.format(nearest), others[nearest]
    draft, ids = target.draft, _readable(target, duo)
    is_known = draft is not None and max(*(duo.prompt_ids or ()), *ids) < draft.vocabulary_size
    if draft is not None and is_known and _readable(draft, duo):
        yield DRAFT, _chosen(draft, duo, ids)


def _shifted(values: Array) -> Iterator[tuple[str, Array]]:
    yield NEXT, np.append(values[1:], math.nan)
    yield BEFORE, np.append(math.nan, values[:-1])


def _fits(said: Array, values: Array, right: Array, tolerance: float) -> bool:
    """Return whether values are clearly nearer to what is said than the right ones, and near."""
    errors = np.abs(said - values)
    known = ~np.isnan(errors)
    is_near = known & (errors <= tolerance)
    enough = known.sum() >= _nearly(int((~np.isnan(said)).sum()))
    if not enough or is_near.sum() < max(_ENOUGH, _nearly(int(known.sum()))):
        return False
    said = said[is_near]
    # Values that hardly vary lie near many others.
    spread = float(np.abs(said - np.median(said)).mean())
    wrong = float(np.nanmean(np.abs(said - right[is_near])))
    return bool(errors[is_near].mean() < _CLEARLY * min(wrong, spread))


def _impossible(duo: Duo) -> str:
    """Return what a candidate's log-probabilities are, if they cannot be right; else ""."""
    candidate, reference = duo.candidate, duo.reference
    # What a record says is checked by its invariants.
    if candidate.is_recorded or not duo.is_counted:
        return ""
    said, right = (_own(side, len(duo.ours)) for side in (candidate, reference))
    if any(_exceeds(candidate, m) for m in range(len(said))):
        return TOO_MUCH
    stop = len(right) if duo.at is None else duo.at
    # Under equal prefixes. In a text that repeats itself, right values may be the same.
    right = np.where(np.arange(len(right)) < stop, right, math.nan)
    errors = np.abs(said - right)
    if np.isnan(errors).all():
        return ""
    worst, there = int(np.nanargmax(errors)), right[~np.isnan(right)]
    if min(errors[worst], np.ptp(there)) > _CONTRADICTION and (name := _constant(said, worst)):
        return name
    said = np.where(np.isnan(right), math.nan, said)
    shifts = _shifted(right)
    return next((name for name, each in shifts if _fits(said, each, right, math.inf)), "")


def _own(side: Output, length: int) -> Array:
    """Return a side's log-probabilities of its first tokens, (length,), NaN where unknown."""
    tokens = (side.tokens or ())[:length]
    found = np.full(length, math.nan)
    for m, token in enumerate(tokens):
        own = math.nan if side.logprobs is None else side.logprobs[m]
        found[m] = side.place(m).get(token, math.nan) if math.isnan(own) else own
    return _array(found.tolist())


def _exceeds(side: Output, m: int) -> bool:
    """Return whether a token is likelier than the top candidates say, or leave."""
    if side.token_ids is None or side.logprobs is None or side.candidates is None:
        return False  # one text may stand for several tokens
    own, token, top = side.logprobs[m], side.token_ids[m], side.candidates[m]
    if math.isnan(own) or not top:
        return False
    if token in top:
        return own > top[token] + _CONTRADICTION
    left = 1 - sum(map(math.exp, top.values()))
    return own > min(top.values()) + _CONTRADICTION or math.exp(own) > left + _CONTRADICTION
