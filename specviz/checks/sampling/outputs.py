"""Whether the texts that a decoder drew have the target's distribution.

Contract: draws and the exact distributions go in, findings come out. Not known here: models, and
how the decoder works.
"""

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from specviz.checks.sampling.evidence import by_group, learnt, log_ratios, own
from specviz.checks.sampling.findings import SamplingFinding
from specviz.checks.sampling.shares import price
from specviz.checks.sampling.texts import DrawnTokens, Texts
from specviz.record.schema import Array

MIXED = (0.05, 0.15, 0.4, 0.8)  # shares of q in what is drawn
POWERS = (0.5, 0.8, 0.9, 1.1, 1.25, 2.0)  # of p
LEANS = {
    "towards q": "tokens lean to what the draft model gives more than the target",
    "away from q": "tokens lean away from what the draft model gives",
    "flatter": "the distribution is flatter than the target's, as if hotter",
    "sharper": "the distribution is sharper than the target's, as if colder",
}


def judge_texts(draws: DrawnTokens, texts: Texts, rows: int, alpha: float) -> list[SamplingFinding]:
    """Return what speaks against the draws, the strongest evidence first."""
    p = texts.p[draws.context]  # (N, V)
    q = None if texts.q is None else texts.q[draws.context]
    places = texts.length
    kept = np.flatnonzero(draws.kept)
    p, token = p[kept], draws.token[kept]
    context, place = draws.context[kept], draws.place[kept]
    row = draws.row[kept]
    level = -math.log(alpha)
    found: list[SamplingFinding] = []

    ratios = learnt(p, token, context)
    scores = by_group(ratios, place, places) - price("place", places)
    for at in np.flatnonzero(scores >= level).tolist():
        mask = place == at
        found.append(_finding("place", scores[at], texts, context[mask], token[mask], place=at))

    of_context = by_group(ratios, context, len(texts.p)) - price("prefix", len(texts.p))
    for at in np.flatnonzero(of_context >= level).tolist():
        mask = context == at
        found.append(_finding("prefix", of_context[at], texts, context[mask], token[mask]))

    ratios = learnt(p, token, row * len(texts.p) + context)
    group = row * places + place
    scores = by_group(ratios, group, rows * places) - price("row", rows * places)
    for at in np.flatnonzero(scores >= level).tolist():
        mask = group == at
        one = _finding(
            "row",
            scores[at],
            texts,
            context[mask],
            token[mask],
            place=at % places,
            row=at // places,
        )
        found.append(one)

    found += _leans(p, None if q is None else q[kept], token, place, places, level)
    return sorted(found, key=lambda each: -each.log_evidence)


def _leans(
    p: Array, q: Array | None, token: Array, place: Array, places: int, level: float
) -> Iterator[SamplingFinding]:
    """Yield which way all draws lean, and those of each place."""
    possible = own(p, token) > 0
    p, q = p[possible], None if q is None else q[possible]
    token, place = token[possible], place[possible]
    chosen = own(p, token)
    names, ratios = zip(*_alternatives(p, q, token), strict=True)
    for name, ratio in zip(names, ratios, strict=True):
        log = log_ratios(ratio, chosen[:, None])
        groups = np.concatenate([place, np.full(len(place), places)])
        scores = by_group(np.concatenate([log, log]), groups, places + 1)
        scores -= price("lean", (places + 1) * len(LEANS))
        best = int(scores.argmax())
        if scores[best] >= level:
            where = "" if best == places else f" at new token {best + 1}"
            yield SamplingFinding(
                test="lean",
                sentence=f"{LEANS[name]}{where}",
                log_evidence=float(scores[best]),
                place=None if best == places else best,
                draws=len(token) if best == places else int((place == best).sum()),
            )


def _alternatives(p: Array, q: Array | None, token: Array) -> Iterator[tuple[str, Array]]:
    """Yield names and chances (N, A) of the tokens that were drawn."""
    chosen = own(p, token)
    if q is not None:
        drafted = own(q, token)
        yield "towards q", np.stack([(1 - m) * chosen + m * drafted for m in MIXED], 1)
        away = []
        for mixed in MIXED:
            weights = np.clip(p + mixed * (p - q), 0, None)
            away.append(own(weights, token) / weights.sum(1))
        yield "away from q", np.stack(away, 1)
    raised = {power: p**power for power in POWERS}
    share = {power: own(each, token) / each.sum(1) for power, each in raised.items()}
    yield "flatter", np.stack([share[power] for power in POWERS if power < 1], 1)
    yield "sharper", np.stack([share[power] for power in POWERS if power > 1], 1)


def _finding(
    test: str,
    score: float,
    texts: Texts,
    context: Array,
    token: Array,
    *,
    place: int | None = None,
    row: int | None = None,
) -> SamplingFinding:
    """Return a finding with the prefix and the token that show it best."""
    worst = worst_cell(texts.p, context, token)
    prompt, prefix = texts.name(worst.context)
    place = len(prefix) if place is None else place
    in_row = "" if row is None else f"row {row}, "
    behind = f"prompt {_listed(prompt)}" + (f" and {_listed(prefix)}" if prefix else "")
    amount = f"{worst.observed:.1%} of {worst.draws} draws instead of {worst.expected:.1%}"
    if worst.expected == 0:
        amount = f"{worst.observed:.1%} of {worst.draws} draws, and is ruled out"
    return SamplingFinding(
        test=test,
        sentence=f"{in_row}new token {place + 1}: behind {behind}, token {worst.token} is {amount}",
        log_evidence=float(score),
        row=row,
        place=place,
        prompt=prompt,
        prefix=prefix,
        token=worst.token,
        expected=worst.expected,
        observed=worst.observed,
        draws=worst.draws,
    )


class PrefixedToken:
    """A token behind a prefix, and how far its share is off."""

    def __init__(self, context: int, token: int, expected: float, observed: float, draws: int):
        self.context = context
        self.token = token
        self.expected = expected
        self.observed = observed
        self.draws = draws


def worst_cell(p: Array, context: Array, token: Array) -> PrefixedToken:
    """Return the cell whose count is off by most standard deviations."""
    counts = pd.crosstab(context, token).reindex(columns=range(p.shape[1]), fill_value=0)
    seen = counts.to_numpy()
    due = p[counts.index.to_numpy()]
    total = seen.sum(1, keepdims=True)
    spread = np.sqrt(np.maximum(total * due * (1 - due), 0.25))
    at, worst = np.unravel_index(np.abs((seen - total * due) / spread).argmax(), seen.shape)
    draws = int(total[at, 0])
    return PrefixedToken(
        context=int(counts.index[at]),
        token=int(worst),
        expected=float(due[at, worst]),
        observed=float(seen[at, worst] / draws),
        draws=draws,
    )


def tokens_of(tokens: tuple[int, ...]) -> str:
    return " ".join(map(str, tokens))


def _listed(tokens: tuple[int, ...]) -> str:
    return f"[{tokens_of(tokens)}]"
