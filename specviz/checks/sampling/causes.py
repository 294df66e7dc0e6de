"""Say what explains that a decoder's texts are wrong, and whether its drafts are what it judges.

A decoder is honest if some q fits both its drafts and its judgements. A q at another temperature is
as good, so one is estimated. The evidence against honesty is the mean likelihood of all ways to
draw and to judge, over the largest one of the honest ways.
"""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from specviz.checks.sampling.evidence import learnt, log_mean, own, price
from specviz.checks.sampling.hypotheses import (
    ABOVE,
    BY_NAME,
    LARGEST,
    OF_P,
    RATIO,
    SLACK,
    TEMPERED,
    UNFILTERED,
    UNWARPED,
    WITHOUT,
    Judged,
    Q,
    after_rejection,
    behind_all,
    distribution,
    is_filtered,
    judgements,
    proposals,
)
from specviz.checks.sampling.report import SamplingFinding
from specviz.checks.sampling.rounds import DraftQuery, Seen, TargetQuery
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

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Fit:
    """How drafts are drawn and judged."""

    rule: str  # that fits the judgements best
    judged_by: str  # its q
    fact: str  # what fits best, in a sentence
    blame: str  # what is wrong with that, in a sentence; "" if nothing is
    log_evidence: float  # against every honest way
    fits_rule: bool  # whether the rule explains how often drafts are accepted
    is_known: bool  # whether, besides, the way to draw explains the drafts
    drafts: int  # how many were looked at


def explain(
    seen: Seen, params: SamplingParams, is_wrong: bool, alpha: float
) -> tuple[list[str], list[str], list[SamplingFinding]]:
    """Return causes, facts, and what is wrong whatever the texts show.

    Args:
        is_wrong: whether the texts are. Causes are named then on less evidence.
    """
    causes: list[str] = []
    findings: list[SamplingFinding] = []

    def weigh(test: str, sentence: str, evidence: float, is_known: bool, draws: int) -> None:
        score = evidence - price(test, 1)
        if is_known and score >= -math.log(alpha):
            findings.append(SamplingFinding(test, sentence, score, draws=draws))
            causes.append(sentence)
        elif is_wrong and evidence >= CONVINCING:
            causes.append(sentence)

    # Depths at which some drafts are not known cannot be compared with q.
    hidden = {each.depth for each in seen.drafted if each.token is None}
    known = [each for each in seen.drafted if each.depth not in hidden][:MOST]
    fit = find_fit(known, seen.judged, params)
    facts = [] if fit is None else [fit.fact]
    if fit is not None and fit.blame:
        # Wrong rules of acceptance show in the texts. Ways that are not known here may be right.
        is_known = fit.is_known and fit.rule == RATIO
        weigh("drafts", fit.blame, fit.log_evidence, is_known, fit.drafts)
    if fit is None or fit.rule != OF_P:
        found = foresight(seen.drafted, known, hidden, params)
        if found is not None:
            weigh("selection", *found, is_known=True, draws=0)
    if is_wrong and not causes:
        causes += _behind([each for each in seen.judged if not each.is_accepted], fit, params)
    if fit is not None and not fit.fits_rule and not causes:
        facts.append("No rule that is known here explains how often drafts are accepted.")
    return causes, facts, findings


