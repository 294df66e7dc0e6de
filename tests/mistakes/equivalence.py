"""Plausible wrong answers to the exercises of 07_equivalence."""

from typing import Any

import numpy as np

NEAR, BUG, UNKNOWN = "near tie", "not explained by noise", "unknown"


def draw(weights: np.ndarray, u: float) -> int:
    return int((weights.cumsum() <= u * weights.sum()).sum())


def rest(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    left = np.maximum(p - q, 0)
    return left if left.sum() > 0 else p


def one_number_for_both(draft: int, p: np.ndarray, q: np.ndarray, u: float, v: float) -> int:
    return draft if u * q[draft] < p[draft] else draw(rest(p, q), u)


def drawn_from_p(draft: int, p: np.ndarray, q: np.ndarray, u: float, v: float) -> int:
    return draft if u * q[draft] < p[draft] else draw(p, v)


def upside_down(draft: int, p: np.ndarray, q: np.ndarray, u: float, v: float) -> int:
    return draft if u * p[draft] < q[draft] else draw(rest(p, q), v)


WRONG: dict[str, list[tuple[Any, ...]]] = {
    "acceptance": [
        (0.3, [1.0, 0.0, 0.0]),
        (0.7, [0.5, 0.3, 0.2]),
        (0.7, [0.3, 0.0, 0.0]),
        (0.7, [0.5, 0.0, 0.5]),
    ],
    "causes": [
        ({"A": NEAR, "B": NEAR, "C": BUG, "D": BUG, "E": UNKNOWN},),
        ({"A": NEAR, "B": BUG, "C": NEAR, "D": BUG, "E": UNKNOWN},),
        ({"A": NEAR, "B": BUG, "C": BUG, "D": NEAR, "E": UNKNOWN},),
        ({"A": NEAR, "B": BUG, "C": BUG, "D": BUG, "E": NEAR},),
        ({"A": "tie", "B": BUG, "C": BUG, "D": BUG, "E": UNKNOWN},),
        ({"A": NEAR},),
    ],
    "residual": [
        (lambda p, q: np.maximum(p - q, 0),),
        (lambda p, q: p,),
        (lambda p, q: np.abs(p - q) / max(np.abs(p - q).sum(), 1e-12),),
        (lambda p, q: np.maximum(q - p, 0) / max(np.maximum(q - p, 0).sum(), 1e-12),),
    ],
    "sampler": [(one_number_for_both,), (drawn_from_p,), (upside_down,)],
}
