"""Plausible wrong answers to the exercises of 10_selection."""

import numpy as np


def later_rows_first(scores, C):
    order = np.argsort(scores.T.reshape(-1), kind="stable")[::-1][:C]
    return np.bincount(order % len(scores), minlength=len(scores))


def row_by_row(scores, C):
    """Of equals, the earlier row comes first, whatever the position."""
    b, K = scores.shape
    order = np.argsort(-scores.reshape(-1), kind="stable")[:C]
    return np.bincount(order // K, minlength=b)


def at_least(scores, C):
    """Ties at the frontier are all verified."""
    limit = np.sort(scores, axis=None)[::-1][C - 1]
    return (scores >= limit).sum(axis=1) * (C > 0)


def own(q, drafts):
    return np.take_along_axis(q, drafts[:, :, None], axis=2)[:, :, 0]


WRONG = {
    "frontier": {"expected [1, 1, 3], got": [[2, 0, 3], [2, 1, 2], [1, 1, 1]]},
    "choose": {
        "expected [1, 2, 1], got": [lambda scores, C: [C // len(scores)] * len(scores)],
        "expected [1, 1, 2], got": [later_rows_first, row_by_row],
        "expected [1], got [2]": [at_least],
    },
    "too_many": {
        "which is 3 in all": [
            [[0.9, 0.5, 0.4], [0.8, 0.3, 0.2], [0.7, 0.6, 0.1]],
            [[0.9, 0.9, 0.9], [0.5, 0.5, 0.5], [0.2, 0.2, 0.2]],
        ],
        "never rise along a row": [[[0.5, 0.9, 0.5], [0.8, 0.5, 0.2], [0.5, 0.5, 0.1]]],
        "got shape (2, 2)": [[[0.5, 0.5], [0.5, 0.5]]],
    },
    "predictable": {
        "changes when that draft is another token": [
            lambda q, drafts: own(q, drafts).cumprod(axis=1)
        ],
        "times the largest q at its own position": [
            lambda q, drafts: q.max(axis=2),
            lambda q, drafts: np.ones(drafts.shape),
            lambda q, drafts: q.max(axis=2).cumprod(axis=1),
        ],
    },
}
