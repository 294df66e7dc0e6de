"""What a round costs: the form in which costs are passed around, and costs of measured runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from specviz.record.schema import MODELS, PHASES
from specviz.record.trace import RecordedRun, Trace, check_runs

Seconds = float | Callable[[int, int, int], float]
# What a round costs: a function of B, K (0 is a step of autoregressive decoding) and T, slots that
# a row's verification attends to. It returns the seconds of each phase, by the phases' names.
#
# A simulation says by name what else the round does. moved, carried: slots of K/V, of all rows
# together, that the round realigns in its last phase, and moves before it drafts; entering, prompt:
# rows that enter, and tokens that each of them has to read.
#
# `Roofline.phase_seconds` is such a function, and objects of `Costs` are.
RoundCosts = Callable[..., Mapping[str, Any]]


@dataclass(frozen=True)
class Costs:
    """Costs of a round as numbers of seconds, or as functions of (rows, num_draft_tokens, slots).

    Attributes:
        schedule, draft, verify, accept, synchronise: the phases.
        prefill: reading the prompts of rows that enter, a function of (entering rows,
            num_draft_tokens, tokens of the longest prompt). It is added to schedule.
        move: for each slot of K/V moved, in all models together.
    """

    schedule: Seconds = 0.0
    draft: Seconds = 0.0
    verify: Seconds = 0.0
    accept: Seconds = 0.0
    synchronise: Seconds = 0.0
    prefill: Seconds = 0.0
    move: Seconds = 0.0

    def __call__(
        self,
        rows: int,
        num_draft_tokens: int,
        slots: int,
        *,
        moved: float = 0,
        carried: float = 0,
        entering: int = 0,
        prompt: int = 0,
    ) -> dict[str, float]:
        """Return the seconds of each phase; see `RoundCosts`."""

        def cost(of: Seconds, b: int, t: int) -> float:
            return float(of(b, num_draft_tokens, t) if callable(of) else of)

        seconds = {phase: cost(getattr(self, phase), rows, slots) for phase in PHASES}
        if moved or carried:
            move_s = cost(self.move, rows, slots)
            seconds["schedule"] += carried * move_s
            seconds["synchronise"] += moved * move_s
        if entering:
            seconds["schedule"] += cost(self.prefill, entering, prompt)
        return seconds

    @classmethod
    def measured(cls, runs: Sequence[Trace]) -> Costs:
        """Fit costs to recorded runs; those of each K know that K alone.

        Every phase is linear in rows and rows * slots, prefill in rows * tokens, and moves in
        slots. Coefficients come from least squares, are at least 0, and are scaled so that the
        total over all rounds is that of the runs. What the runs do not have, other batch sizes for
        instance, is interpolated or extrapolated.

        Raises:
            ValueError: a run was not recorded, or has several K.
        """
        check_runs(runs)
        by_k: dict[int, list[Trace]] = {}
        for run in runs:
            by_k.setdefault(common_num_draft_tokens([run]), []).append(run)
        fits = {k: _fitted(of_k) for k, of_k in by_k.items()}
        return cls(**{name: Linear({k: fits[k][name] for k in fits}) for name in _FITTED})


@dataclass(frozen=True)
class Linear:
    """constant + per_row * rows + per_cell * rows * slots, in seconds, for each K that is known.

    Attributes:
        by_k: constant, per_row and per_cell by K.
    """

    by_k: Mapping[int, tuple[float, float, float]]

    def __call__(self, rows: int, num_draft_tokens: int, slots: int) -> float:
        if num_draft_tokens not in self.by_k:
            known = ", ".join(map(str, sorted(self.by_k)))
            raise ValueError(
                f"num_draft_tokens must be one that was measured ({known}), got"
                f" {num_draft_tokens}; record runs with it"
            )
        constant, per_row, per_cell = self.by_k[num_draft_tokens]
        return constant + rows * (per_row + per_cell * slots)


_FITTED = (*PHASES, "prefill", "move")


def _fitted(runs: Sequence[Trace]) -> dict[str, tuple[float, float, float]]:
    """Return the coefficients of `Linear` for each of `_FITTED`, of runs of one K."""
    seen = pd.concat([_observations(run) for run in runs], ignore_index=True)
    one = np.ones(len(seen))
    found = {}
    for phase in ("draft", "verify", "accept"):
        features = [one, seen["rows"], seen["rows"] * seen["slots"]]
        constant, per_row, per_cell = _least_squares(features, seen[phase])
        found[phase] = (constant, per_row, per_cell)
    # schedule and synchronise share the cost of a moved slot, so they are fitted together:
    # the upper half of each feature are the seconds of schedule, the lower half the others.
    zero = 0 * one
    shared = [
        (one, zero),
        (seen["entering"] > 0, zero),
        (seen["entering"] * seen["prompt_tokens"], zero),
        (zero, one),
        (zero, seen["rows"]),
        (seen["moved_schedule"], seen["moved_synchronise"]),
    ]
    schedule, prefill, prefill_cell, synchronise, per_row, move = _least_squares(
        [np.concatenate(halves) for halves in shared],
        np.concatenate([seen["schedule"], seen["synchronise"]]),
    )
    found |= {"schedule": (schedule, 0.0, 0.0), "synchronise": (synchronise, per_row, 0.0)}
    return found | {"prefill": (prefill, 0.0, prefill_cell), "move": (move, 0.0, 0.0)}


def _observations(run: Trace) -> pd.DataFrame:
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
    observed = {
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
    return pd.DataFrame(observed)


def _least_squares(features: Sequence[Any], seconds: Any) -> list[float]:
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


def common_num_draft_tokens(runs: Sequence[RecordedRun]) -> int:
    """Return K of recorded runs. Raise ValueError if it is not the same in all of their rounds."""
    found = {int(run.meta["num_draft_tokens"]) for run in runs}
    for run in runs:
        working = run.rows["gained"] > 0
        found |= set(np.unique(run.rows["drafted"][working]).tolist())
    if len(found) != 1:
        raise ValueError(
            f"runs must have one num_draft_tokens in all of their rounds, got {sorted(found)}; pass"
            " one or more runs of one K"
        )
    return found.pop()
