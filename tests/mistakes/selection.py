"""Plausible wrong answers to the exercises of 10_selection."""

import numpy as np


def uniform(scores, C):
    b = len(scores)
    return [C // b] * b


def later_rows_first(scores, C):
    b = len(scores)
    order = np.argsort(scores.T.reshape(-1), kind="stable")[::-1][:C]
    return np.bincount(order % b, minlength=b)


def row_by_row(scores, C):
    """Of equals, the earlier row comes first, whatever the position."""
    b, K = scores.shape
    order = np.argsort(-scores.reshape(-1), kind="stable")[:C]
    return np.bincount(order // K, minlength=b)


def at_least(scores, C):
    """Ties at the frontier are all verified."""
    if C == 0:
        return [0] * len(scores)
    return (scores >= np.sort(scores, axis=None)[-C]).sum(axis=1)


def own(q, drafts):
    return np.take_along_axis(q, drafts[:, :, None], axis=2)[:, :, 0]


def foreseeing(q, drafts):
    return own(q, drafts).cumprod(axis=1)


def only_the_largest(q, drafts):
    """Forgets that the drafts before have to be accepted."""
    return q.max(axis=2)


def constant(q, drafts):
    return np.ones(drafts.shape)


def all_largest(q, drafts):
    """Also of the drafts before, what they might have been."""
    return q.max(axis=2).cumprod(axis=1)


WRONG = {
    "frontier": [([2, 0, 3],), ([2, 1, 2],), ([1, 1, 1],)],
    "choose": [(uniform,), (later_rows_first,), (row_by_row,), (at_least,)],
    "too_many": [
        ([[0.9, 0.5, 0.4], [0.8, 0.3, 0.2], [0.7, 0.6, 0.1]],),
        ([[0.5, 0.9, 0.5], [0.8, 0.5, 0.2], [0.5, 0.5, 0.1]],),
        ([[0.5, 0.5], [0.5, 0.5]],),
        ([[0.9, 0.9, 0.9], [0.5, 0.5, 0.5], [0.2, 0.2, 0.2]],),
    ],
    "predictable": [(foreseeing,), (only_the_largest,), (constant,), (all_largest,)],
}
