"""Whether drafts are distributed as the q that judges them, and how else a decoder is wrong.

Contract: what was seen of the runs goes in, findings and causes come out. Not known here: hooks,
and whether the texts are right.

A decoder is honest if some q fits both its drafts and its judgements. A q at another temperature is
as good, so one is estimated. The evidence against honesty is the mean likelihood of all ways to
draw and to judge, over the largest one of the honest ways.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from specviz.checks.sampling.evidence import by_group, learnt, log_mean, own
from specviz.checks.sampling.proposals import (
    ABOVE,
    GUMBEL,
    LARGEST,
    OF_P,
    RATIO,
    SLACK,
    TEMPERED,
    WITHOUT,
    Q,
    behind_tokens,
    bonus_tokens,
    judgements,
    proposals,
)
from specviz.checks.sampling.rounds import UNSEEN, Behind, DraftQuery, Seen, stacked
from specviz.checks.sampling.texts import is_unclear
from specviz.engine.sampling import SamplingParams
from specviz.record.schema import Array

UNKNOWN = "something else than q"
FIXED = "a choice that is always the same behind a prefix, as of a beam"
NEAR = 5.0  # nats that the simplest hypothesis may be worse and is still the one that is named
CONVINCING = math.log(1e4)
BINS = 10
MOST = 20_000  # drafts that are looked at
ENOUGH = 3  # drafts behind a prefix, on average


@dataclass(frozen=True)
class Fit:
    """How drafts are drawn and judged.

    Attributes:
        drawn: the distribution that fits the drafts best.
        rule, judged_by: the rule that fits the judgements best, and its q; "" for none.
        log_evidence: against every honest way, natural logarithm.
        fits_drafts, fits_rule: whether these explain the drafts, and how often they are accepted.
        drafts, judged: how many were looked at.
        accepted: share of the drafts that were judged.
    """

    drawn: str
    rule: str
    judged_by: str
    log_evidence: float
    fits_drafts: bool
    fits_rule: bool
    drafts: int
    judged: int
    accepted: float

    @property
    def uses_q(self) -> bool:
        """Whether the judgement depends on how drafts were drawn."""
        return self.rule != OF_P


class Rules:
    """Compares what was seen with what decoders may do."""

    def __init__(self, seen: Seen, params: SamplingParams) -> None:
        self.params = params
        self.seen = seen
        self.judged = seen.judged[:MOST]
        clear = [each for each in seen.drafted if each.token != UNSEEN]
        self.partial = _partly_verified(seen.drafted)
        self.hidden = {each.depth for each in seen.drafted if each.token == UNSEEN}
        self.known = [each for each in clear if each.depth not in self.hidden][:MOST]

    def fit(self) -> Fit | None:
        """Return how drafts are drawn and judged; None if there are none to look at."""
        judged = self.judged
        if not self.known or not judged:
            return None
        drawn = self._drawn(self.known)
        tokens = np.array([each.draft.token for each in judged])
        depths = np.array([each.draft.depth for each in judged])
        accepted = np.array([each.accepted for each in judged])
        p = self._p(stacked([each.target_logits for each in judged]))
        logits = stacked([each.draft.logits for each in judged])
        raw = None
        if self.params.top_k is not None or self.params.top_p is not None:
            plain = SamplingParams(self.params.temperature)
            raw = (
                distribution(stacked([each.target_logits for each in judged]), plain),
                distribution(logits, plain),
            )
        rules = judgements(tokens, depths, p, proposals(logits, self.params), raw)
        likely = {
            rule: float(np.log(np.where(accepted, chance, 1 - chance)).sum())
            for rule, chance in rules.items()
        }
        best_drawn = _simplest(drawn, Q)
        best_rule = _simplest(likely, (RATIO, Q))
        named = [name for name in drawn if name != UNKNOWN]
        honest = [drawn[name] + likely[rule, name] for name in named for rule in (RATIO, GUMBEL)]
        honest.append(max(drawn.values()) + likely[OF_P, ""])
        every = _mean_of(drawn) + _mean_of({f"{rule} {q}": x for (rule, q), x in likely.items()})
        return Fit(
            drawn=FIXED if best_drawn != LARGEST and _repeats(self.known) else best_drawn,
            rule=best_rule[0],
            judged_by=best_rule[1],
            log_evidence=every - max(honest),
            fits_drafts=self._explains_drafts(best_drawn),
            fits_rule=_explains(rules[best_rule], accepted, depths),
            drafts=len(self.known),
            judged=len(judged),
            accepted=float(accepted.mean()),
        )

    def _p(self, logits: Array) -> Array:
        return distribution(logits, self.params)

    def _drawn(self, drafts: list[DraftQuery]) -> dict[str, float]:
        """Return the log likelihood of drafts under each way to draw them."""
        logits = stacked([each.logits for each in drafts])
        tokens = np.array([each.token for each in drafts])
        clear = ~is_unclear(torch.from_numpy(logits), self.params)
        logits, tokens = logits[clear], tokens[clear]
        named = proposals(logits, self.params)
        with np.errstate(divide="ignore"):
            found = {name: float(np.log(own(q, tokens)).sum()) for name, q in named.items()}
        prefixes: dict[tuple[int, ...], int] = {}
        strata = np.array([prefixes.setdefault(each.prefix, len(prefixes)) for each in drafts])
        base = 0.99 * named[Q] + 0.01 / named[Q].shape[1]  # so that any token may be learnt
        ratio = learnt(base, tokens, strata[clear])
        more = by_group(ratio, np.zeros(len(tokens), int), 1)[0]
        found[UNKNOWN] = float(np.log(own(base, tokens)).sum() + more)
        return found

    def _explains_drafts(self, name: str) -> bool:
        """Return whether each rank of tokens is drafted as often as a distribution says.

        Ranks take all drafts together, so that an unknown filter shows soon.
        """
        if name == UNKNOWN:
            return False
        logits = stacked([each.logits for each in self.known])
        tokens = np.array([each.token for each in self.known])
        q = proposals(logits, self.params)[name]
        order = np.argsort(-q, axis=1, kind="stable")
        ranks = (order == tokens[:, None]).argmax(1)
        by_rank = np.take_along_axis(q, order, 1)
        base = (1 - SLACK / 10) * by_rank + SLACK / 10 / by_rank.shape[1]
        ratio = learnt(base, ranks, np.zeros(len(ranks), int))
        return bool(by_group(ratio, np.zeros(len(ranks), int), 1)[0] < CONVINCING)

    def foresight(self, fit: Fit | None) -> tuple[float, Array] | None:
        """Return the log evidence that verifying a draft depends on it, and shares; None if none.

        The shares are those of drafts that are verified, and the mean q of the verified ones, with
        what it would be without foresight.
        """
        if not self.partial or (fit is not None and not fit.uses_q):
            return None
        chosen = [each for each in self.seen.drafted if self._is_chosen(each)][:MOST]
        if not chosen:
            return None
        rest = [each for each in self.known if each.depth not in self.partial or each.run % 2 == 0]
        logits = stacked([each.logits for each in chosen])
        tokens = np.array([each.token for each in chosen])
        named = proposals(logits, self.params)
        tilted = np.stack([named[Q] ** power for power in (0.5, 1.3, 2.0, 3.0)], 1)
        tilted /= tilted.sum(-1, keepdims=True)  # (N, A, V)
        alternatives = np.log(tilted[np.arange(len(tokens)), :, tokens]).sum(0)
        drawn = self._drawn(rest) if rest else dict.fromkeys(named, 0.0)
        with np.errstate(divide="ignore"):
            here = {name: float(np.log(own(q, tokens)).sum()) for name, q in named.items()}
        # Without drafts that are known in any case, foresight looks like another temperature.
        null = max(drawn[name] + here[name] for name in here)
        score = float(log_mean(alternatives)) + drawn[Q] - null
        at_choice = [each for each in self.seen.drafted if each.depth in self.partial]
        verified = np.mean([each.is_verified for each in at_choice])
        q = named[Q]
        return score, np.array([verified, own(q, tokens).mean(), (q**2).sum(1).mean()])

    def _is_chosen(self, draft: DraftQuery) -> bool:
        """Return whether a draft is one of those verified ones that foresight is tested with."""
        if draft.depth not in self.partial or not draft.is_verified:
            return False
        return draft.depth in self.hidden or draft.run % 2 == 1

    def behind(self, fit: Fit | None) -> list[str]:
        """Return what the tokens behind accepted drafts are drawn from, where that is wrong."""
        causes = []
        rejected = [each for each in self.seen.behind if each.draft is not None][:MOST]
        if rejected:
            causes.append(self._of_rejected(rejected, fit))
        full = [each for each in self.seen.behind if each.draft is None][:MOST]
        if full:
            p = self._p(stacked([each.target_logits for each in full]))
            others = self._neighbours(full)
            tokens = np.array([each.token for each in full])
            best = _convincing(bonus_tokens(p, others), tokens, "p")
            if best:
                causes.append(f"the token behind all drafts is drawn from {best}, not from p")
        return [cause for cause in causes if cause]

    def _of_rejected(self, rejected: list[Behind], fit: Fit | None) -> str:
        tokens = np.array([each.token for each in rejected])
        refused = [each.draft for each in rejected if each.draft is not None]
        drafts = np.array([each.token for each in refused])
        p = self._p(stacked([each.target_logits for each in rejected]))
        named = proposals(stacked([each.logits for each in refused]), self.params)
        judged_by = fit.judged_by if fit is not None and fit.judged_by in named else Q
        found = behind_tokens(drafts, p, named[judged_by], self._neighbours(rejected))
        right = ABOVE if fit is None or fit.uses_q else WITHOUT
        best = _convincing(found, tokens, right)
        # A draw from p that gives the draft again looks as if the draft had been accepted.
        best = "p" if best == WITHOUT else best
        if not best:
            return ""
        return f"the token behind a rejected draft is drawn from {best}, not from {right}"

    def _neighbours(self, behind: list[Behind]) -> dict[str, Array]:
        """Return the target's distributions one place before and after, where all have one."""
        found = {}
        words = {"before": "p one place too early", "after": "p one place too late"}
        for side, name in words.items():
            logits = [getattr(each, side) for each in behind]
            if all(each is not None for each in logits):
                found[name] = self._p(stacked(logits))
        return found


