"""Say in sentences what explains that a decoder's texts are wrong.

Contract: what the forwards showed goes in, sentences and findings come out. Not known here: how the
evidence is computed.
"""

import math

from specviz.checks.sampling.evidence import price
from specviz.checks.sampling.proposals import (
    ALWAYS,
    FIRST,
    LIKELIEST,
    OF_P,
    PLAIN,
    RATIO,
    SWAPPED,
    UNFILTERED_RATIO,
    WHERE_MORE,
    Q,
)
from specviz.checks.sampling.report import SamplingFinding
from specviz.checks.sampling.rules import CONVINCING, Fit, Rules
from specviz.record.schema import Array

ACCEPTED = {
    SWAPPED: "with the chance q / p, instead of p / q",
    ALWAYS: "always",
    FIRST: "always if they are the first of a round, which nothing verifies",
    LIKELIEST: "if they are the target's likeliest token",
    WHERE_MORE: "if p >= q, without a random number",
    UNFILTERED_RATIO: "by p / q before top-k and top-p",
}


def explain(
    rules: Rules, is_wrong: bool, alpha: float
) -> tuple[list[str], list[str], list[SamplingFinding]]:
    """Return causes, facts, and what is wrong whatever the texts show.

    Args:
        is_wrong: whether the texts are. Causes are named then on less evidence.
    """
    level = -math.log(alpha)
    causes: list[str] = []
    facts: list[str] = []
    findings: list[SamplingFinding] = []
    fit = rules.fit()
    if fit is not None:
        facts.append(_how(fit))
        sentence = _dishonest(fit)
        score = fit.log_evidence - price("drafts", 1)
        # Wrong rules of acceptance show in the texts. Ways that are not known here may be right.
        is_known = fit.fits_drafts and fit.fits_rule and fit.rule == RATIO
        if sentence and score >= level and is_known:
            findings.append(SamplingFinding("drafts", sentence, score, draws=fit.drafts))
            causes.append(sentence)
        elif sentence and is_wrong and fit.log_evidence >= CONVINCING:
            causes.append(sentence)
    found = rules.foresight(fit)
    if found is not None:
        evidence, sentence = found[0], _foresight(found[1])
        score = evidence - price("selection", 1)
        if score >= level:
            findings.append(SamplingFinding("selection", sentence, score))
        if score >= level or (is_wrong and evidence >= CONVINCING):
            causes.append(sentence)
    if is_wrong and not causes:
        causes += rules.behind(fit)
    if fit is not None and not fit.fits_rule and not causes:
        facts.append("No rule that is known here explains how often drafts are accepted.")
    return causes, facts, findings


def _foresight(shares: Array) -> str:
    verified, chosen, due = shares
    return (
        f"whether a draft is verified depends on that draft (foresight): {verified:.0%} are, with "
        f"a mean q of {chosen:.3f} where it should be {due:.3f}"
    )


def _how(fit: Fit) -> str:
    """Say how drafts seem to be drawn and judged."""
    if fit.rule == RATIO:
        by = f"by p / {fit.judged_by}"
    elif fit.rule == OF_P:
        by = "by the chance p"
    elif fit.rule in ACCEPTED:
        by = f"as accepted {ACCEPTED[fit.rule]}"
    else:
        by = f"by {fit.rule} noise that both models share"
    return (
        f"{fit.drafts} drafts fit {fit.drawn} best; of {fit.judged} that were judged "
        f"{fit.accepted:.0%} were accepted, best explained {by}."
    )


def _dishonest(fit: Fit) -> str:
    """Say what is wrong with how drafts are drawn and judged; "" if nothing is."""
    if fit.rule in ACCEPTED:
        sentence = f"drafts are accepted {ACCEPTED[fit.rule]}"
        return sentence + ("" if fit.drawn == Q else f", and drawn from {fit.drawn}")
    if fit.rule == RATIO and fit.judged_by in PLAIN and fit.drawn != fit.judged_by:
        return f"drafts are drawn from {fit.drawn}, and judged as if from {fit.judged_by}"
    return ""
