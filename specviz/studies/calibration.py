"""How often the target takes a draft, by its rank and its q: `specviz study calibration`.

The curves are those that the drafter `tree` takes as its `calibration`.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from specviz.engine.drafters.calibration import Curves
from specviz.engine.drafters.tree import MOST, TreeDrafter
from specviz.engine.models.pair import Pair
from specviz.engine.requests import Prompt
from specviz.engine.run import check_pair
from specviz.record.schema import Array
from specviz.studies.tree_tables import TreeTable, grow_everywhere, halves
from specviz.util.files import conditions
from specviz.util.validate import require_int, require_list

RANKS = 4
MOST_LOGIT = 30.0  # beyond, q is 0 or 1 in float32


def measure_calibration(
    pair: Pair,
    prompts: Sequence[Prompt],
    *,
    ranks: int = RANKS,
    batch_size: int = 32,
    max_new_tokens: int = 128,
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Fit a logistic curve to the acceptance of each rank, at every position of greedy texts.

    Returns:
        (table, conditions). One entry a rank: intercept and slope, fitted to all prompts; mean_q
        and accepted, the shares that the draft model says and that are right; loss_raw and
        loss_held_out, the log loss in nats of q itself and of curves that were fitted to the other
        half of the prompts.

    Raises:
        ValueError: as `generate`, or there are fewer than two prompts; nothing has run.
    """
    check_prompts(prompts)
    check_pair(pair)
    check_ranks(ranks)
    require_int("max_new_tokens", max_new_tokens)
    drafter = TreeDrafter(depth=1, width=1, children=ranks)
    table, result = grow_everywhere(
        pair, prompts, drafter, batch_size=batch_size, max_new_tokens=max_new_tokens
    )
    curves = fit_curves(table)
    held_out = np.concatenate([_losses(table, half) for half in halves(len(prompts))])
    right = table.reached.astype(int)
    entries = []
    for rank, (intercept, slope) in enumerate(curves):
        entry = {
            "rank": rank + 1,
            "intercept": intercept,
            "slope": slope,
            "mean_q": np.exp(table.scores[:, rank]).mean(),
            "accepted": (right[:, rank + 1] - right[:, rank]).mean(),
            "loss_raw": held_out[:, 0, rank].mean(),
            "loss_held_out": held_out[:, 1, rank].mean(),
        }
        entries.append(entry)
    settings = {"prompts": len(prompts), "max_new_tokens": max_new_tokens}
    return pd.DataFrame(entries), conditions(result.meta, **settings)


def check_ranks(ranks: object) -> None:
    """Raise ValueError unless a node can have so many drafts."""
    require_int("ranks", ranks, maximum=MOST)


def check_prompts(prompts: object) -> None:
    """Raise ValueError unless there are two prompts or more, one for each half."""
    require_list("prompts", prompts, "pass two or more")
    assert isinstance(prompts, Sequence)
    if len(prompts) < 2:
        raise ValueError(
            f"prompts must be two or more, got {len(prompts)}; pass more, so that one half can "
            "be fitted and the other measured"
        )


def fit_curves(table: TreeTable) -> Curves:
    """Return (intercept, slope) of each rank, of a table of trees of one level."""
    curves = []
    for rank in range(table.nodes):
        logits, right = _observed(table, rank)

        def loss(parameters: Array, x: Array = logits, y: Array = right) -> float:
            # The slope as an exponent, so that it stays above 0.
            return float(_log_loss(parameters[0] + np.exp(parameters[1]) * x, y).mean())

        found = minimize(loss, np.zeros(2), method="BFGS").x
        curves.append((float(found[0]), float(np.exp(found[1]))))
    return tuple(curves)


def _losses(table: TreeTable, half: Array) -> Array:
    """Return log losses (N, 2, ranks) at the positions of `half`: of q, and of curves of the rest.

    A curve of a rank sees only texts outside of `half`.
    """
    others = np.setdiff1d(np.arange(len(table.offsets) - 1), half)
    curves = fit_curves(table.texts(others))
    measured = table.texts(half)
    losses = []
    for rank, (intercept, slope) in enumerate(curves):
        logits, right = _observed(measured, rank)
        both = [_log_loss(logits, right), _log_loss(intercept + slope * logits, right)]
        losses.append(np.stack(both, 1))
    return np.stack(losses, 2)


def _observed(table: TreeTable, rank: int) -> tuple[Array, Array]:
    """Return the logit of q of the draft of that rank, and whether it is right, each (N,)."""
    log_q = np.minimum(table.scores[:, rank].astype(np.float64), 0)
    with np.errstate(divide="ignore"):
        logits = log_q - np.log(-np.expm1(log_q))
    right = np.diff(table.reached, axis=1)[:, rank] > 0
    return logits.clip(-MOST_LOGIT, MOST_LOGIT), right


def _log_loss(logits: Array, right: Array) -> Array:
    losses: Array = np.logaddexp(0, np.where(right, -logits, logits))
    return losses
