"""When lanes draft and verify if every round takes the same time: a timeline without a run."""

from __future__ import annotations

import pandas as pd

from specviz.util.validate import is_finite, require_int, short

MAX_ROUNDS = 10_000


def plan_lanes(draft_ms: float, verify_ms: float, rounds: int, *, lanes: int = 2) -> pd.DataFrame:
    """Return lane, round, phase, start_ms and stop_ms of the phases "draft" and "verify".

    One lane at most drafts at a time, and one at most verifies.

    Args:
        draft_ms, verify_ms: of a lane's round.
        rounds: of each lane.
        lanes: 1 for rounds one after the other, 2 for two lanes that overlap.

    Raises:
        ValueError: an argument is out of range.
    """
    for name, value in (("draft_ms", draft_ms), ("verify_ms", verify_ms)):
        if not is_finite(value) or value < 0:
            raise ValueError(f"{name} must be a number >= 0, got {short(value)}; pass milliseconds")
    require_int("rounds", rounds, maximum=MAX_ROUNDS)
    require_int("lanes", lanes, maximum=2)
    entries = []
    drafted = 0.0  # when the side that drafts gets free
    verified = 0.0
    ready = [0.0] * lanes
    for number in range(rounds):
        for lane in range(lanes):
            start = max(ready[lane], drafted)
            drafted = start + draft_ms
            begin = max(drafted, verified)
            verified = begin + verify_ms
            ready[lane] = verified
            entries.append((lane, number, "draft", start, drafted))
            entries.append((lane, number, "verify", begin, verified))
    columns = ["lane", "round", "phase", "start_ms", "stop_ms"]
    return pd.DataFrame(entries, columns=columns)