def find_fit(
    known: Sequence[DraftQuery], queries: Sequence[TargetQuery], params: SamplingParams
) -> Fit | None:
    """Return how drafts are drawn and judged; None if there are none to look at."""
    judged = [(each, each.draft) for each in queries if each.draft is not None][:MOST]
    if not known or not judged:
        return None
    accepted = np.array([int(each.is_accepted) for each, _ in judged])
    depths = np.array([draft.depth for _, draft in judged])
    target_logits = np.stack([each.logits for each, _ in judged])
    logits = np.stack([draft.logits for _, draft in judged])
    unfiltered = None
    if is_filtered(params):
        plain = SamplingParams(params.temperature)
        unfiltered = distribution(target_logits, plain), distribution(logits, plain)
    at = Judged(
        tokens=np.array([draft.token for _, draft in judged]),
        depths=depths,
        p=distribution(target_logits, params),
        unfiltered=unfiltered,
    )
    rules = judgements(at, proposals(logits, params))
    likely = likelihoods(rules, accepted)
    drawn = _drawn(known, params)
    honest = [drawn[q] + each for (rule, q), each in likely.items() if BY_NAME[rule].of_any_q]
    honest.append(max(drawn.values()) + likely[OF_P, Q])

    best_drawn = _simplest(drawn, Q)
    best_rule = _simplest(likely, (RATIO, Q))
    rule, judged_by = best_rule
    strata = np.minimum((rules[best_rule][:, 1] * BINS).astype(int), BINS - 1) + BINS * depths
    fits_rule = _explains(rules[best_rule], accepted, strata)
    source = FIXED if best_drawn != LARGEST and _repeats(known) else best_drawn
    words = BY_NAME[rule].words.format(q=judged_by)
    blame = ""
    if not BY_NAME[rule].is_right:
        words = f"as accepted {words}"
        blame = f"drafts are {words.removeprefix('as ')}"
        blame += "" if source == Q else f", and drawn from {source}"
    elif rule == RATIO and judged_by in (Q, UNFILTERED, UNWARPED) and source != judged_by:
        blame = f"drafts are drawn from {source}, and judged as if from {judged_by}"
    return Fit(
        rule=rule,
        judged_by=judged_by,
        fact=f"{len(known)} drafts fit {source} best; of {len(judged)} that were judged "
        f"{accepted.mean():.0%} were accepted, best explained {words}.",
        blame=blame,
        log_evidence=_mean_of(drawn) + _mean_of(likely) - max(honest),
        is_known=fits_rule and _explains_drafts(best_drawn, known, params),
        fits_rule=fits_rule,
        drafts=len(known),
    )


def foresight(
    drafted: Sequence[DraftQuery],
    known: Sequence[DraftQuery],
    hidden: set[int],
    params: SamplingParams,
) -> tuple[str, float] | None:
    """Return a sentence and the log evidence that verifying a draft depends on it; None if none."""
    verified = {each.depth for each in drafted if each.is_verified}
    partial = {each.depth for each in drafted if not each.is_verified and each.depth in verified}
    # Of drafts that are all known, one half shows how they are drawn, the other which are verified.
    chosen = [
        each
        for each in drafted
        if each.depth in partial
        and each.is_verified
        and (each.depth in hidden or each.run % 2 == 1)
    ][:MOST]
    if not chosen:
        return None
    rest = [each for each in known if each.depth not in partial or each.run % 2 == 0]
    named = proposals(np.stack([each.logits for each in chosen]), params)
    tokens = np.array([each.token for each in chosen])
    q = named[Q]
    alternatives = []
    for power in (0.5, 1.3, 2.0, 3.0):
        tilted = q**power
        alternatives.append(np.log(own(tilted, tokens) / tilted.sum(1)).sum())
    drawn = _drawn(rest, params) if rest else dict.fromkeys(named, 0.0)
    # Without drafts that are known in any case, foresight looks like another temperature.
    null = max(drawn[name] + here for name, here in likelihoods(named, tokens).items())
    share = np.mean([each.is_verified for each in drafted if each.depth in partial])
    sentence = (
        f"whether a draft is verified depends on that draft (foresight): {share:.0%} are, with a "
        f"mean q of {own(q, tokens).mean():.3f} where it should be {(q**2).sum(1).mean():.3f}"
    )
    return sentence, float(log_mean(np.array(alternatives))) + drawn[Q] - null


def _behind(
    queries: Sequence[TargetQuery], fit: Fit | None, params: SamplingParams
) -> Iterator[str]:
    """Yield what the tokens behind accepted drafts are drawn from, where that is wrong."""
    rejected = [(each, each.draft) for each in queries if each.draft is not None][:MOST]
    if rejected:
        right = WITHOUT if fit is not None and fit.rule == OF_P else ABOVE
        mine = [each for each, _ in rejected]
        drafts = np.array([draft.token for _, draft in rejected])
        named = proposals(np.stack([draft.logits for _, draft in rejected]), params)
        q = named[Q if fit is None else fit.judged_by]
        best = _better(after_rejection(drafts, _p(mine, "logits", params), q), mine, right, params)
        # A draw from p that gives the draft again looks as if the draft had been accepted.
        best = "p" if best == WITHOUT else best
        if best:
            yield f"the token behind a rejected draft is drawn from {best}, not from {right}"
    full = [each for each in queries if each.draft is None][:MOST]
    if full:
        best = _better(behind_all(_p(full, "logits", params)), full, "p", params)
        if best:
            yield f"the token behind all drafts is drawn from {best}, not from p"


