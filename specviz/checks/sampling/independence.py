"""Whether rows, and runs, draw independently of each other.

Rows that share a random number have each the right distribution, so no test of a single row finds
it. Each alternative gives the chance of a token, given its own prefix and the tokens of the rows
before it in the same run: as evidence it counts as any other.
"""

import math

import numpy as np
import pandas as pd

from specviz.checks.sampling.evidence import log_mean, log_ratios, price
from specviz.checks.sampling.report import SamplingFinding
from specviz.checks.sampling.texts import Texts
from specviz.record.schema import Array

COPIED = np.array((0.1, 0.3, 0.7))  # how often a token is that of the row before
TILTS = np.array((-0.5, 0.3, 1.0))
NOTHING = -1


def judge_independence(
    draws: pd.DataFrame, texts: Texts, runs: int, rows: int, alpha: float
) -> list[SamplingFinding]:
    """Return what speaks against independent rows and runs, the strongest evidence first."""
    context, token = _by_run(draws, texts, runs, rows)
    # If each row's texts are dealt to the runs at random, what is left of the evidence comes from
    # the shares of the tokens, not from rows or runs that depend on each other.
    order = np.argsort(np.random.default_rng(0).random((runs, rows)), axis=0)[:, :, None]
    dealt = np.take_along_axis(context, order, 0), np.take_along_axis(token, order, 0)
    found = []
    for test, sentence, ratios in ALTERNATIVES:
        if (rows if test == "rows" else runs) < 2:
            continue
        cost = price(test, sum(each == test for each, _, _ in ALTERNATIVES))
        score = float(log_mean(ratios(texts, context, token).sum(0))) - cost
        if score < -math.log(alpha):
            continue
        if test == "runs" and (token == token[:1]).all():
            sentence = f"all {runs} runs draw the same tokens: the seed changes nothing"
        elif log_mean(ratios(texts, *dealt).sum(0)) - cost > score / 2:
            test, sentence = "lean", "tokens do not have the shares that the target gives them"
        found.append(SamplingFinding(test, sentence, score, draws=len(draws)))
    return sorted(found, key=lambda each: -each.log_evidence)


def _by_run(draws: pd.DataFrame, texts: Texts, runs: int, rows: int) -> tuple[Array, Array]:
    """Return prefixes and tokens (R, B, T).

    A token is NOTHING where there is none, or where p rules it out.
    """
    token = np.full((runs, rows, texts.length), NOTHING)
    context = np.zeros(token.shape, dtype=np.int64)
    run, row, place, prefix, drawn = draws.to_numpy().T
    possible = texts.p[prefix, drawn] > 0
    at = run[possible], row[possible], place[possible]
    token[at], context[at] = drawn[possible], prefix[possible]
    return context, token


def _token_of_row_before(texts: Texts, context: Array, token: Array) -> Array:
    return _copies(texts, context[:, 1:], token[:, 1:], token[:, :-1])


def _token_of_run_before(texts: Texts, context: Array, token: Array) -> Array:
    return _copies(texts, context[1:], token[1:], token[:-1])


def _quantile_of_row_before(texts: Texts, context: Array, token: Array) -> Array:
    """Return log ratios for draws by the number that the row before was drawn by."""
    cumulative = texts.p.cumsum(1)
    before, at = context[:, :-1], token[:, :-1]
    quantile = cumulative[before, at] - texts.p[before, at] / 2
    copied = (cumulative[context[:, 1:]] <= quantile[..., None]).sum(-1)
    copied = np.where(at == NOTHING, NOTHING, np.minimum(copied, texts.size - 1))
    return _copies(texts, context[:, 1:], token[:, 1:], copied)


def _copies(texts: Texts, context: Array, token: Array, copied: Array) -> Array:
    """Return the log ratios (N, A) of tokens, each sometimes copied."""
    valid = (token != NOTHING) & (copied != NOTHING)
    context, token, copied = context[valid], token[valid], copied[valid]
    chance = texts.p[context, token][:, None]
    # A copy that p rules out is not drawn, so nothing is taken from p there.
    mixed = COPIED * (texts.p[context, copied] > 0)[:, None]
    return log_ratios((1 - mixed) * chance + mixed * (token == copied)[:, None], chance)


def _preferred_together(texts: Texts, context: Array, token: Array) -> Array:
    """Return log ratios for rows that get what the draft prefers, or does not, together.

    Without a draft it is the likeliest token that rows get together.
    """
    valid = token != NOTHING
    preferred = np.eye(texts.size, dtype=bool)[texts.p.argmax(1)]
    if texts.q is not None:
        preferred = texts.q > texts.p
    share = (texts.p * preferred).sum(1)[context] * valid  # (R, B, T)
    hit = preferred[context, token] & valid
    excess = np.cumsum(np.where(valid, hit - share, 0), axis=1)
    spread = np.cumsum(np.where(valid, share * (1 - share), 0), axis=1)
    # What the rows before have; the first row has none before it.
    pull = (excess / np.sqrt(np.maximum(spread, 0.05)))[:, :-1]
    mine = valid[:, 1:]
    pull = pull[mine][:, None] * TILTS
    of_share = share[:, 1:][mine][:, None]
    found: Array = hit[:, 1:][mine][:, None] * pull - np.log1p(of_share * np.expm1(pull))
    return found


# The test, what it finds, and the log ratios (N, A) of N tokens, given prefixes and tokens.
ALTERNATIVES = (
    (
        "rows",
        "rows draw the token of the row before too often, as with noise that rows share",
        _token_of_row_before,
    ),
    (
        "rows",
        "rows draw the same quantile as the row before too often, as with a uniform number that "
        "rows share",
        _quantile_of_row_before,
    ),
    (
        "rows",
        "rows draw what the draft model prefers together, as with a uniform number that all rows "
        "are accepted by",
        _preferred_together,
    ),
    (
        "runs",
        "runs draw the token of the run before too often, so seeds do not make them independent",
        _token_of_run_before,
    ),
)
