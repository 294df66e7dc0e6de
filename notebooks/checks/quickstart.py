"""Checks of 00_quickstart: counting what rounds accept and gain. Runs no model."""

from numbers import Integral

import pandas as pd

from checks.base import Answer, WrongAnswerError, ask, exercise, expect

# Tokens that each row gains in each round; 0 if the row had finished before.
_ROUNDS = (
    ((4, 1, 6),),
    ((2, 2), (5, 3), (1, 6)),
    ((6, 6, 6, 6), (3, 6, 0, 4), (0, 2, 0, 0)),
)


@exercise
def twins(rounds: int, realigned_slots: int) -> str:
    """Check exercise 1: rounds for 64 tokens with K = 5, a perfect draft; slots realigned."""
    for name, answer in (("rounds", rounds), ("realigned_slots", realigned_slots)):
        if not isinstance(answer, Integral) or isinstance(answer, bool):
            raise WrongAnswerError(
                f"{name} must be a whole number, but it is {type(answer).__name__}"
            )
    if rounds != 11:
        raise WrongAnswerError(
            f"{rounds} rounds of K + 1 tokens are {6 * rounds} tokens; find the fewest rounds that "
            "make 64"
        )
    if realigned_slots != 0:
        raise WrongAnswerError(
            f"{realigned_slots} slots would move only if rows gained different numbers of tokens; "
            "do they?"
        )
    return "ten rounds of 6 tokens and one of 4; rows that gain the same never fall out of step"


@exercise
def kept_by_rollback(answer: Answer) -> str:
    """Check exercise 2: a function of `metrics.rows(trace)`: tokens that rollback keeps."""
    for gains in _ROUNDS:
        entries = []
        kept = 0
        for number, rows in enumerate(gains):
            entries += [(number, row, gained) for row, gained in enumerate(rows)]
            active = [gained for gained in rows if gained]
            kept += min(active) * len(active)
        found = ask(answer, pd.DataFrame(entries, columns=["round", "row", "gained"]))
        expect(int(found), kept, f"rounds in which rows gain {gains}")
    return f"right for {len(_ROUNDS)} runs, some with rows that had finished"


@exercise
def accepted_drafts(answer: Answer) -> str:
    """Check exercise 3: a function of K drafts and K + 1 choices: the accepted drafts."""
    cases = [
        ([1, 2, 3], [1, 2, 3, 4], 3),
        ([1, 2, 3], [1, 9, 3, 4], 1),
        ([5, 5], [6, 5, 5], 0),
        ([7, 7, 8], [7, 7, 7, 8], 2),
        ([], [4], 0),
    ]
    for drafts, choices, wanted in cases:
        expect(
            ask(answer, list(drafts), list(choices)),
            wanted,
            f"drafts {drafts} and target choices {choices}",
        )
    return "all drafts behind the first disagreement are lost"
