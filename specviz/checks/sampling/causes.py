"""Say what explains that a decoder's texts are wrong, and whether its drafts are what it judges.

A decoder is honest if some q fits both its drafts and its judgements. A q at another temperature is
as good, so one is estimated. The evidence against honesty is the mean likelihood of all ways to
draw and to judge, over the largest one of the honest ways.
"""

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pandas as pd
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

    drafted = pd.DataFrame(seen.drafted, columns=DraftQuery._fields)
    judged = pd.DataFrame(seen.judged, columns=TargetQuery._fields)
    # Depths at which some drafts are not known cannot be compared with q.
    drafted["is_hidden"] = drafted["token"].isna().groupby(drafted["depth"]).transform("any")
    known = drafted[~drafted["is_hidden"].astype(bool)][:MOST]
    fit = find_fit(known, judged[judged["draft"].notna()][:MOST], params)
    facts = [] if fit is None else [fit.fact]
    if fit is not None and fit.blame:
        # Wrong rules of acceptance show in the texts. Ways that are not known here may be right.
        is_known = fit.is_known and fit.rule == RATIO
        weigh("drafts", fit.blame, fit.log_evidence, is_known, fit.drafts)
    if fit is None or fit.rule != OF_P:
        found = foresight(drafted, params)
        if found is not None:
            weigh("selection", *found, is_known=True, draws=0)
    if is_wrong and not causes:
        causes += _behind(judged[~judged["is_accepted"].astype(bool)], fit, params)
    if fit is not None and not fit.fits_rule and not causes:
        facts.append("No rule that is known here explains how often drafts are accepted.")
    return causes, facts, findings


def find_fit(known: pd.DataFrame, judged: pd.DataFrame, params: SamplingParams) -> Fit | None:
    """Return how drafts are drawn and judged; None if there are none to look at."""
    if known.empty or judged.empty:
        return None
    accepted = judged["is_accepted"].to_numpy(int)
    depths = judged["depth"].to_numpy()
    logits, target_logits = _stacked(judged["draft_logits"]), _stacked(judged["logits"])
    unfiltered = None
    if is_filtered(params):
        plain = SamplingParams(params.temperature)
        unfiltered = distribution(target_logits, plain), distribution(logits, plain)
    p = distribution(target_logits, params)
    at = Judged(judged["draft"].to_numpy(int), depths, p, unfiltered)
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
        blame = f"drafts are accepted {words}"
        blame += "" if source == Q else f", and drawn from {source}"
        words = f"as accepted {words}"
    elif rule == RATIO and judged_by in (Q, UNFILTERED, UNWARPED) and source != judged_by:
        blame = f"drafts are drawn from {source}, and judged as if from {judged_by}"
    return Fit(
        rule=rule,
        judged_by=judged_by,
        fact=f"{len(known)} drafts fit {source} best; of {len(judged)} that were judged "
        f"{accepted.mean():.0%} were accepted, best explained {words}.",
        blame=blame,
        log_evidence=_mean_of(drawn) + _mean_of(likely) - max(honest),
        fits_rule=fits_rule,
        is_known=fits_rule and _explains_drafts(best_drawn, known, params),
        drafts=len(known),
    )


def foresight(drafted: pd.DataFrame, params: SamplingParams) -> tuple[str, float] | None:
    """Return a sentence and the log evidence that verifying a draft depends on it; None if none."""
    is_chosen = drafted["is_verified"].astype(bool)
    is_open = is_chosen.groupby(drafted["depth"]).transform("nunique") > 1
    hidden = drafted["is_hidden"].astype(bool)
    # Of drafts that are all known, one half shows how they are drawn, the other which are verified.
    is_half = drafted["run"] % 2 == 1
    chosen = drafted[is_open & is_chosen & (hidden | is_half)][:MOST]
    if chosen.empty:
        return None
    known = drafted[~hidden][:MOST]
    rest = known[~(is_open & is_half)[known.index]]
    named = proposals(_stacked(chosen["logits"]), params)
    tokens = chosen["token"].to_numpy(int)
    q = named[Q]
    alternatives = []
    for power in (0.5, 1.3, 2.0, 3.0):
        tilted = q**power
        alternatives.append(np.log(own(tilted, tokens) / tilted.sum(1)).sum())
    drawn = dict.fromkeys(named, 0.0) if rest.empty else _drawn(rest, params)
    # Without drafts that are known in any case, foresight looks like another temperature.
    null = max(drawn[name] + here for name, here in likelihoods(named, tokens).items())
    sentence = (
        f"whether a draft is verified depends on that draft (foresight): "
        f"{is_chosen[is_open].mean():.0%} are, with a mean q of {own(q, tokens).mean():.3f} where "
        f"it should be {(q**2).sum(1).mean():.3f}"
    )
    return sentence, float(log_mean(np.array(alternatives))) + drawn[Q] - null