def _p(queries: Sequence[TargetQuery], which: str, params: SamplingParams) -> Array:
    """Return p (N, V) of the logits of queries, or of those one place before or after."""
    return distribution(np.stack([getattr(each, which) for each in queries]), params)


def _better(
    named: dict[str, Array], queries: Sequence[TargetQuery], right: str, params: SamplingParams
) -> str:
    """Return the hypothesis that fits far better than the right one; "" if none does.

    The tokens may also be drawn one place before or after, where all queries have such a place.
    """
    sides = {"p one place too early": "before", "p one place too late": "after"}
    for name, side in sides.items():
        if all(getattr(each, side) is not None for each in queries):
            named[name] = _p(queries, side, params)
    # A little is given to what a hypothesis rules out, so that one token does not decide.
    soft = {name: (1 - SLACK) * each + SLACK / each.shape[1] for name, each in named.items()}
    likely = likelihoods(soft, np.array([each.token for each in queries]))
    best = max(likely, key=likely.__getitem__)
    return best if likely[best] > likely[right] + CONVINCING else ""


def likelihoods(named: Mapping[Name, Array], outcomes: Array) -> dict[Name, float]:
    """Return the log likelihood of outcomes (N,) under each hypothesis: chances (N, A)."""
    with np.errstate(divide="ignore"):
        return {name: float(np.log(own(each, outcomes)).sum()) for name, each in named.items()}


def _drawn(drafts: Sequence[DraftQuery], params: SamplingParams) -> dict[str, float]:
    """Return the log likelihood of drafts under each way to draw them."""
    logits = np.stack([each.logits for each in drafts])
    clear = ~is_unclear(torch.from_numpy(logits), params)
    tokens = np.array([each.token for each in drafts])[clear]
    numbers: dict[tuple[int, ...], int] = {}
    prefixes = np.array([numbers.setdefault(each.prefix, len(numbers)) for each in drafts])[clear]
    named = proposals(logits[clear], params)
    found = likelihoods(named, tokens)
    base = 0.99 * named[Q] + 0.01 / logits.shape[1]  # so that any token may be learnt
    more = log_mean(learnt(base, tokens, prefixes).sum(0))
    found[UNKNOWN] = likelihoods({UNKNOWN: base}, tokens)[UNKNOWN] + float(more)
    return found


def _explains_drafts(name: str, known: Sequence[DraftQuery], params: SamplingParams) -> bool:
    """Return whether each rank of tokens is drafted as often as a distribution says.

    Ranks take all drafts together, so that an unknown filter shows soon.
    """
    if name == UNKNOWN:
        return False
    q = proposals(np.stack([each.logits for each in known]), params)[name]
    order = np.argsort(-q, axis=1, kind="stable")
    ranks = (order == np.array([each.token for each in known])[:, None]).argmax(1)
    chances = np.take_along_axis(q, order, 1)
    chances = (1 - SLACK / 10) * chances + SLACK / 10 / q.shape[1]
    return _explains(chances, ranks, np.zeros(len(ranks), int))


def _explains(chances: Array, outcomes: Array, strata: Array) -> bool:
    """Return whether each outcome of a stratum is as frequent as its chances (N, A) say."""
    return bool(log_mean(learnt(chances, outcomes, strata).sum(0)) < CONVINCING)


def _mean_of(likely: Mapping[Name, float]) -> float:
    """Return the log mean likelihood, in which all other temperatures count for one half."""
    tempered = [each for name, each in likely.items() if TEMPERED in str(name)]
    others = [each for name, each in likely.items() if TEMPERED not in str(name)]
    halves = [log_mean(np.array(half)) for half in (tempered, others)]
    return float(log_mean(np.array(halves)))


def _repeats(drafts: Sequence[DraftQuery]) -> bool:
    """Return whether drafts behind the same prefix are always the same, in enough cases."""
    choices = {(each.prefix, each.token) for each in drafts}
    prefixes = {prefix for prefix, _ in choices}
    return len(choices) == len(prefixes) and len(drafts) >= ENOUGH * len(prefixes)


def _simplest(likely: Mapping[Name, float], first: Name) -> Name:
    """Return the likeliest hypothesis, or the first one if it is about as good."""
    best = max(likely, key=likely.__getitem__)
    return first if likely[first] >= likely[best] - NEAR else best
