"""What the rounds of a run took, by size: for `Auto`, and for selectors that choose C by time.

`Meter` reports each round once its times are known, on a GPU perhaps a round late. Nothing here
reads a tensor or waits for the device. Not known here: models, drafts, acceptance.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from statistics import median_low

import numpy as np
from scipy.optimize import nnls

# Observations that a guess counts for, of acceptance and of the time of a size.
PRIOR_WEIGHT = 5
# Relative error of a single time, as on a machine that does little else.
NOISE = 0.1
# Times of a size that count, so that they outweigh its guess three to one at most. Older ones are
# forgotten, since texts grow and other loads change.
KEPT_TIMES = 3 * PRIOR_WEIGHT
# Times after which a size is measured well enough to draw a line through it.
ENOUGH = 2


class Times:
    """Times by number of tokens, with an error that falls with the number of measurements."""

    def __init__(self) -> None:
        self._kept: dict[int, deque[float]] = defaultdict(lambda: deque(maxlen=KEPT_TIMES))

    def add(self, tokens: int, ms: float) -> None:
        self._kept[tokens].append(max(ms, 1e-3))  # a coarse clock may say 0

    def count(self, tokens: int) -> int:
        """Return how many times of that size count."""
        return len(self._kept.get(tokens, ()))

    def measured(self, times: int) -> int:
        """Return how many sizes were measured so often."""
        return sum(len(kept) >= times for kept in self._kept.values())

    def usual(self, tokens: int) -> float:
        """Return the median time of a size that was measured."""
        return median_low(self._kept[tokens])

    def line(self) -> tuple[float, float]:
        """Return the ms of a straight line through all medians: fixed, and of each token.

        At least one size must have been measured. Neither cost is negative.
        """
        medians = np.array([self.usual(tokens) for tokens in self._kept])
        tokens = np.array(list(self._kept))
        counts = np.array([len(kept) for kept in self._kept.values()])
        # Divided by the time itself, so that relative errors are fitted.
        rows = np.stack([1 / medians, tokens / medians], 1)
        weights = np.sqrt(counts)
        (fixed, each), _ = nnls(rows * weights[:, None], weights)
        return float(fixed), float(each)

    def draw(self, rng: np.random.Generator) -> Callable[[int], float]:
        """Return a function from tokens to ms, drawn from what is believed about each size.

        The best guess is a straight line through all medians: a fixed cost, and one of each token.
        The medians of a size outweigh the line as they become many.
        """
        if not self._kept:
            return lambda tokens: 0.0
        medians = {tokens: self.usual(tokens) for tokens in self._kept}
        fixed, each = self.line()
        drawn: dict[int, float] = {}

        def ms(tokens: int) -> float:
            if tokens not in drawn:
                count = self.count(tokens)
                line = fixed + each * tokens
                total = PRIOR_WEIGHT * line + count * medians.get(tokens, 0.0)
                error = NOISE / (count + PRIOR_WEIGHT) ** 0.5
                drawn[tokens] = total / (count + PRIOR_WEIGHT) * np.exp(error * rng.normal())
            return drawn[tokens]

        return ms


class RoundTimes:
    """The times of a run's rounds: of drafting by rows, of the other phases by tokens verified."""

    def __init__(self) -> None:
        self._draft = Times()  # of one token in each row
        self._rest = Times()
        self._first = True

    def add(
        self,
        rows: int,
        verified: int,
        drafted: int,
        draft_ms: float,
        rest_ms: float,
        *,
        cold: bool = False,
    ) -> None:
        """Take a round.

        Args:
            rows: rows in its forwards.
            verified: drafts that the target judged, of all rows.
            drafted: tokens that each row drafted.
            draft_ms, rest_ms: time of the draft phase, and of the others.
            cold: whether it is slower than later rounds, as one that is captured.
        """
        # The first round of a run is slower than any other.
        if self._first or cold:
            self._first = False
            return
        self._rest.add(rows + verified, rest_ms)
        if drafted:
            self._draft.add(rows, draft_ms / drafted)

    def line(self, rows: int, drafted: int) -> tuple[float, float] | None:
        """Return the ms of a round that verifies nothing, and of each draft that it verifies.

        None while fewer than two sizes were measured well enough to tell one from the other.

        Args:
            rows: rows in its forwards.
            drafted: tokens that each row drafts, whose time is part of the first number.
        """
        if self._rest.measured(ENOUGH) < 2 or not self._draft.measured(1):
            return None
        fixed, each = self._rest.line()
        draft_fixed, draft_each = self._draft.line()
        draft_ms = drafted * (draft_fixed + draft_each * rows)
        return draft_ms + fixed + each * rows, each
