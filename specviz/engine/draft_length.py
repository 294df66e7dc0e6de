"""How many tokens a row drafts in each round: a fixed K, or the K with the most tokens a second.

Contract: the loop calls `choose` once a round's rows are known, before they draft. `Meter` calls
`learn` afterwards, with what the round cost and gained. A `DraftLength` goes by lengths, acceptance
and times, and reads no tensor. So it decides when a token is written, never which one. Not known
here: models and tables.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median_low

import numpy as np
from scipy.optimize import nnls

from specviz.engine.events import Event
from specviz.engine.state import State
from specviz.engine.timing import Stopwatch

MOST = 8  # the largest K of "auto", where the drafter has no smaller limit
# Rounds that a draw is used for, because reading what a pause missed pays only over several.
HOLD = 4
# Drafts after which an old one counts 1/e, so that another kind of text is noticed.
FADE = 400
# Observations that a guess counts for, of acceptance and of the time of a size.
PRIOR_WEIGHT = 5
# Relative error of a single time, as on a machine that does little else.
NOISE = 0.1
# Times of a size that count, so that they outweigh its guess three to one at most. Older ones are
# forgotten, since texts grow and other loads change.
KEPT_TIMES = 3 * PRIOR_WEIGHT


@dataclass(frozen=True)
class Spent:
    """What a round cost and gained.

    Times are in ms. On a CPU they are what the run's thread computed, without the time that other
    programs took from it.

    Attributes:
        rows: rows in its forwards.
        num_draft_tokens: its K.
        extra: tokens that each row drafted beyond K.
        verified: drafts that the target judged, of each active row; None: K each.
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
    verified: Sequence[int] | None = None
    extra: int = 0


class DraftLength:
    """The same K in every round.

    To choose K differently, subclass this and override `choose`, and `learn` if the choice depends
    on earlier rounds.

    Attributes:
        most: the largest K that it ever chooses.
    """

    name = "fixed"

    def __init__(self, most: int) -> None:
        self.most = most

    def choose(self, state: State) -> int:
        """Return K, 0 to `most`, of the round that begins. Its rows are in the batch already."""
        return self.most

    def learn(self, spent: Spent) -> None:
        """Take what a finished round cost and gained. On a GPU, this may come a round late."""


# Share of rows that reach each position; ms of a draft model's forward; ms of the other phases.
Belief = tuple[list[float], Callable[[int], float], Callable[[int], float]]


class Auto(DraftLength):
    """K with the most tokens a second, by measured times and observed acceptance.

    It draws its beliefs at random from what it has measured (Thompson sampling, Thompson 1933).
    What is uncertain varies from draw to draw and so gets tried; what is well known does not.

    Gain: with K drafts a row gains 1 + c_1 + c_1 c_2 + ... tokens, where c_j is the acceptance at
    position j given all before it. It gains no more than it has left to write.

    Cost: K draft steps, whose time depends on the b rows, and the other phases, whose time depends
    on the b (K + 1) tokens verified.

    Debt: tokens that the draft models missed while K was 0 have to be read before they can draft
    again. That time is spread over the rounds that the rows have left.
    """

    name = "auto"

    def __init__(self, most: int = MOST) -> None:
        super().__init__(most)
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


class Times:
    """Times by number of tokens, with an error that falls with the number of measurements."""

    def __init__(self) -> None:
        self._kept: dict[int, deque[float]] = defaultdict(lambda: deque(maxlen=KEPT_TIMES))

    def add(self, tokens: int, ms: float) -> None:
        self._kept[tokens].append(max(ms, 1e-3))  # a coarse clock may say 0

    def count(self, tokens: int) -> int:
        """Return how many times of that size count."""
        return len(self._kept.get(tokens, ()))

    def usual(self, tokens: int) -> float:
        """Return the median time of a size that was measured."""
        return median_low(self._kept[tokens])

    def draw(self, rng: np.random.Generator) -> Callable[[int], float]:
        """Return a function from tokens to ms, drawn from what is believed about each size.

        The best guess is a straight line through all medians: a fixed cost, and one of each token,
        neither of them negative. The medians of a size outweigh the line as they become many.
        """
        if not self._kept:
            return lambda tokens: 0.0
        usual = {tokens: self.usual(tokens) for tokens in self._kept}
        medians = np.array(list(usual.values()))
        weights = np.sqrt([len(kept) for kept in self._kept.values()])
        # Divided by the time itself, so that relative errors are fitted.
        rows = np.stack([1 / medians, np.array(list(usual)) / medians], 1)
        (fixed, each), _ = nnls(rows * weights[:, None], weights)
        drawn: dict[int, float] = {}

        def ms(tokens: int) -> float:
            if tokens not in drawn:
                count = self.count(tokens)
                line = float(fixed) + float(each) * tokens
                total = PRIOR_WEIGHT * line + count * usual.get(tokens, 0.0)
                error = NOISE / (count + PRIOR_WEIGHT) ** 0.5
                drawn[tokens] = total / (count + PRIOR_WEIGHT) * np.exp(error * rng.normal())
            return drawn[tokens]

        return ms


class Meter:
    """Collect rounds from the run's events and report them once the stopwatch has their times.

    On a GPU, the times of a round may arrive a round late.
    """

    def __init__(self, draft_length: DraftLength, stopwatch: Stopwatch) -> None:
        self._draft_length = draft_length
        self._stopwatch = stopwatch
        self._cold_calls = 0
        # Rounds that are not measured yet, and whether rows entered in them.
        self._pending: deque[tuple[bool, Spent]] = deque()

    def restarted(self) -> "Meter":
        """Return a meter for the same run, whose state is laid out again after a failed round.

        It still reports the rounds before that one.
        """
        meter = Meter(self._draft_length, self._stopwatch)
        meter._pending = self._pending
        return meter

    def observe(self, event: Event) -> None:
        """Take an event that the stopwatch has passed on."""
        if event.phase != "synchronise":
            return
        state = event.state
        active = [row for row in state.batch.rows if row.gained]
        drafts = state.num_draft_tokens > 0
        cold_calls = state.graphs.cold_calls
        spent = Spent(
            rows=len(state.batch),
            num_draft_tokens=state.num_draft_tokens - state.extra_draft_tokens,
            extra=state.extra_draft_tokens,
            caught_up=state.caught_up if drafts and state.keep_draft else 0,
            accepted=[row.accepted for row in active],
            verified=[row.verified for row in active],
            draft_ms=0.0,
            rest_ms=0.0,
            cold=cold_calls > self._cold_calls,
        )
        self._cold_calls = cold_calls
        self._pending.append((bool(state.admitted), spent))
        for schedule_ms, draft_ms, *other_ms in self._stopwatch.latest():
            entered, spent = self._pending.popleft()
            # A schedule phase with a prefill says nothing of later rounds.
            rest_ms = sum(other_ms) + (0.0 if entered else schedule_ms)
            self._draft_length.learn(replace(spent, draft_ms=draft_ms, rest_ms=rest_ms))
