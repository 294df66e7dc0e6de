"""How likely the target is to take a draft of a given rank and q: a logistic curve for each rank.

A draft model may say too little of its likeliest token and too much of the others. Where drafts of
several ranks compete, that costs acceptance, and a curve fitted to recorded acceptance mends it.
"""

import csv
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from specviz.util.validate import is_finite, is_list, require_choice, short

Curves = tuple[tuple[float, float], ...]
# Of the embedded pair, written by `figures/make/calibration.py`.
EMBEDDED = Path(__file__).with_name("calibration.csv")
NAMES = ("embedded",)


def require_calibration(value: object) -> Curves | None:
    """Return the curves (intercept, slope) of each rank that `value` holds or names.

    Raises ValueError if it does neither.
    """
    if value is None:
        return None
    if isinstance(value, str):
        require_choice("calibration", value, NAMES)
        return _load(EMBEDDED)
    if not is_list(value) or not value or not all(_is_curve(curve) for curve in value):
        raise ValueError(
            "calibration must be pairs (intercept, slope) of finite numbers with slope > 0, one "
            f"for each rank, got {short(value)}; pass for instance [(0.7, 1.1), (-0.2, 0.9)], "
            "'embedded' for the embedded pair, or None"
        )
    return tuple((float(intercept), float(slope)) for intercept, slope in value)


def calibrate(log_q: Tensor, curves: Curves) -> Tensor:
    """Return log chances (..., C) of the C likeliest drafts of a node, of which log_q (..., C).

    The chance is sigmoid(intercept + slope * logit(q)). Ranks without a curve of their own have
    that of the last.
    """
    chances = []
    for rank in range(log_q.shape[-1]):
        intercept, slope = curves[min(rank, len(curves) - 1)]
        here = log_q[..., rank]
        logit = here - torch.log(-torch.expm1(here))
        chances.append(logsigmoid(intercept + slope * logit))
    return torch.stack(chances, -1)


def _is_curve(curve: object) -> bool:
    if not isinstance(curve, Sequence) or isinstance(curve, str | bytes) or len(curve) != 2:
        return False
    return all(is_finite(number) for number in curve) and curve[1] > 0


def _load(path: Path) -> Curves:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return tuple((float(row["intercept"]), float(row["slope"])) for row in rows)
