"""Checks of 13_overlap: when lanes end, what splitting a batch gains, and how long lanes wait."""

from functools import partial
from typing import Any

import numpy as np

from checks.base import Answer, WrongAnswerError, ask, exercise, expect_close
from specviz.simulation import plan_lanes

# The lanes of the notebook: a verification, drafting, and rounds of each lane.
_VERIFY_MS = 30
_DRAFT_MS = 20
_ROUNDS = 3


@exercise
def finish(answer: Any) -> str:
    """Check when the last verification of both lanes ends, in ms."""
    wanted = float(plan_lanes(_DRAFT_MS, _VERIFY_MS, _ROUNDS)["stop_ms"].max())
    found = float(answer)
    in_turns = 2 * _ROUNDS * (_VERIFY_MS + _DRAFT_MS)
    if found == in_turns:
        raise WrongAnswerError(f"{in_turns} ms is what six rounds take one after the other")
    if found != wanted:
        raise WrongAnswerError(
            f"got {found:g} ms; the side that verifies never waits once it has begun, so count "
            "what comes before its first verification, and how many follow"
        )
    return f"{wanted:g} ms, and {in_turns} ms one after the other"


@exercise
def gain(answer: Answer) -> str:
    """Check answer(V, t, m): rows a second in two lanes of m over one lane of 2m."""
    rng = np.random.default_rng(0)
    losing = 0
    for _ in range(200):
        v0, v1, t0, t1 = rng.uniform((1, 0, 1, 0), (40, 3, 40, 3)).tolist()
        m = int(rng.integers(1, 33))

        verify = partial(_line, v0, v1)
        draft = partial(_line, t0, t1)
        wanted = (verify(2 * m) + draft(2 * m)) / (2 * max(verify(m), draft(m)))
        case = f"V(b) = {v0:.1f} + {v1:.1f} b, t(b) = {t0:.1f} + {t1:.1f} b and m = {m}"
        expect_close(ask(answer, verify, draft, m), wanted, case)
        losing += wanted < 1
    return f"right for 200 devices; {losing} of them lose by splitting"


def _line(fixed: float, each: float, rows: float) -> float:
    return fixed + each * rows


@exercise
def waiting(answer: Answer) -> str:
    """Check answer(V, t): the share of their time in which lanes wait, in the long run."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        V, t = rng.uniform(1, 50, 2).tolist()
        wanted = 1 - (V + t) / (2 * max(V, t))
        expect_close(ask(answer, V, t), wanted, f"V = {V:.1f} and t = {t:.1f}")
    return "right for 200 devices, from equal sides to very different ones"
