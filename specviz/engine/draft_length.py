"""How many tokens a row drafts in each round: a fixed K, or the K with the most tokens a second.

Contract: the loop calls `choose` once a round's rows are known, before they draft. `Meter` calls
`learn` afterwards, with what the round cost and gained. A `DraftLength` goes by lengths, acceptance
and times, and reads no tensor. So it decides when a token is written, never which one. Not known
here: models and tables.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from statistics import median

from specviz.engine.state import State
from specviz.engine.time_curve import KEPT_TIMES, Curve
from specviz.util.validate import require_int

# K changes for a gain in rate above MARGIN; to K = 0 only above MARGIN_TO_ZERO, because the drafts
# that are missed there have to be caught up with before K can rise again.
MARGIN = 0.02
MARGIN_TO_ZERO = 0.03
TRIAL_SHARE = 0.0075  # of the run's time, for trying other K; at least one round
# A K is close if its rate is more than this share of the best one's. It is tried until it was
# measured so many times, and in place of K = 0 until so many first drafts were judged.
CLOSE = 0.85
ENOUGH_TIMES = 9
ENOUGH_DRAFTS = 150
# Rounds after which a K may be tried once more; RETRY_FACTOR times as many if it is not close.
RETRY_ROUNDS = 16
RETRY_FACTOR = 8
# Drafts of one position after which the weight of what was known before falls to 1/e.
FADE_DRAFTS = 400
# Acceptance before anything is known, and the number of drafts that this guess counts for.
PRIOR_ACCEPTANCE = 0.6
PRIOR_DRAFTS = 5.0


@dataclass(frozen=True)
class Spent:
    """What a round cost and gained.

    Attributes:
        rows: rows in its forwards.
        num_draft_tokens: its K.
        caught_up: tokens that the draft models had missed and read in this round.
        accepted: accepted drafts of each active row.
        draft_ms: time of the draft phase.
        rest_ms: time of the other phases; of the phase schedule only where no row entered.
        cold: whether something ran for the first time or was captured, so that the times are not
            those of later rounds.
    """

    rows: int
    num_draft_tokens: int
    caught_up: int
    accepted: Sequence[int]
    draft_ms: float
    rest_ms: float
    cold: bool = False


class DraftLength:
    """The same K in every round.

    To choose K differently, subclass this and override `choose`, and `learn` if the choice depends
    on earlier rounds.

    Attributes:
        most: the largest K that it ever chooses.
    """

    name = "fixed"

    def __init__(self, most: int) -> None:
        self.most = require_int("most", most, minimum=0)

    def choose(self, state: State) -> int:
        """Return K, 0 to `most`, of the round that begins. Its rows are in the batch already."""
        return self.most

    def learn(self, spent: Spent) -> None:
        """Take what a finished round cost and gained. On a GPU, this may come a round late."""

    def forget(self, pending: int) -> None:
        """Drop the last round, which failed. `learn` is still to come for `pending` before it."""


@dataclass(frozen=True)
class _Forecast:
    """What the next round is expected to bring.

    Attributes:
        gains: tokens a row, by K.
        cost_ms: time by K, without catching up.
        rates: tokens a row and ms, by K, with the round's share of catching up.
        debt_ms: time that the draft models need to read what they missed.
    """

    gains: list[float]
    cost_ms: list[float]
    rates: list[float]
    debt_ms: float


class Auto(DraftLength):
    """K with the most tokens a second, from measured times and observed acceptance.

    Gain: a row gains 1 + c_1 + c_1 c_2 + ... tokens with K drafts, where c_j is the acceptance at
    position j given all before it. It gains no more than it has left to write, so near the end of
    its budget a row needs few drafts.

    Cost: K draft steps, whose time depends on the b rows, and the other phases, whose time depends
    on the b (K + 1) tokens verified. See `Curve` for sizes that were not measured. All times are
    taken relative to the present pace of the device, so that a busy machine or a growing text does
    not count against the K of the moment.

    Debt: tokens that the draft models have missed while K was 0 must be read before they can draft
    again. That time is spread over the rounds that the rows have left.

    Other K are tried now and then, as long as trying has cost less than `TRIAL_SHARE` of the run.
    """

    name = "auto"

    def __init__(self, most: int = 8) -> None:
        super().__init__(require_int("most", most))
        self._step = Curve()  # ms of a draft step, by rows
        self._rest = Curve()  # ms of the other phases, by tokens verified
        # ms of each token that is read to catch up, beyond a draft step for all rows.
        self._read: deque[float] = deque(maxlen=KEPT_TIMES)
        # Measured over expected time of the last rounds.
        self._paces: deque[float] = deque(maxlen=5)
        # Drafts that were reached and accepted, by position.
        self._reached = [0.0] * most
        self._accepted = [0.0] * most
        # K that come first, each until it was measured.
        self._plan = deque([min(3, most), 0])
        self._current: int | None = None
        self._round = 0
        self._last_used = [0] * (most + 1)  # round in which each K was last used
        self._elapsed_ms = 0.0
        self._trials_ms = 0.0  # what trying has cost so far
        # Of rounds that are not measured yet: for a trial, the ms that the best K takes to gain as
        # much; None otherwise.
        self._fair_ms: deque[float | None] = deque()

    def choose(self, state: State) -> int:
        rows = [row for row in state.batch.rows if not row.finished]
        behind = 0
        if len(state.caches) > 1 and state.keep_draft:
            behind = sum(max(row.length - 2 - row.draft_cached, 0) for row in rows)
        left = [row.request.budget - len(row.output) for row in rows] or [1]
        # Requests that are not in this batch are taken to have budgets like these rows'.
        others = len(state.batch.live) - len(state.batch) + len(state.waiting)
        later = others * sum(row.request.budget for row in rows) / max(len(rows), 1)
        ahead = sum(left) / len(left) + later / len(state.batch)
        return self.decide(len(state.batch), behind, left, ahead)

    def decide(self, rows: int, behind: int, left: Sequence[int], ahead: float) -> int:
        """Return K for a round.

        Args:
            rows: rows in the batch.
            behind: tokens of theirs that the draft models have not read.
            left: tokens that each active row has left to write.
            ahead: mean tokens that a row of the batch has left, with those that follow in its
                place.
        """
        fair_ms = None
        while self._plan and self._rest.count(rows * (self._plan[0] + 1)):
            self._plan.popleft()
        if self._plan:
            k = self._plan[0]
        else:
            k, fair_ms = self._best_or_trial(rows, behind, left, ahead)
        self._fair_ms.append(fair_ms)
        self._round += 1
        self._last_used[k] = self._round
        return k

    def _best_or_trial(
        self, rows: int, behind: int, left: Sequence[int], ahead: float
    ) -> tuple[int, float | None]:
        """Return K, and for a trial the ms that the best K takes to gain as much."""
        forecast = self._forecast(rows, behind, left)
        rates = forecast.rates
        best = max(range(self.most + 1), key=rates.__getitem__)
        margin = MARGIN if best else MARGIN_TO_ZERO
        if self._current is None or rates[best] > rates[self._current] * (1 + margin):
            self._current = best
        current = self._current

        k = self._due(current, rows, rates)
        if k is None:
            return current, None
        fair_ms = forecast.gains[k] / rates[current]
        trials_ms = self._trials_ms + forecast.cost_ms[k] + (forecast.debt_ms if k else 0) - fair_ms
        run_ms = self._elapsed_ms + ahead / rates[current]
        if trials_ms > max(TRIAL_SHARE * run_ms, forecast.cost_ms[current]):
            return current, None
        return k, fair_ms

    def _forecast(self, rows: int, behind: int, left: Sequence[int]) -> _Forecast:
        """Return what each K is expected to bring in this round."""
        every_k = range(self.most + 1)
        # Share of the rows whose first k drafts are all accepted.
        reaching = list(accumulate(self.acceptance(), mul, initial=1.0))
        gains = []
        gain = 0.0
        for k in every_k:
            with_room = sum(k < tokens for tokens in left) / len(left)
            gain += reaching[k] * with_room
            gains.append(gain)

        step_ms = self._step(rows) or 0.0
        debt_ms = 0.0
        if behind:
            read_ms = median(self._read) if self._read else step_ms / rows / 2
            debt_ms = step_ms + behind * read_ms

        cost_ms = []
        rates = []
        for k in every_k:
            cost = (self._rest(rows * (k + 1)) or 0.0) + k * step_ms
            rounds_left = max(sum(left) / len(left) / gains[k], 1)
            cost_ms.append(cost)
            rates.append(gains[k] / (cost + (debt_ms / rounds_left if k else 0)))
        return _Forecast(gains, cost_ms, rates, debt_ms)

    def _due(self, current: int, rows: int, rates: Sequence[float]) -> int | None:
        """Return the K to try in this round: of those that are due, the one used longest ago."""
        best_drafting = max(range(1, self.most + 1), key=rates.__getitem__)
        others = {0, current - 1, current + 1, best_drafting} - {current, -1, self.most + 1}
        unsure = current == 0 and self._reached[0] < ENOUGH_DRAFTS
        due = []
        for k in others:
            close = rates[k] > CLOSE * rates[current]
            few_times = self._rest.count(rows * (k + 1)) < ENOUGH_TIMES
            far = k < current and rates[k] < CLOSE * rates[current]
            wait = RETRY_ROUNDS * RETRY_FACTOR if far else RETRY_ROUNDS
            waited = self._round - self._last_used[k] >= wait
            if waited or (close and (unsure or few_times)):
                due.append(k)
        return min(due, key=self._last_used.__getitem__, default=None)

    def acceptance(self) -> list[float]:
        """Return c_j for j = 1..most.

        A position that was seldom reached is taken to be like the one before.
        """
        rates = [PRIOR_ACCEPTANCE]
        for reached, accepted in zip(self._reached, self._accepted, strict=True):
            rates.append((accepted + PRIOR_DRAFTS * rates[-1]) / (reached + PRIOR_DRAFTS))
        return rates[1:]

    def learn(self, spent: Spent) -> None:
        self._learn_acceptance(spent)
        fair_ms = self._fair_ms.popleft() if self._fair_ms else None
        if spent.cold:
            return
        size = spent.rows * (spent.num_draft_tokens + 1)
        if self._rest.count(size) > 2 and (expected_ms := self._rest(size)):
            self._paces.append(spent.rest_ms / expected_ms)
        pace = median(self._paces) if self._paces else 1.0
        draft_ms = spent.draft_ms / pace
        rest_ms = spent.rest_ms / pace
        self._elapsed_ms += draft_ms + rest_ms
        if fair_ms is not None:
            self._trials_ms = max(self._trials_ms + draft_ms + rest_ms - fair_ms, 0.0)
        self._learn_times(spent, size, draft_ms, rest_ms)

    def forget(self, pending: int) -> None:
        while len(self._fair_ms) > pending:
            self._fair_ms.pop()

    def _learn_acceptance(self, spent: Spent) -> None:
        fade = (1 - 1 / FADE_DRAFTS) ** len(spent.accepted)
        for j in range(spent.num_draft_tokens):
            reached = sum(accepted >= j for accepted in spent.accepted)
            accepted = sum(accepted > j for accepted in spent.accepted)
            self._reached[j] = self._reached[j] * fade + reached
            self._accepted[j] = self._accepted[j] * fade + accepted

    def _learn_times(self, spent: Spent, size: int, draft_ms: float, rest_ms: float) -> None:
        """Take the times of a round, scaled to the usual pace."""
        k = spent.num_draft_tokens
        step_ms = self._step(spent.rows)
        self._rest.add(size, rest_ms)
        if spent.caught_up and step_ms is not None:
            # The draft phase ran K steps and the one that caught up.
            self._read.append(max(draft_ms - (k + 1) * step_ms, 0.0) / spent.caught_up)
        elif k and not spent.caught_up:
            self._step.add(spent.rows, draft_ms / k)
