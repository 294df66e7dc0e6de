"""Choose K in each round so that a run writes the most tokens a second.

`Auto` measures what a round of each size costs and how often drafts are accepted, and draws its
beliefs at random from what it has measured (Thompson sampling, Thompson 1933). What is uncertain
varies from draw to draw and so gets tried; what is well known does not. Not known here: models and
tables.
"""

from collections import deque
from collections.abc import Callable, Sequence
from statistics import median_low

import numpy as np

from specviz.engine.draft_length import DraftLength, Spent
from specviz.engine.round_times import PRIOR_WEIGHT, Times
from specviz.engine.state import State
from specviz.util.validate import require_int

MOST = 8  # the largest K, where the drafter has no smaller limit
# Rounds that a draw is used for, because reading what a pause missed pays only over several.
HOLD = 4
# Drafts after which an old one counts 1/e, so that another kind of text is noticed.
FADE = 400


# Share of rows that reach each position; ms of a draft model's forward; ms of the other phases.
Belief = tuple[list[float], Callable[[int], float], Callable[[int], float]]


class Auto(DraftLength):
    """K with the most tokens a second, by measured times and observed acceptance.

    Gain: with K drafts a row gains 1 + c_1 + c_1 c_2 + ... tokens, where c_j is the acceptance at
    position j given all before it. It gains no more than it has left to write.

    Cost: K draft steps, whose time depends on the b rows, and the other phases, whose time depends
    on the b (K + 1) tokens verified.

    Debt: tokens that the draft models missed while K was 0 have to be read before they can draft
    again. That time is spread over the rounds that the rows have left.
    """

    name = "auto"

    def __init__(self, most: int = MOST) -> None:
        super().__init__(require_int("most", most))
        self._rng = np.random.default_rng(0)
        self._draft = Times()  # of a draft model's forward
        self._rest = Times()  # of the other phases
        self._paces: deque[float] = deque(maxlen=HOLD + 1)  # measured over usual times, of late
        self._accepted = np.zeros(most)
        self._rejected = np.zeros(most)
        # K that are measured twice before anything is compared: a first time may be far too long.
        self._plan = deque([min(3, most), 0, 1])
        self._first = True
        self._extra = 0  # tokens drafted beyond K
        self._held = 0
        self._belief: Belief

    def choose(self, state: State) -> int:
        rows = [row for row in state.batch.rows if not row.finished]
        behind = 0
        if len(state.caches) > 1 and state.keep_draft:
            behind = sum(max(row.length - state.fed_first - row.draft_cached, 0) for row in rows)
        left = [row.request.budget - len(row.output) for row in rows] or [1]
        return self.decide(len(state.batch), behind, left)

    def decide(self, rows: int, behind: int, left: Sequence[int]) -> int:
        """Return K for a round.

        Args:
            rows: rows in the batch.
            behind: tokens of theirs that the draft models have not read.
            left: tokens that each active row has left to write.
        """
        while self._plan and self._rest.count(rows * (self._plan[0] + 1)) > 1:
            self._plan.popleft()
        if self._plan:
            return self._plan[0]
        if not self._held:
            self._belief = self._draw()
            self._held = HOLD
        self._held -= 1
        reach, draft_ms, rest_ms = self._belief
        debt_ms = draft_ms(behind) if behind else 0.0
        best = 0
        best_rate = 0.0
        gain = 0.0
        # A row with one token left needs no draft, because the target adds a token of its own.
        for k in range(min(self.most, max(left) - 1) + 1):
            gain += reach[k] * sum(k < tokens for tokens in left) / len(left)
            drafted = k + self._extra if k else 0
            cost = rest_ms(rows * (k + 1)) + drafted * draft_ms(rows)
            if k:
                rounds_left = sum(left) / len(left) / gain
                cost += debt_ms / max(rounds_left, 1)
            if gain / cost > best_rate:
                best_rate = gain / cost
                best = k
        return best

    def acceptance(self) -> list[float]:
        """Return the best guess of c_j for j = 1..most.

        A position that was seldom reached is taken to be like the one before.
        """
        rates = [0.5]
        for accepted, rejected in zip(self._accepted, self._rejected, strict=True):
            total = accepted + rejected + PRIOR_WEIGHT
            rates.append((accepted + PRIOR_WEIGHT * rates[-1]) / total)
        return rates[1:]

    def _draw(self) -> Belief:
        """Draw the share of rows whose first k drafts are all accepted, and both kinds of times."""
        rates = np.clip(self.acceptance(), 1e-6, 1 - 1e-6)
        total = self._accepted + self._rejected + PRIOR_WEIGHT
        drawn = self._rng.beta(rates * total, (1 - rates) * total)
        reach = [1.0, *np.cumprod(drawn).tolist()]
        return reach, self._draft.draw(self._rng), self._rest.draw(self._rng)

    def learn(self, spent: Spent) -> None:
        k = spent.num_draft_tokens
        self._extra = spent.extra if k else self._extra
        verified = [k] * len(spent.accepted) if spent.verified is None else spent.verified
        counts = list(zip(spent.accepted, verified, strict=True))
        fade = (1 - 1 / FADE) ** len(counts)
        for j in range(k):
            accepted = sum(count > j for count, _ in counts)
            rejected = sum(count == j < judged for count, judged in counts)
            self._accepted[j] = self._accepted[j] * fade + accepted
            self._rejected[j] = self._rejected[j] * fade + rejected
        # The first round of a run is slower than any other, as one that is captured.
        if self._first or spent.cold:
            self._first = False
            return
        size = spent.rows * (k + 1)
        if self._rest.count(size):
            self._paces.append(spent.rest_ms / self._rest.usual(size))
        # A machine that is busy for a while, or a text that has grown, counts against no K.
        pace = median_low(self._paces) if self._paces else 1.0
        draft_ms = spent.draft_ms / pace
        self._rest.add(size, spent.rest_ms / pace)
        if not k:
            return
        # A draft model that caught up has read what it missed in a forward of its own.
        if not spent.caught_up:
            self._draft.add(spent.rows, draft_ms / (k + spent.extra))
        elif self._draft.count(spent.rows):
            step_ms = self._draft.usual(spent.rows)
            steps_ms = (k + spent.extra) * step_ms
            self._draft.add(spent.caught_up, max(draft_ms - steps_ms, step_ms / 2))
