"""The tables of an audit: a row per prompt, and the totals.

Contract: what was compared and found goes in, frames come out. Texts are kept as they are: a view
has to escape them.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from specviz.checks.audit.duo import PARTED, Duo
from specviz.checks.audit.report import UNEXPLAINED, VERDICTS
from specviz.checks.audit.statistics import share_of
from specviz.checks.equivalence import NEAR_TIE, UNKNOWN, Evidence
from specviz.checks.scores import Token

EXPLAINED = "divergences that a tie explains"
_AROUND = 16  # tokens of a text that are shown before and after a divergence
_LETTERS = 80


def make_totals(verdicts: Sequence[str]) -> pd.DataFrame:
    """Return counts, totals and shares with their intervals, by verdict."""
    counts = {verdict: verdicts.count(verdict) for verdict in VERDICTS}
    shares = {verdict: share_of(count, len(verdicts)) for verdict, count in counts.items()}
    divergences = counts[NEAR_TIE] + counts[UNEXPLAINED] + counts[UNKNOWN]
    shares[EXPLAINED] = share_of(counts[NEAR_TIE], divergences)
    entries = []
    for share in shares.values():
        entry = {"count": share.count, "total": share.total, "share": share.share}
        entries.append(entry | {"low": share.low, "high": share.high})
    return pd.DataFrame(entries, index=pd.Index(list(shares), name="verdict"))


def make_prompts(
    duos: Sequence[Duo],
    known: Sequence[Evidence | None],
    verdicts: Sequence[tuple[str, str]],
    controls: Sequence[Duo] | None,
    tokenizer: Any,
) -> pd.DataFrame:
    """Return a row per prompt, see `Audit.prompts`.

    verdicts: with the reason of each, "" if there is none.
    """
    entries = []
    for i, (duo, found, (verdict, reason)) in enumerate(zip(duos, known, verdicts, strict=True)):
        entry = {"verdict": verdict, "reason": reason} | _entry(duo, found or Evidence())
        if controls is not None:
            entry["control_diverges"] = controls[i].how == PARTED
        entries.append(entry | _texts(duo, tokenizer))
    integers = dict.fromkeys(("first_divergence", "later_token"), "Int64")
    return pd.DataFrame(entries).astype(integers).rename_axis("prompt")


def _entry(duo: Duo, found: Evidence) -> dict[str, Any]:
    at = duo.at
    return {
        "unit": duo.unit,
        "first_divergence": pd.NA if at is None else at,
        "reference_token": _token(duo.theirs, at),
        "candidate_token": _token(duo.ours, at),
        "gap": found.gap,
        "reference_gap": found.reference_gap,
        "candidate_gap": found.candidate_gap,
        "later_gap": found.later_gap,
        "later_token": pd.NA if found.later_at is None else found.later_at,
        "measured_from": found.measured_from,
        "reference_length": len(duo.theirs),
        "candidate_length": len(duo.ours),
    }


def _token(tokens: Sequence[Token], at: int | None) -> Any:
    return pd.NA if at is None or at >= len(tokens) else tokens[at]


def _texts(duo: Duo, tokenizer: Any) -> dict[str, str]:
    prompt = duo.reference.prompt if duo.candidate.prompt is None else duo.candidate.prompt
    if prompt is None:
        prompt = _written(duo.prompt_ids or (), tokenizer)
    at = duo.at
    texts = {"prompt_text": prompt, "before": "", "reference_text": "", "candidate_text": ""}
    if at is not None:
        around = _AROUND if duo.unit == "token" else _LETTERS
        start = max(at - around, 0)
        texts["before"] = _written(duo.theirs[start:at], tokenizer)
        texts["reference_text"] = _written(duo.theirs[at : at + around], tokenizer)
        texts["candidate_text"] = _written(duo.ours[at : at + around], tokenizer)
    return texts


def _written(tokens: Sequence[Token], tokenizer: Any) -> str:
    """Return tokens as text, or ids in angle brackets without a tokenizer."""
    if any(isinstance(token, str) for token in tokens):
        return "".join(map(str, tokens))
    if tokenizer is not None:
        return str(tokenizer.decode(list(tokens)))
    return " ".join(f"<{token}>" for token in tokens)
