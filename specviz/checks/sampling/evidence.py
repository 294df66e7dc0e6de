"""Evidence that tokens were drawn from something else than p, whatever their number.

The evidence of an alternative is the chance that it gives the draws, over the chance that p gives
them. If p is right, its expectation is 1, so it exceeds 1 / alpha with a chance of alpha at most.
That holds for any number of draws, for cells of any size, and also if somebody looks after each
draw and stops (Ville 1939; Grünwald, de Heide and Koolen, arXiv 1906.07801). A mean of such
evidences is one, too, so alternatives may be many. Strata may share draws in any proportion.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import norm

from specviz.record.schema import Array

# How many draws p itself counts for, beside the draws that were seen, where the alternative is
# learnt from the draws before.
WEIGHTS = np.array([4.0, 16.0, 64.0, 256.0, 1024.0])
POWER = 0.99
# How the tests share alpha (Bonferroni, weighted).
SHARES = {
    "place": 0.2,  # each new token, all rows and prefixes together
    "row": 0.15,  # each new token of each row
    "prefix": 0.1,  # each prefix
    "lean": 0.2,  # all draws lean to one side
    "rows": 0.1,  # rows that depend on each other
    "runs": 0.05,  # runs that depend on each other
    "drafts": 0.1,  # how drafts are drawn and judged
    "selection": 0.1,  # which drafts are verified
}


def price(family: str, count: int) -> float:
    """Return what the log evidence of one of `count` tests of a family loses."""
    return math.log(count / SHARES[family])


def own(p: Array, tokens: Array) -> Array:
    """Return p (N,) of the tokens that were drawn, for p (N, V)."""
    found: Array = p[np.arange(len(tokens)), tokens]
    return found


def log_ratios(alternative: Array, p: Array) -> Array:
    """Return log(alternative / p); infinite where p rules out what was drawn."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.log(alternative) - np.log(p)
    return np.where(p > 0, found, np.inf)


def learnt(p: Array, tokens: Array, strata: Array) -> Array:
    """Return the log ratio (N, W) of each draw to an alternative that was learnt before it.

    The alternative is p mixed with the shares of the stratum's earlier draws. With each weight of
    `WEIGHTS` it is another one.

    Args:
        p: (N, V).
        tokens: (N,), in the order in which they were drawn.
        strata: (N,), draws of which the alternative is the same.
    """
    size = p.shape[1]
    before = _count_before(strata)  # (N,)
    same = _count_before(strata * size + tokens)
    chance = own(p, tokens)[:, None]  # (N, 1)
    predicted = (WEIGHTS * chance + same[:, None]) / (WEIGHTS + before[:, None])
    return log_ratios(predicted, np.broadcast_to(chance, predicted.shape))


def _count_before(groups: Array) -> Array:
    """Return for each entry (N,) how many before it are of its group."""
    found: Array = pd.Series(groups).groupby(groups).cumcount().to_numpy()
    return found


def by_group(ratios: Array, groups: Array, count: int) -> Array:
    """Return the log evidence (count,) of each group: a mean over the alternatives.

    Args:
        ratios: (N, A), the log ratio of each draw to each alternative.
        groups: (N,), the group of each draw.
        count: of groups.
    """
    sums = np.zeros((count, ratios.shape[1]))
    np.add.at(sums, groups, ratios)
    return log_mean(sums)


def log_mean(values: Array) -> Array:
    """Return the logarithm of the mean over the last axis of what has these logarithms."""
    found: Array = logsumexp(values, axis=-1) - math.log(values.shape[-1])
    return found


def smallest_distance(visits: Sequence[float] | Array, size: int, level: float) -> float:
    """Return the smallest total variation distance that is found with a chance of `POWER`.

    The distance is that of each stratum. Of all alternatives at a distance d from p, those that
    are hardest to find change all chances by the same factors, 1 + 2 d and 1 - 2 d. The sum of
    the evidence is taken for normal.

    Args:
        visits: how many draws each stratum is expected to have.
        size: V.
        level: the log evidence that is needed.

    Returns:
        A share; 1 if nothing less is found.
    """
    visits = np.asarray(visits, float)
    visits = visits[visits > 0]
    best = 1.0
    for weight in WEIGHTS:
        if _reach(1.0, visits, size, level, weight) > 0:
            root = brentq(_reach, 0.0, 1.0, args=(visits, size, level, weight), xtol=1e-6)
            best = min(best, float(root))
    return best


def _reach(distance: float, visits: Array, size: int, level: float, weight: float) -> float:
    """Return how far the evidence of all but 1 - POWER of the runs lies above the level."""
    freedom = size - 1
    share = visits / (visits + weight)
    shift = 4 * visits * distance**2
    mean = (share * (freedom + shift)).sum() / 2
    spread = math.sqrt((share**2 * (2 * freedom + 4 * shift)).sum()) / 2
    price = freedom / 2 * np.log1p(visits / weight).sum() + math.log(len(WEIGHTS))
    return float(mean - price - norm.ppf(POWER) * spread - level)
