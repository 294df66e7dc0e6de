"""What a round costs: seconds of each phase by rows and slots, from numbers, functions or recorded runs.

Not known here: policies, models, and where a function that is passed in has its figures from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from specviz.record.schema import MODELS, PHASES, Array
from specviz.record.trace import Trace
from specviz.simulation.workload import fixed_depth
from specviz.util.validate import short

Seconds = float | Callable[[int, int], float]
_KNOTS, _COLUMNS = (
    33,
    4096,
)  # between so many slots a cost is interpolated, and so many columns a table has


@dataclass(frozen=True)
class Costs:
    """Seconds of the phases of a round, each a number or a function of (rows, slots): rows in the forwards, slots that they see.

    prefill: reading the prompts of rows that enter, a function of (rows, tokens) that is added to the phase schedule; tokens are the
        longest prompt's, but for its last one, which the first round reads. move: seconds for each slot of K/V moved, in all models.
    """

    schedule: Seconds = 0.0
    draft: Seconds = 0.0
    verify: Seconds = 0.0
    accept: Seconds = 0.0
    synchronise: Seconds = 0.0
    prefill: Seconds = 0.0
    move: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if callable(value) and field.name != "move":
                continue
            number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
            if not number or not np.isfinite(value) or value < 0:
                raise ValueError(
                    f"{field.name}={short(value)} is no time; pass seconds, at least 0, or a function of (rows, slots)"
                )

    @classmethod
    def measured(cls, runs: Sequence[Trace]) -> Costs:
        """Fitted to recorded runs of one K: every phase linear in rows and rows * slots, prefill in rows * tokens, moves in slots.

        Least squares with coefficients of at least 0, scaled so that the total over all rounds is that of the runs. What the runs do not
        have, other batch sizes for instance, is interpolated or extrapolated.
        """
        fixed_depth(runs)
        seen = _joined([_observations(run) for run in runs])
        one, rows, cells = np.ones_like(seen["rows"]), seen["rows"], seen["rows"] * seen["slots"]
        fitted = {
            phase: Linear(*_fit([one, rows, cells], seen[phase]))
            for phase in ("draft", "verify", "accept")
        }
        zero = np.zeros_like(
            one
        )  # schedule and synchronise share what a moved slot costs: fitted together, one below the other
        upper = [
            one,
            zero,
            zero,
            seen["fresh"] > 0,
            seen["fresh"] * seen["tokens"],
            seen["moved_schedule"],
        ]
        lower = [zero, one, rows, zero, zero, seen["moved_synchronise"]]
        stacked = [
            np.concatenate(pair).astype(np.float64) for pair in zip(upper, lower, strict=True)
        ]
        found = _fit(stacked, np.concatenate([seen["schedule"], seen["synchronise"]]))
        schedule, synchronise, per_row, prefill, per_token, move = found
        return cls(
            schedule,
            **fitted,
            synchronise=Linear(synchronise, per_row, 0.0),
            prefill=Linear(prefill, 0.0, per_token),
            move=move,
        )

    def table(self, rows: int, slots: int) -> CostTable:
        """Phases for 0..`rows` rows and 0..`slots` slots; no row costs nothing."""
        stride = slots // _COLUMNS + 1
        columns = np.arange(0, slots + stride, stride)
        phases = np.array(
            [_tabulated(phase, getattr(self, phase), rows, columns) for phase in PHASES]
        )
        return CostTable(
            phases, _tabulated("prefill", self.prefill, rows, columns), self.move, stride
        )


@dataclass(frozen=True)
class Linear:
    """constant + per_row * rows + per_cell * rows * slots, in seconds."""

    constant: float
    per_row: float
    per_cell: float

    def __call__(self, rows: int, slots: int) -> float:
        return self.constant + rows * (self.per_row + self.per_cell * slots)


@dataclass(frozen=True)
class CostTable:
    """Seconds looked up, a column for every `stride` slots: phases (5, rows + 1, columns), prefill (rows + 1, columns); move_s a slot."""

    phases: Array
    prefill: Array
    move_s: float
    stride: int


def _tabulated(name: str, seconds: Seconds, rows: int, columns: Array) -> Array:
    """(rows + 1, columns): a number everywhere but for no rows, a function interpolated between knots."""
    table = np.zeros((rows + 1, len(columns)))
    if not callable(seconds):
        table[1:] = seconds
        return table
    knots = np.unique(np.linspace(0, columns[-1], _KNOTS).astype(int))
    for row in range(1, rows + 1):
        values = np.array([float(seconds(row, int(knot))) for knot in knots])
        if not (np.isfinite(values) & (values >= 0)).all():
            raise ValueError(
                f"{name}({row}, ...) gives {values.min():g} s; a cost has to be a number of at least 0 for any slots"
            )
        table[row] = np.interp(columns, knots, values)
    return table


def _observations(run: Trace) -> dict[str, Array]:
    """Of each round: rows, slots, rows that entered (fresh), tokens of their longest prompt, slots moved, seconds of each phase."""
    rounds = len(run.rounds["batch"])
    pool = run.pool if len(run.pool["round"]) else run.rows
    request, first = np.unique(pool["request"], return_index=True)
    entered, prompt = pool["round"][first], np.diff(run.requests["prompt_offsets"])[request]
    tokens = np.zeros(rounds)
    np.maximum.at(
        tokens, entered, prompt - 1
    )  # the last token of a prompt is pending, it is read by the first round
    seen: dict[str, Array] = {
        "rows": run.rounds["batch"].astype(np.float64),
        "slots": run.rounds["slots"].astype(np.float64),
    }
    seen |= {"fresh": np.bincount(entered, minlength=rounds), "tokens": tokens}
    moves = {
        name: values[run.moves["model"] == MODELS.index("target")]
        for name, values in run.moves.items()
    }
    for phase in ("schedule", "synchronise"):
        during = moves["phase"] == PHASES.index(phase)
        seen[f"moved_{phase}"] = np.bincount(
            moves["round"][during], moves["length"][during], minlength=rounds
        )
    return seen | {phase: run.rounds[f"{phase}_ms"].astype(np.float64) / 1000 for phase in PHASES}


def _joined(seen: Sequence[dict[str, Array]]) -> dict[str, Array]:
    return {name: np.concatenate([each[name] for each in seen]) for name in seen[0]}


def _fit(features: Sequence[Array], seconds: Array) -> list[float]:
    """A coefficient of at least 0 for each feature: least squares, time and again without the one that came out furthest below 0."""
    matrix = np.stack(features, 1).astype(np.float64)
    scale = np.abs(matrix).max(0)
    kept, found = np.flatnonzero(scale > 0), np.zeros(matrix.shape[1])
    while len(kept):
        solved = np.linalg.lstsq(matrix[:, kept] / scale[kept], seconds, rcond=1e-9)[0]
        if (solved >= 0).all():
            found[kept] = solved / scale[kept]
            break
        kept = np.delete(kept, solved.argmin())
    predicted = (matrix @ found).sum()
    return [float(value) for value in found * (seconds.sum() / predicted if predicted else 1.0)]