def _behind(queries: pd.DataFrame, fit: Fit | None, params: SamplingParams) -> Iterator[str]:
    """Yield what the tokens behind accepted drafts are drawn from, where that is wrong."""
    rejected = queries[queries["draft"].notna()][:MOST]
    if len(rejected):
        right = WITHOUT if fit is not None and fit.rule == OF_P else ABOVE
        q = proposals(_stacked(rejected["draft_logits"]), params)[fit.judged_by if fit else Q]
        p = distribution(_stacked(rejected["logits"]), params)
        named = after_rejection(rejected["draft"].to_numpy(int), p, q)
        best = _better(named, rejected, right, params)
        # A draw from p that gives the draft again looks as if the draft had been accepted.
        best = "p" if best == WITHOUT else best
        if best:
            yield f"the token behind a rejected draft is drawn from {best}, not from {right}"
    full = queries[queries["draft"].isna()][:MOST]
    if len(full):
        p = distribution(_stacked(full["logits"]), params)
        best = _better(behind_all(p), full, "p", params)
        if best:
            yield f"the token behind all drafts is drawn from {best}, not from p"


def _better(
    named: dict[str, Array], queries: pd.DataFrame, right: str, params: SamplingParams
) -> str:
    """Return the hypothesis that fits far better than the right one; "" if none does.

    The tokens may also be drawn one place before or after, where all queries have such a place.
    """
    sides = {"p one place too early": "before", "p one place too late": "after"}
    for name, side in sides.items():
        if queries[side].notna().all():
            named[name] = distribution(_stacked(queries[side]), params)
    # A little is given to what a hypothesis rules out, so that one token does not decide.
    soft = {name: (1 - SLACK) * each + SLACK / each.shape[1] for name, each in named.items()}
    likely = likelihoods(soft, queries["token"].to_numpy())
    best = max(likely, key=likely.__getitem__)
    return best if likely[best] > likely[right] + CONVINCING else ""


def _stacked(logits: pd.Series) -> Array:
    """Return (N, V)."""
    return np.stack(logits.tolist())


def likelihoods(named: Mapping[Name, Array], outcomes: Array) -> dict[Name, float]:
    """Return the log likelihood of outcomes (N,) under each hypothesis: chances (N, A)."""
    with np.errstate(divide="ignore"):
        return {name: float(np.log(own(each, outcomes)).sum()) for name, each in named.items()}


def _drawn(drafts: pd.DataFrame, params: SamplingParams) -> dict[str, float]:
    """Return the log likelihood of drafts under each way to draw them."""
    logits = _stacked(drafts["logits"])
    clear = ~is_unclear(torch.from_numpy(logits), params)
    tokens = drafts["token"].to_numpy(int)[clear]
    prefixes = pd.factorize(drafts["prefix"])[0][clear]
    named = proposals(logits[clear], params)
    found = likelihoods(named, tokens)
    base = 0.99 * named[Q] + 0.01 / logits.shape[1]  # so that any token may be learnt
    more = log_mean(learnt(base, tokens, prefixes).sum(0))
    found[UNKNOWN] = likelihoods({UNKNOWN: base}, tokens)[UNKNOWN] + float(more)
    return found


def _explains_drafts(name: str, known: pd.DataFrame, params: SamplingParams) -> bool:
    """Return whether each rank of tokens is drafted as often as a distribution says.

    Ranks take all drafts together, so that an unknown filter shows soon.
    """
    if name == UNKNOWN:
        return False
    q = proposals(_stacked(known["logits"]), params)[name]
    order = np.argsort(-q, axis=1, kind="stable")
    ranks = (order == known["token"].to_numpy(int)[:, None]).argmax(1)
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


def _repeats(drafts: pd.DataFrame) -> bool:
    """Return whether drafts behind the same prefix are always the same, in enough cases."""
    choices = drafts.groupby("prefix")["token"].nunique()
    return bool((choices == 1).all()) and len(drafts) >= ENOUGH * len(choices)


def _simplest(likely: Mapping[Name, float], first: Name) -> Name:
    """Return the likeliest hypothesis, or the first one if it is about as good."""
    best = max(likely, key=likely.__getitem__)
    return first if likely[first] >= likely[best] - NEAR else best
