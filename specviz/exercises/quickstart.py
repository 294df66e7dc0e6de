"""Checks of notebooks/00_quickstart.ipynb: counting what rounds accept and gain. Runs no model."""

from collections.abc import Callable, Sequence
from numbers import Integral

import pandas as pd

from specviz.exercises.base import WrongAnswerError, ask, exercise, expect

_ROUNDS = (  # gains of the rows in each round; 0: a row that was done already
    ((4, 1, 6),),
    ((2, 2), (5, 3), (1, 6)),
    ((6, 6, 6, 6), (3, 6, 0, 4), (0, 2, 0, 0)),
)


@exercise
def twins(rounds: int, realigned_slots: int) -> str:
    """Exercise 1: how many rounds 64 tokens take with K = 5 and a perfect draft, and how many slots realignment then moves."""
    for name, answer in (("rounds", rounds), ("realigned_slots", realigned_slots)):
        if not isinstance(answer, Integral) or isinstance(answer, bool):
            raise WrongAnswerError(f"{name} is a whole number, and this is {type(answer).__name__}")
    if rounds != 11:
        raise WrongAnswerError(
            f"{rounds} rounds of K + 1 tokens are {6 * rounds} tokens, and 64 are wanted in as few rounds as possible"
        )
    if realigned_slots != 0:
        raise WrongAnswerError(
            f"{realigned_slots} slots would have to move if rows gained different numbers of tokens; do they?"
        )
    return "ten rounds of 6 tokens and one of 4, and rows that gain the same never fall out of step"


@exercise
def kept_by_rollback(answer: Callable[[pd.DataFrame], int]) -> str:
    """Exercise 2: a function of `metrics.rows(trace)` that returns how many of the gained tokens rollback would have kept."""
    for gains in _ROUNDS:
        entries = [
            (number, row, gained)
            for number, rows in enumerate(gains)
            for row, gained in enumerate(rows)
        ]
        found = ask(answer, pd.DataFrame(entries, columns=["round", "row", "gained"]))
        at_work = [[gained for gained in rows if gained] for rows in gains]
        expect(
            int(found),
            sum(min(rows) * len(rows) for rows in at_work),
            f"rounds in which rows gain {gains}",
        )
    return f"{len(_ROUNDS)} runs, with rows that were done among them"


@exercise
def accepted_drafts(answer: Callable[[Sequence[int], Sequence[int]], int]) -> str:
    """Exercise 3: a function of K drafts and the target's K + 1 choices that counts the accepted drafts."""
    cases = [
        ([1, 2, 3], [1, 2, 3, 4], 3),
        ([1, 2, 3], [1, 9, 3, 4], 1),
        ([5, 5], [6, 5, 5], 0),
        ([7, 7, 8], [7, 7, 7, 8], 2),
        ([], [4], 0),
    ]
    for drafts, said, wanted in cases:
        expect(
            ask(answer, list(drafts), list(said)),
            wanted,
            f"drafts {drafts} where the target says {said}",
        )
    return "everything behind the first disagreement is lost"
