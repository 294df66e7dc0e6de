"""Plausible wrong answers to the exercises of 07_equivalence."""

import numpy as np

NEAR, BUG, UNKNOWN = "near tie", "not explained by noise", "unknown"
RIGHT = {"A": NEAR, "B": BUG, "C": BUG, "D": BUG, "E": UNKNOWN}


def draw(weights, u):
    return int((weights.cumsum() <= u * weights.sum()).sum())


def rest(p, q):
    left = np.maximum(p - q, 0)
    return left if left.sum() > 0 else p


WRONG = {
    "acceptance": {
        "min(p, q): sum these": [(0.3, [1.0, 0.0, 0.0])],
        "after a rejection expected [1.0, 0.0, 0.0], got": [
            (0.7, [0.5, 0.3, 0.2]),
            (0.7, [0.3, 0.0, 0.0]),
            (0.7, [0.5, 0.0, 0.5]),
        ],
    },
    "causes": {
        "'near tie'; compare each of its numbers with twice the noise": [
            RIGHT | {letter: NEAR} for letter in "BCDE"
        ],
        "the cause of A is 'tie'; choose one of": [RIGHT | {"A": "tie"}],
        "the cause of B is None; choose one of": [{"A": NEAR}],
    },
    "residual": {
        "expected [1.0, 0.0, 0.0], got": [
            lambda p, q: np.maximum(p - q, 0),
            lambda p, q: p,
            lambda p, q: np.abs(p - q) / max(np.abs(p - q).sum(), 1e-12),
            lambda p, q: np.maximum(q - p, 0) / max(np.maximum(q - p, 0).sum(), 1e-12),
        ]
    },
    "sampler": {
        "it emits tokens with the probabilities": [
            # One number for both draws; drawn from p; judged upside down.
            lambda draft, p, q, u, v: draft if u * q[draft] < p[draft] else draw(rest(p, q), u),
            lambda draft, p, q, u, v: draft if u * q[draft] < p[draft] else draw(p, v),
            lambda draft, p, q, u, v: draft if u * p[draft] < q[draft] else draw(rest(p, q), v),
        ]
    },
}
