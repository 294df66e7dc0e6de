"""How often the target takes a draft, by its rank and its q: a logistic curve for each rank.

A draft model may say too little of its likeliest token and too much of the others. Where drafts of
several ranks compete, that costs acceptance; `CalibratedTree` grows trees by the curves.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from measure import DATA, Measured, command, measured_on
from replay import Drafts, draft_everywhere
from scipy.optimize import minimize

import specviz as sv
from specviz.engine.drafters.trees import TreeDrafter
from specviz.record.schema import Array

RANKS = 4
Curves = tuple[tuple[float, float], ...]  # (intercept, slope) of each rank
MOST_LOGIT = 30.0  # beyond, q is 0 or 1 in float32


@dataclass(frozen=True)
class CalibratedTree(TreeDrafter):
    """A tree that takes the drafts that are likeliest by the curves, not by q itself."""

    curves: Curves = ()

    def log_chances(self, log_q: torch.Tensor) -> torch.Tensor:
        return calibrate(log_q, self.curves)


def calibrated_tree(depth: int, width: int, children: int) -> CalibratedTree:
    """Return a tree by the curves that this script fitted to texts of the embedded pair."""
    table = pd.read_csv(DATA / "calibration.csv")
    curves = tuple(zip(table["intercept"], table["slope"], strict=True))
    return CalibratedTree(depth, width, children, curves=curves)


def calibrate(log_q: torch.Tensor, curves: Curves) -> torch.Tensor:
    """Return log chances (..., C) of the C likeliest drafts of a node, of which log_q (..., C).

    The chance is sigmoid(intercept + slope * logit(q)). Ranks without a curve of their own have
    that of the last.
    """
    chances = []
    for rank in range(log_q.shape[-1]):
        intercept, slope = curves[min(rank, len(curves) - 1)]
        here = log_q[..., rank]
        logit = here - torch.log(-torch.expm1(here))
        chances.append(torch.nn.functional.logsigmoid(intercept + slope * logit))
    return torch.stack(chances, -1)


def calibration(limit: int | None = None) -> Measured:
    """Fit a logistic curve to the acceptance of each rank, at every position of greedy texts.

    loss_raw and loss_held_out are the log loss in nats of q itself, and of curves that were fitted
    to the other half of the prompts.
    """
    pair = sv.load_pair()
    prompts = sv.load_prompts(limit=limit)
    drafter = TreeDrafter(depth=1, width=1, children=RANKS)
    table, _ = draft_everywhere(pair, prompts, drafter, RANKS, batch_size=32, max_new_tokens=128)
    held_out = []  # log losses of q, and of curves that were fitted to the other half
    for half in halves(table.count):
        curves = fit_curves(table.texts(np.setdiff1d(np.arange(table.count), half)))
        for rank, (intercept, slope) in enumerate(curves):
            logits, right = observed(table.texts(half), rank)
            fitted = intercept + slope * logits
            both = log_loss(logits, right), log_loss(fitted, right)
            held_out.append(pd.DataFrame({"rank": rank, "raw": both[0], "held_out": both[1]}))
    losses = pd.concat(held_out).groupby("rank").mean()
    accepted = np.diff(table.reached, axis=1).mean(0)
    entries = []
    for rank, (intercept, slope) in enumerate(fit_curves(table)):
        entry = {
            "rank": rank + 1,
            "intercept": intercept,
            "slope": slope,
            "mean_q": np.exp(table.scores[:, rank]).mean(),
            "accepted": accepted[rank],
            "loss_raw": losses["raw"][rank],
            "loss_held_out": losses["held_out"][rank],
        }
        entries.append(entry)
    return pd.DataFrame(entries), measured_on(pair, prompts=len(prompts), max_new_tokens=128)


def halves(count: int) -> tuple[Array, Array]:
    """Return the numbers of every other text, and of the others."""
    return np.arange(0, count, 2), np.arange(1, count, 2)


def fit_curves(table: Drafts) -> Curves:
    """Return (intercept, slope) of each rank, of a table of trees of one level."""
    curves = []
    for rank in range(table.nodes):
        logits, right = observed(table, rank)

        def loss(parameters: Array, x: Array = logits, y: Array = right) -> float:
            # The slope as an exponent, so that it stays above 0.
            return float(log_loss(parameters[0] + np.exp(parameters[1]) * x, y).mean())

        found = minimize(loss, np.zeros(2), method="BFGS").x
        curves.append((float(found[0]), float(np.exp(found[1]))))
    return tuple(curves)


def observed(table: Drafts, rank: int) -> tuple[Array, Array]:
    """Return the logit of q of the draft of that rank, and whether it is right, each (N,)."""
    log_q = np.minimum(table.scores[:, rank].astype(np.float64), 0)
    with np.errstate(divide="ignore"):
        logits = log_q - np.log(-np.expm1(log_q))
    right = np.diff(table.reached, axis=1)[:, rank] > 0
    return logits.clip(-MOST_LOGIT, MOST_LOGIT), right


def log_loss(logits: Array, right: Array) -> Array:
    """Return the log loss in nats of each prediction."""
    return np.logaddexp(0, np.where(right, -logits, logits))


if __name__ == "__main__":
    command(calibration, {"calibration": {}}, {"limit": 6})
