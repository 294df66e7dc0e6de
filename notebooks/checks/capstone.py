"""Checks of 19_capstone: a decoder of the reader's own, in three milestones.

Contract: each check runs the reader's function on the embedded pair. What is wrong is named by
`sv.watch`, on the smallest case that was found.
"""

from pathlib import Path
from typing import Any

import specviz as sv
from checks import attempts
from checks.attempts import Attempt, Decoder, Speed, judge
from checks.base import WrongAnswerError, exercise, expect
from checks.decoders import slots as _slots
from checks.decoders.mending import mended
from specviz.util.validate import require_path

_FOUND: list[Attempt] = []


@exercise
def budget(slots: int, reads: list[int]) -> str:
    """Check exercise 1: slots of a row, and the indices that the draft reads first."""
    longest = 28 + 24 - 1  # the last round begins when one token is missing
    expect(slots, longest + 4, "the slots of a row (28 tokens, 24 new ones, K = 4)")
    expect(list(reads), [10, 11], "the indices that the draft reads first, for n = 12")
    return (
        f"a round with n = {longest} writes slots {longest - 1} to {longest + 3}, "
        "and the draft reads two tokens"
    )


@exercise
def alone(decode: Decoder) -> str:
    """Check milestone 1: right with one row."""
    report = judge(decode, attempts.one_row(), _FOUND)
    _speculates(report)
    return _praise(report, "three texts, one after the other")


@exercise
def batched(decode: Decoder) -> str:
    """Check milestone 2: right with eight rows, with refill and EOS."""
    asked = attempts.batch()
    report = judge(decode, asked, _FOUND)
    _speculates(report)
    rows = attempts.rows_of(report, asked.batch_size)
    if rows.most != asked.batch_size:
        raise WrongAnswerError(
            f"all texts are right, and the target decodes {rows.most} rows in one forward; "
            f"batch_size is {asked.batch_size}"
        )
    if rows.empty > 2 * rows.late:
        raise WrongAnswerError(
            f"all texts are right, and in round {rows.first_empty} a row was free while a prompt "
            f"waited ({rows.empty} free rows, summed over rounds): let a prompt take the place of "
            "a row that has ended"
        )
    return _praise(report, f"{len(asked.prompts)} texts, {rows.most} rows at a time, refilled")


@exercise
def fast(decode: Decoder, board: str | Path) -> str:
    """Check milestone 3: faster than batched autoregressive decoding, with eight rows.

    `board` is the file of the leaderboard, which gets a line.
    """
    path = require_path("board", board)
    asked = attempts.timed()
    speed = attempts.measure(decode, asked)
    is_faster = speed.ratio > 1
    device = str(attempts.pair().device)
    attempts.add_attempt(path, 3 if is_faster else 2, asked.batch_size, speed, device)
    if not is_faster:
        raise WrongAnswerError(f"all texts are right, and it is not faster: {_said(speed)}")
    return _said(speed)


@exercise
def colleague(old: str, new: str) -> str:
    """Check exercise 5: a line of `slots`, and the line in its place."""
    asked = attempts.three_rows()
    judge(mended(_slots, old, new).decode, asked, _FOUND)
    return f"{len(asked.prompts)} texts in three rows, and each is the target's own"


def counterexample() -> Attempt | str:
    """Return the last counterexample that a check has found, or a sentence if there is none."""
    return _FOUND[-1] if _FOUND else "no check has found a counterexample yet"


def leaderboard(board: str | Path) -> Any:
    """Return the table of attempts. If there is none yet, print that, and return None."""
    table = attempts.leaderboard(require_path("board", board))
    if len(table):
        return table
    print("no attempts yet: check.fast adds the first one")
    return None


def _speculates(report: sv.WatchReport) -> None:
    gain = report.tokens_per_round
    if gain < attempts.LEAST_GAIN:
        raise WrongAnswerError(
            f"all texts are right, and a row gains {gain:.2f} tokens a round: without drafts it "
            "would gain 1. Are drafts verified, and kept where they are right?"
        )


def _praise(report: sv.WatchReport, what: str) -> str:
    lines = [f"{what}; {report.tokens_per_round:.2f} tokens a round and row"]
    lines += [f"to mend later, {cost.name}: {cost.sentence}" for cost in report.costs]
    return "\n".join(lines)


def _said(speed: Speed) -> str:
    return (
        f"{speed.tokens_per_s:.0f} tokens/s, {speed.ratio:.2f} times batched autoregressive "
        f"decoding ({min(speed.ratios):.2f} to {max(speed.ratios):.2f} in {len(speed.ratios)} "
        "turns)"
    )
