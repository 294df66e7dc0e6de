"""Whether the texts that a decoder drew have the target's distribution."""

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from specviz.checks.sampling.evidence import by_group, learnt, log_ratios, own, price
from specviz.checks.sampling.report import SamplingFinding
from specviz.checks.sampling.texts import Texts
from specviz.record.schema import Array

MIXED = (0.05, 0.15, 0.4, 0.8)  # shares of q in what is drawn
# Which way all draws may lean: how far, and what is drawn then from p and q, up to a factor.
LEANS = {
    "tokens lean to what the draft model gives more than the target": (
        MIXED,
        lambda p, q, share: (1 - share) * p + share * q,
    ),
    "tokens lean away from what the draft model gives": (
        MIXED,
        lambda p, q, share: np.clip(p + share * (p - q), 0, None),
    ),
    "the distribution is flatter than the target's, as if hotter": (
        (0.5, 0.8, 0.9),
        lambda p, _, power: p**power,
    ),
    "the distribution is sharper than the target's, as if colder": (
        (1.1, 1.25, 2.0),
        lambda p, _, power: p**power,
    ),
}


def judge_texts(
    draws: pd.DataFrame, texts: Texts, rows: int, alpha: float
) -> list[SamplingFinding]:
    """Return what speaks against the draws, the strongest evidence first."""
    _, row, place, context, token = draws.to_numpy().T
    p = texts.p[context]  # (N, V)
    prefixes, places = len(texts.p), texts.length
    level = -math.log(alpha)
    # Of each test: draws of which the alternative is the same, and those that it takes together.
    tests = {
        "place": (context, place, places),
        "prefix": (context, context, prefixes),
        "row": (row * prefixes + context, row * places + place, rows * places),
    }
    found: list[SamplingFinding] = []
    for test, (strata, group, count) in tests.items():
        scores = by_group(learnt(p, token, strata), group, count) - price(test, count)
        for at in np.flatnonzero(scores >= level).tolist():
            mine = group == at
            number = at // places if test == "row" else None
            one = _finding(test, float(scores[at]), texts, context[mine], token[mine], number)
            found.append(one)
    found += _leans(texts, context, token, place, level)
    return sorted(found, key=lambda each: -each.log_evidence)


def _leans(
    texts: Texts, context: Array, token: Array, place: Array, level: float
) -> Iterator[SamplingFinding]:
    """Yield which way all draws lean, or those of a place if that shows more."""
    possible = texts.p[context, token] > 0
    context, token, place = context[possible], token[possible], place[possible]
    p = texts.p[context]
    q = None if texts.q is None else texts.q[context]
    places = texts.length
    groups = np.concatenate([place, np.full(len(place), places)])
    for sentence, (amounts, weigh) in LEANS.items():
        if q is None and amounts is MIXED:
            continue
        weights = [weigh(p, q, amount) for amount in amounts]
        chances = np.stack([own(each, token) / each.sum(1) for each in weights], 1)  # (N, A)
        ratios = log_ratios(chances, own(p, token)[:, None])
        scores = by_group(np.concatenate([ratios, ratios]), groups, places + 1)
        scores -= price("lean", (places + 1) * len(LEANS))
        best = int(scores.argmax())
        if scores[best] >= level:
            is_all = best == places
            yield SamplingFinding(
                test="lean",
                sentence=sentence if is_all else f"{sentence} at new token {best + 1}",
                log_evidence=float(scores[best]),
                place=None if is_all else best,
                draws=int((groups == best).sum()),
            )


def _finding(
    test: str, score: float, texts: Texts, context: Array, token: Array, row: int | None
) -> SamplingFinding:
    """Return a finding, with the prefix and the token whose count is off by most deviations."""
    contexts, stratum = np.unique(context, return_inverse=True)
    counts = np.zeros((len(contexts), texts.size))
    np.add.at(counts, (stratum, token), 1)
    due = texts.p[contexts]
    total = counts.sum(1, keepdims=True)
    spread = np.sqrt(np.maximum(total * due * (1 - due), 0.25))
    at, worst = np.unravel_index(np.abs((counts - total * due) / spread).argmax(), counts.shape)
    prompt, prefix = texts.prefixes[int(contexts[at])]
    draws, expected = int(total[at, 0]), float(due[at, worst])
    observed = float(counts[at, worst] / draws)

    behind = " and ".join(f"[{' '.join(map(str, part))}]" for part in (prompt, prefix) if part)
    amount = f"instead of {expected:.1%}" if expected else "and is ruled out"
    amount = f"{observed:.1%} of {draws} draws{' ' if expected else ', '}{amount}"
    where = f"new token {len(prefix) + 1}: behind prompt {behind}"
    return SamplingFinding(
        test=test,
        sentence=f"{'' if row is None else f'row {row}, '}{where}, token {worst} is {amount}",
        log_evidence=score,
        row=row,
        place=len(prefix),
        prompt=prompt,
        prefix=prefix,
        token=int(worst),
        expected=expected,
        observed=observed,
        draws=draws,
    )
