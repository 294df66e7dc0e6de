"""Checks of 10_selection: the frontier by hand, the selection of C drafts, ties, a fair score."""

import itertools
import random
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

import specviz as sv
from checks.base import Answer, WrongAnswerError, ask, exercise, expect
from specviz.record.schema import Array

# The answer for C = 5; 0.4 stands in two places, and the first draft of row 1 comes first.
_FRONTIER = [1, 1, 3]
# One draft a row is verified on average, and each row drafts two more.
_ROWS = 3
_DRAFTED = 3
_CAPACITY = 3


@exercise
def frontier(counts: Any) -> str:
    """Check how many drafts of three rows are verified, C = 5."""
    expect([int(count) for count in counts], _FRONTIER, "C = 5 and rows 0, 1, 2")
    return (
        "0.9, 0.81, 0.8, 0.405 and one of the two 0.4: the first draft of row 1, "
        "because it stands at an earlier position than the second draft of row 0"
    )


@exercise
def choose(answer: Answer) -> str:
    """Check answer(scores, C): how many drafts of each row are verified; scores (b, K)."""
    rng = random.Random(0)
    ties = 0
    for _ in range(300):
        b, k = rng.randint(1, 3), rng.randint(1, 3)
        # Products of these are exact, and many are equal.
        q = np.array([[rng.choice((1.0, 0.5, 0.5, 0.75)) for _ in range(k)] for _ in range(b)])
        scores = q.cumprod(axis=1)
        C = rng.randint(0, b * k)
        found = ask(answer, scores.copy(), C)
        wanted = _by_brute_force(scores, C)
        expect([int(count) for count in found], wanted, f"scores {scores.tolist()} and C = {C}")
        ordered = sorted(scores.ravel().tolist(), reverse=True)
        ties += 0 < C < b * k and ordered[C - 1] == ordered[C]
    return f"right for 300 tables, as brute force finds; in {ties} of them a tie had to be broken"


def _by_brute_force(scores: Array, C: int) -> list[int]:
    """Try all ways to verify C drafts, each row's first ones. Of equals, take earlier positions."""
    b, k = scores.shape

    def rank(counts: tuple[int, ...]) -> tuple[float, list[tuple[int, int]]]:
        drafts = [(j, row) for row, count in enumerate(counts) for j in range(count)]
        return -sum(scores[row, j] for j, row in drafts), sorted(drafts)

    ways = itertools.product(range(k + 1), repeat=b)
    best = min((counts for counts in ways if sum(counts) == C), key=rank)
    return list(best)


@exercise
def too_many(scores: Any) -> str:
    """Check scores (3, 3) for which a comparison with the C-th largest takes more than C = 3."""
    table = np.asarray(scores, np.float64)
    if table.shape != (_ROWS, _DRAFTED):
        raise WrongAnswerError(f"expected three rows of three scores, got shape {table.shape}")
    if not ((table > 0) & (table <= 1)).all() or (np.diff(table, axis=1) > 0).any():
        raise WrongAnswerError(
            f"scores must be above 0, at most 1 and never rise along a row, got {table.tolist()}"
        )
    limit = np.sort(table, axis=None)[-_CAPACITY]
    counts = (table >= limit).sum(axis=1)
    if counts.sum() <= _CAPACITY:
        raise WrongAnswerError(
            f"for {table.tolist()} it verifies {counts.tolist()}, which is {counts.sum()} in all"
        )
    found = _first_violation(table, counts)
    return f"it verifies {counts.tolist()}, and the checker says: {found}"


@cache
def _recorded() -> sv.Trace:
    """Record a run whose rounds verify three drafts of nine, as long as all rows go on."""
    each = _CAPACITY // _ROWS
    run = sv.generate(
        sv.load_pair(device="cpu"),
        sv.load_prompts(limit=_ROWS),
        num_draft_tokens=each,
        selector=sv.selector("tetris", extra=_DRAFTED - each),
        batch_size=_ROWS,
        max_new_tokens=6,
        record=True,
        progress=False,
    )
    assert run.trace is not None
    return run.trace


def _first_violation(scores: Array, counts: Array) -> str:
    """Write scores and counts into the first round of a record, and check that record."""
    trace = _recorded()
    rows = {name: values.copy() for name, values in trace.rows.items()}
    rows["scores"][:_ROWS] = np.log(scores)
    rows["verified"][:_ROWS] = counts
    first = sv.check_invariants(replace(trace, rows=rows))[0]
    return f"{first.rule}, round {first.round}: {first.expected}; {first.found}"


@exercise
def predictable(answer: Answer) -> str:
    """Check answer(q, drafts): scores (b, K) that no draft decides for itself.

    q: (b, K, V), drafts: (b, K).
    """
    rng = np.random.default_rng(0)
    b, k, size = 3, 4, 5
    for _ in range(50):
        q = rng.dirichlet(np.ones(size), (b, k))
        drafts = rng.integers(0, size, (b, k))
        found = np.asarray(ask(answer, q.copy(), drafts.copy()), np.float64)
        if found.shape != (b, k):
            raise WrongAnswerError(f"expected scores of shape ({b}, {k}), got {found.shape}")
        for j in range(k):
            others = drafts.copy()
            others[:, j] = (drafts[:, j] + 1) % size
            if not np.allclose(np.asarray(answer(q.copy(), others))[:, j], found[:, j]):
                raise WrongAnswerError(
                    f"the score of draft {j + 1} changes when that draft is another token"
                )
        _expect_chances(found, q, drafts)
    return "right for 50 rounds: it reads what is known before a draft is drawn, and no more"


def _expect_chances(found: Array, q: Array, drafts: Array) -> None:
    for row, j in np.ndindex(*found.shape):
        wanted = q[row, j].max()
        for before in range(j):
            wanted *= q[row, before, drafts[row, before]]
        if not np.isclose(found[row, j], wanted):
            raise WrongAnswerError(
                f"for draft {j + 1} of a row expected {wanted:.4g}, got {found[row, j]:.4g}: "
                "q of the drafts before it, times the largest q at its own position"
            )
