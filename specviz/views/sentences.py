"""A phase of a recorded round in plain words, with its own numbers. Reads a Trace; knows no colours and no charts."""

from collections.abc import Sequence

from specviz.schema import MODELS, PHASES
from specviz.trace import Trace
from specviz.views.cells import batch_rows


def headline(trace: Trace, round: int, phase: str) -> str:
    """What a picture shows: strategy, round and phase."""
    return f"{trace.meta['strategy']} · round {round} · after {phase}"


def sentence(trace: Trace, round: int, phase: str) -> str:
    """What the phase did in this round, with its numbers."""
    rows = [row for row in batch_rows(trace, round) if row.gained]
    drafts, gains = _span([row.drafted for row in rows]), _span([row.gained for row in rows])
    gains += " token" if gains == "1" else " tokens"
    if phase == "synchronise":
        return _synchronised(trace, round, gains)
    wasted = sum(row.discarded for row in rows)
    return {
        "schedule": f"{count(len(rows), 'row')} about to take part in this round.",
        "draft": f"Each row has {drafts} drafts that the target has not read yet.",
        "verify": f"One target forward has read every row's pending token and its {drafts} drafts.",
        "accept": f"Of {drafts} drafts a row the target agrees with {_span([row.accepted for row in rows])}; "
        f"with the bonus, rows gain {gains}." + (f" {count(wasted, 'verified token')} thrown away." if wasted else ""),
    }[phase]


def _synchronised(trace: Trace, round: int, gains: str) -> str:
    moves = trace.moves
    here = (moves["round"] == round) & (moves["phase"] == PHASES.index("synchronise"))
    if not here.any():
        return f"Rows gained {gains}, and nothing has moved: all KV stays where it was written."
    per_slot = [trace.meta["kv_bytes_per_slot"][MODELS[model]] for model in moves["model"][here]]
    copied = sum(int(length) * size for length, size in zip(moves["length"][here], per_slot, strict=True))
    moved = count(len(set(moves["to_row"][here].tolist())), "row")
    why = "to end in one column again, " if len({row.pending_after for row in batch_rows(trace, round)}) == 1 else ""
    return f"Rows gained {gains}; {why}{moved} moved: {_amount(copied)} of KV copied."


def _span(values: Sequence[int]) -> str:
    low, high = min(values, default=0), max(values, default=0)
    return f"{low}" if low == high else f"{low} to {high}"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _amount(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.1f} kB"