def distribution(logits: Array, params: SamplingParams) -> Array:
    """Return the probabilities (N, V) of logits (N, V)."""
    found: Array = params.distribution(torch.from_numpy(logits)).numpy()
    return found


def _partly_verified(drafted: list[DraftQuery]) -> set[int]:
    """Return the depths at which some drafts are verified and others are not."""
    states: dict[int, set[bool]] = {}
    for each in drafted:
        states.setdefault(each.depth, set()).add(each.is_verified)
    return {depth for depth, found in states.items() if len(found) > 1}


def _mean_of(likely: Mapping[str, float]) -> float:
    """Return the log mean likelihood, in which all other temperatures count for one half."""
    other = np.array([each for name, each in likely.items() if TEMPERED in name])
    named = np.array([each for name, each in likely.items() if TEMPERED not in name])
    return float(log_mean(np.array([log_mean(other), log_mean(named)])))


def _repeats(drafts: list[DraftQuery]) -> bool:
    """Return whether drafts behind the same prefix are always the same, in enough cases."""
    first: dict[tuple[int, ...], int] = {}
    same = all(first.setdefault(each.prefix, each.token) == each.token for each in drafts)
    return same and len(drafts) >= ENOUGH * len(first)


def _simplest(likely: dict[Any, float], first: Any) -> Any:
    """Return the likeliest hypothesis, or the first one if it is about as good."""
    best = max(likely, key=likely.__getitem__)
    return first if likely[first] >= likely[best] - NEAR else best


def _explains(chance: Array, accepted: Array, depths: Array) -> bool:
    """Return whether drafts are accepted as often as a rule says, at each chance and depth."""
    strata = np.minimum((chance * BINS).astype(int), BINS - 1) + BINS * depths
    both = np.stack([1 - chance, chance], 1)
    ratio = learnt(both, accepted.astype(int), strata)
    return bool(by_group(ratio, np.zeros(len(chance), int), 1)[0] < CONVINCING)


def _convincing(named: dict[str, Array], tokens: Array, right: str) -> str:
    """Return the hypothesis that fits far better than the right one; "" if none does."""
    likely = {name: float(np.log(own(each, tokens)).sum()) for name, each in named.items()}
    best = max(likely, key=likely.__getitem__)
    return best if likely[best] > likely[right] + CONVINCING else ""
