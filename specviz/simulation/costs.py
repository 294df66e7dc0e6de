"""What a round costs: seconds of each phase by rows and slots.

Costs come from numbers, functions or recorded runs. Not known here: policies, models, and where
the figures of a passed function come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from scipy.optimize import nnls

from specviz.record.schema import MODELS, PHASES, Array
from specviz.record.trace import Trace
from specviz.simulation.acceptance import common_num_draft_tokens
from specviz.util.validate import is_finite, require_kind, short

Seconds = float | Callable[[int, int], float]
_KNOTS = 33  # a cost function is evaluated at so many slots, and interpolated between them
_MAX_COLUMNS = 4096  # of a table


@dataclass(frozen=True)
class Costs:
    """Seconds of the phases of a round.

    Each phase is a number or a function of (rows, slots): rows in the forwards, slots they see.

    Attributes:
        schedule, draft, verify, accept, synchronise: the phases.
        prefill: reading the prompts of rows that enter, a function of (rows, tokens). It is added
            to the phase schedule. tokens are those of the longest prompt but its last one, which
            the first round reads.
        move: seconds for each slot of K/V moved, in all models together.

    Raises:
        ValueError: a number is below 0 or not finite.
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
            if callable(value) and not isinstance(value, type) and field.name != "move":
                continue
            if not is_finite(value) or value < 0:
                raise ValueError(
                    f"{field.name} must be seconds >= 0, got {short(value)}; pass a number, or a"
                    " function of (rows, slots) for all but move"
                )

    @classmethod
    def measured(cls, runs: Sequence[Trace]) -> Costs:
        """Fit costs to recorded runs of one K.

        Every phase is linear in rows and rows * slots, prefill in rows * tokens, and moves in
        slots. Coefficients come from least squares, are at least 0, and are scaled so that the
        total over all rounds is that of the runs. What the runs do not have, other batch sizes for
        instance, is interpolated or extrapolated.
        """
        common_num_draft_tokens(runs)
        for i, run in enumerate(runs):
            require_kind(f"runs[{i}]", run, Trace, "pass result.trace of a run with record=True")
        observed = _joined([_observations(run) for run in runs])
        rows = observed["rows"]
        one = np.ones_like(rows)
        features = [one, rows, rows * observed["slots"]]
        # schedule and synchronise share the cost of a moved slot, so they are fitted together:
        # the upper half of each feature are the seconds of schedule, the lower half the others.
        zero = np.zeros_like(one)
        entering = observed["entering"]
        shared = [
            (one, zero),
            (entering > 0, zero),
            (entering * observed["prompt_tokens"], zero),
            (zero, one),
            (zero, rows),
            (observed["moved_schedule"], observed["moved_synchronise"]),
        ]
        schedule, prefill, prefill_cell, synchronise, per_row, move = _fit(
            [np.concatenate(halves).astype(np.float64) for halves in shared],
            np.concatenate([observed["schedule"], observed["synchronise"]]),
        )
        return cls(
            schedule=schedule,
            draft=Linear(*_fit(features, observed["draft"])),
            verify=Linear(*_fit(features, observed["verify"])),
            accept=Linear(*_fit(features, observed["accept"])),
            synchronise=Linear(synchronise, per_row, 0.0),
            prefill=Linear(prefill, 0.0, prefill_cell),
            move=move,
        )

    def table(self, rows: int, slots: int) -> CostTable:
        """Return the phases for 0..`rows` rows and 0..`slots` slots. Zero rows cost nothing."""
        stride = slots // _MAX_COLUMNS + 1
        columns = np.arange(0, slots + stride, stride)
        phases = [_tabulated(phase, getattr(self, phase), rows, columns) for phase in PHASES]
        prefill = _tabulated("prefill", self.prefill, rows, columns)
        return CostTable(np.array(phases), prefill, self.move, stride)


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
    """Seconds to look up, with a column for every `stride` slots.

    Attributes:
        phases, prefill: (5, rows + 1, columns) and (rows + 1, columns).
        move_s: seconds a moved slot.
        stride: slots a column.
    """

    phases: Array
    prefill: Array
    move_s: float
    stride: int

    def phase_seconds(self, rows: Array, slots: Array) -> Array:
        """Return the seconds of each phase (5, L) for rows and slots (L,)."""
        column = np.minimum(slots // self.stride, self.phases.shape[2] - 1)
        return self.phases[:, rows, column]

    def prefill_seconds(self, rows: Array, tokens: Array) -> Array:
        """Return the seconds of reading prompts (L,) for rows and tokens (L,)."""
        column = np.minimum(tokens // self.stride, self.prefill.shape[1] - 1)
        return self.prefill[rows, column]


def _tabulated(name: str, seconds: Seconds, rows: int, columns: Array) -> Array:
    """Return seconds (rows + 1, columns): zero for no rows, interpolated for a function."""
    table = np.zeros((rows + 1, len(columns)))
    if not callable(seconds):
        table[1:] = seconds
        return table
    knots = np.unique(np.linspace(0, columns[-1], _KNOTS).astype(int))
    for row in range(1, rows + 1):
        values = np.array([float(seconds(row, int(knot))) for knot in knots])
        if not (np.isfinite(values) & (values >= 0)).all():
            raise ValueError(
                f"{name}({row}, ...) must return seconds >= 0 for any slots, got {values.min():g};"
                " correct the function"
            )
        table[row] = np.interp(columns, knots, values)
    return table


def _observations(run: Trace) -> dict[str, Array]:
    """Return what each round of a run had to do, and how long it took.

    rows, slots; entering, prompt_tokens: rows that entered, and tokens of their longest prompt;
    moved_schedule, moved_synchronise: slots moved; seconds of each phase by its name.
    """
    num_rounds = len(run.rounds["batch"])
    pool = run.pool if len(run.pool["round"]) else run.rows
    request, first = np.unique(pool["request"], return_index=True)
    entered_in = pool["round"][first]
    prompt = np.diff(run.requests["prompt_offsets"])[request]
    prompt_tokens = np.zeros(num_rounds)
    # The last token of a prompt is pending: the first round reads it.
    np.maximum.at(prompt_tokens, entered_in, prompt - 1)
    observed: dict[str, Array] = {
        "rows": run.rounds["batch"].astype(np.float64),
        "slots": run.rounds["slots"].astype(np.float64),
        "entering": np.bincount(entered_in, minlength=num_rounds),
        "prompt_tokens": prompt_tokens,
    }
    for phase in PHASES:
        observed[phase] = run.rounds[f"{phase}_ms"].astype(np.float64) / 1000
    in_target = run.moves["model"] == MODELS.index("target")
    for phase in ("schedule", "synchronise"):
        during = in_target & (run.moves["phase"] == PHASES.index(phase))
        observed[f"moved_{phase}"] = np.bincount(
            run.moves["round"][during], run.moves["length"][during], minlength=num_rounds
        )
    return observed


def _joined(observed: Sequence[dict[str, Array]]) -> dict[str, Array]:
    return {name: np.concatenate([each[name] for each in observed]) for name in observed[0]}


def _fit(features: Sequence[Array], seconds: Array) -> list[float]:
    """Return a coefficient >= 0 for each feature by least squares, scaled to the total seconds."""
    matrix = np.stack(features, 1).astype(np.float64)
    scale = np.abs(matrix).max(0)
    scale[scale == 0] = 1  # a feature that no run has
    # Features differ by orders of magnitude (1 beside rows * slots), which the solver minds.
    found = nnls(matrix / scale, seconds)[0] / scale
    predicted = float((matrix @ found).sum())
    if predicted:
        found *= seconds.sum() / predicted
    return [float(value) for value in found]
