"""Costs as the rounds of a simulation ask for them: looked up, since a roofline takes long."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

import numpy as np

from specviz.costs.rounds import RoundCosts
from specviz.record.schema import PHASES, Array

_KNOTS = 33  # costs are evaluated at so many slots, and interpolated between them
_MOVED = 1_000  # slots that move together when the price of one is taken


class Prices:
    """The costs of one K, for up to `slots` slots.

    Attributes:
        move_s: seconds of a slot that moves.
    """

    def __init__(self, costs: RoundCosts, num_draft_tokens: int, slots: int) -> None:
        self._costs = costs
        self._k = num_draft_tokens
        self._knots = np.unique(np.linspace(0, slots, _KNOTS).astype(int)).tolist()
        self._rounds: dict[int, Array] = {}  # by rows: (knots, 5)
        self._prefills: dict[int, Array] = {}  # by rows that enter: (knots, 1)
        moving = _seconds(costs(1, num_draft_tokens, 1, moved=_MOVED))
        still = _seconds(costs(1, num_draft_tokens, 1))
        self.move_s = float((moving - still).sum()) / _MOVED

    def of_round(self, rows: int, slots: int) -> list[float]:
        """Return the seconds of each phase (5,)."""
        if rows not in self._rounds:
            found = [_seconds(self._costs(rows, self._k, knot)) for knot in self._knots]
            self._rounds[rows] = np.array(found)
        return self._between(self._rounds[rows], slots)

    def of_prefill(self, rows: int, tokens: int) -> float:
        """Return the seconds of reading the prompts of rows that enter together."""
        if rows not in self._prefills:
            without = _seconds(self._costs(rows, self._k, 1)).sum()
            found = [
                _seconds(self._costs(rows, self._k, 1, entering=rows, prompt=knot)).sum() - without
                for knot in self._knots
            ]
            self._prefills[rows] = np.array(found)[:, None]
        return self._between(self._prefills[rows], tokens)[0]

    def _between(self, values: Array, at: int) -> list[float]:
        upper = bisect_left(self._knots, at)
        found = values[upper]
        if self._knots[upper] > at:
            low, high = self._knots[upper - 1], self._knots[upper]
            found = values[upper - 1] + (found - values[upper - 1]) * ((at - low) / (high - low))
        seconds: list[float] = found.tolist()
        return seconds


def _seconds(phases: Mapping[str, float]) -> Array:
    return np.array([float(phases[phase]) for phase in PHASES])
