"""How many tokens a row drafts in each round: a fixed K, or what pays best by the run's own measurements, down to none.

Contract: a `DraftLength` is asked before each round (`choose`) and told afterwards what the round cost and gained (`learn`). It goes by lengths,
acceptance and times and reads no tensor, so that it decides when a token is written, and not which. Not known here: models and tables.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul
from statistics import median

from specviz.engine.events import Event
from specviz.engine.state import State
from specviz.engine.timing import Stopwatch
from specviz.util.validate import require_int

LATELY = 9  # times of one kind of which the median is taken
UNLIKELY = 1.5  # a time so many times as long as expected counts only if it happens again
MARGIN, LEAVING = (
    0.02,
    0.03,
)  # K changes for a gain of more than this, and to 0, from where the way back is dearer
TRYING = 0.0075  # share of the run's time that trying other K may cost; of a short run, one round
CLOSE, ENOUGH = (
    0.85,
    9,
)  # a K that reaches this share of the best one's rate is tried until it was measured so many times
SURE = 150  # and in place of K = 0 until so many first drafts were judged
AGAIN, FAR = (
    16,
    8,
)  # rounds after which a K that is close may be tried once more; one that is not, after so many times as many
TRIALS = 400  # drafts of one position after which half of what was known of its acceptance is forgotten, about
GUESS, WEIGHT = 0.6, 5.0  # acceptance before anything is known, and how many drafts that is worth


@dataclass(frozen=True)
class Spent:
    """What a round cost and gained.

    Attributes:
        rows: rows in its forwards.
        num_draft_tokens: its K.
        caught_up: tokens that the draft models were shown because they had missed them.
        accepted: accepted drafts of each row at work.
        draft_ms: time of the draft phase.
        rest_ms: time of the other phases; of the phase schedule only where no row entered.
        cold: whether something ran for the first time or was captured, so that the times are not those of later rounds.
    """

    rows: int
    num_draft_tokens: int
    caught_up: int
    accepted: Sequence[int]
    draft_ms: float
    rest_ms: float
    cold: bool = False


class DraftLength:
    """The same K in every round. One of your own subclasses this and overrides `choose`, and `learn` if it goes by what happens.

    Attributes:
        most: the largest K that it ever chooses.
    """

    name = "fixed"

    def __init__(self, most: int) -> None:
        self.most = require_int("most", most, minimum=0)

    def choose(self, state: State) -> int:
        """K of the round that begins, 0 to `most`; its rows are there already."""
        return self.most

    def learn(self, spent: Spent) -> None:
        """A round is over and measured; on a GPU, that may be told a round late."""

    def forget(self, untold: int) -> None:
        """The round that was begun last came to nothing; `untold` rounds before it are still to be told."""


class Auto(DraftLength):
    """K with the most tokens a second, from measured times and observed acceptance.

    A round of b rows with K drafts gains 1 + c_1 + c_1 c_2 + ... tokens a row, c_j being the acceptance at position j given all before it,
    and no more than the row has left: near the end of its budget a row needs few drafts.
    It costs K draft steps, whose time depends on b, and the other phases, whose time depends on the tokens verified, b (K + 1), rising in
    straight lines between those that were measured; for more than were ever measured the best is hoped, until they are. All times are taken
    relative to how slow the device is at present, so that K is no worse for a busy machine or a growing text. What the draft models have
    missed while nothing was drafted is a debt, spread over the rounds that the
    rows have left. Other K are tried now and then, as long as what trying has cost stays below `TRYING` of the run.
    """

    name = "auto"

    def __init__(self, most: int = 8) -> None:
        super().__init__(require_int("most", most))
        self._step, self._rest = (
            Curve(),
            Curve(),
        )  # ms of a draft step by rows, of the other phases by tokens verified
        self._read: deque[float] = deque(
            maxlen=LATELY
        )  # ms of each token that is read to catch up, beyond a step for all rows
        self._paces: deque[float] = deque(
            maxlen=5
        )  # how slow the last rounds were, by what was known of their kind
        self._reached, self._taken = (
            [0.0] * most,
            [0.0] * most,
        )  # drafts that were reached, and accepted, by position
        self._plan = deque([min(3, most), 0])  # K that come first, each until it was measured
        self._now: int | None = None
        self._round, self._last = (
            0,
            [0] * (most + 1),
        )  # rounds so far, and the one in which each K was last used
        self._elapsed = self._lost = 0.0  # ms of all rounds, and what trying has cost
        self._trials: deque[float | None] = (
            deque()
        )  # of rounds that are not measured yet: ms that the best K takes for what a trial gains

    def choose(self, state: State) -> int:
        rows = [row for row in state.batch.rows if not row.finished]
        behind = (
            sum(max(row.length - 2 - row.draft_cached, 0) for row in rows)
            if len(state.caches) > 1 and state.keep_draft
            else 0
        )
        left = [row.request.budget - len(row.output) for row in rows] or [1]
        others = (
            len(state.batch.live) - len(state.batch) + len(state.waiting)
        )  # their budgets are taken to be like these rows'
        later = others * sum(row.request.budget for row in rows) / max(len(rows), 1)
        return self.decide(
            len(state.batch), behind, left, sum(left) / len(left) + later / len(state.batch)
        )

    def decide(self, rows: int, behind: int, left: Sequence[int], ahead: float) -> int:
        """K for `rows` rows; those at work have `left` tokens to go each, and with those that come after them `ahead` on average; the draft
        models have not seen `behind` of their tokens.
        """
        k, trial = 0, None
        while self._plan and self._rest.count(rows * (self._plan[0] + 1)):
            self._plan.popleft()
        if self._plan:
            k = self._plan[0]
        else:
            k, trial = self._best(rows, behind, left, ahead)
        self._trials.append(trial)
        self._round += 1
        self._last[k] = self._round
        return k

    def _best(
        self, rows: int, behind: int, left: Sequence[int], ahead: float
    ) -> tuple[int, float | None]:
        """K, and for a trial the ms that the best K takes for what the trial gains."""
        every = range(self.most + 1)
        wanted = [
            sum(k < tokens for tokens in left) / len(left) for k in every
        ]  # share of the rows that have room for a token more
        gains = list(
            accumulate(map(mul, accumulate(self.acceptance(), mul, initial=1.0), wanted))
        )  # tokens a row, by K
        step = self._step(rows) or 0.0
        debt = (
            step + behind * (median(self._read) if self._read else step / rows / 2)
            if behind
            else 0.0
        )
        cost = [(self._rest(rows * (k + 1)) or 0.0) + k * step for k in every]
        rounds = [max(sum(left) / len(left) / gain, 1) for gain in gains]  # that the rows have left
        rate = [gains[k] / (cost[k] + (debt / rounds[k] if k else 0)) for k in every]
        best = max(every, key=rate.__getitem__)
        if self._now is None or rate[best] > rate[self._now] * (1 + (MARGIN if best else LEAVING)):
            self._now = best
        now = self._now
        others = {0, now - 1, now + 1, max(every[1:], key=rate.__getitem__)} - {
            now,
            -1,
            self.most + 1,
        }
        unsure = now == 0 and self._reached[0] < SURE
        seldom = {
            k
            for k in others
            if rate[k] > CLOSE * rate[now] and (unsure or self._rest.count(rows * (k + 1)) < ENOUGH)
        }
        far = {k for k in others if k < now and rate[k] < CLOSE * rate[now]}
        due = [
            k
            for k in others
            if k in seldom or self._round - self._last[k] >= (AGAIN * FAR if k in far else AGAIN)
        ]
        if due:
            k = min(due, key=self._last.__getitem__)
            fair = gains[k] / rate[now]
            if self._lost + cost[k] + (debt if k else 0) - fair <= max(
                TRYING * (self._elapsed + ahead / rate[now]), cost[now]
            ):
                return k, fair
        return now, None

    def acceptance(self) -> list[float]:
        """c_j for j = 1..most; a position that was seldom reached is taken to be like the one before."""
        found = [GUESS]
        for reached, taken in zip(self._reached, self._taken, strict=True):
            found.append((taken + WEIGHT * found[-1]) / (reached + WEIGHT))
        return found[1:]

    def learn(self, spent: Spent) -> None:
        k, size = spent.num_draft_tokens, spent.rows * (spent.num_draft_tokens + 1)
        fade = (1 - 1 / TRIALS) ** len(spent.accepted)
        for j in range(k):
            self._reached[j] = self._reached[j] * fade + sum(
                accepted >= j for accepted in spent.accepted
            )
            self._taken[j] = self._taken[j] * fade + sum(
                accepted > j for accepted in spent.accepted
            )
        trial = self._trials.popleft() if self._trials else None
        if spent.cold:
            return
        if self._rest.count(size) > 2 and (expected := self._rest(size)):
            self._paces.append(spent.rest_ms / expected)
        pace = median(self._paces) if self._paces else 1.0
        draft_ms, rest_ms = spent.draft_ms / pace, spent.rest_ms / pace
        self._elapsed += draft_ms + rest_ms
        if trial is not None:
            self._lost = max(self._lost + draft_ms + rest_ms - trial, 0.0)
        self._take(spent, size, draft_ms, rest_ms)

    def forget(self, untold: int) -> None:
        while len(self._trials) > untold:
            self._trials.pop()

    def _take(self, spent: Spent, size: int, draft_ms: float, rest_ms: float) -> None:
        """Take the times of a round as they would have been at the usual pace."""
        k, rows, step = spent.num_draft_tokens, spent.rows, self._step(spent.rows)
        self._rest.add(size, rest_ms)
        if spent.caught_up and step is not None:
            self._read.append(max(draft_ms - (k + 1) * step, 0.0) / spent.caught_up)
        elif k and not spent.caught_up:
            self._step.add(rows, draft_ms / k)


class Curve:
    """Milliseconds by size: medians where they were measured, straight lines between and below, and beyond the largest no more than there.

    A larger size never takes less time: where medians say so, it is chance, and they share their mean.

    Attributes:
        known: the time by size.
    """

    def __init__(self) -> None:
        self.known: dict[int, float] = {}
        self._kept: dict[int, deque[float]] = {}
        self._doubted: set[int] = set()

    def count(self, size: int) -> int:
        """How many times count at that size."""
        return len(self._kept.get(size, ()))

    def add(self, size: int, ms: float) -> None:
        """Take a time. The very first one is only a guess, good until there is another, since the first round of a run is slower than any
        other; one that is far too long counts only if the next one of its size is, too.
        """
        if not self.known:
            self.known[size] = ms
            return
        expected = self(size)
        if expected is not None and ms > UNLIKELY * expected and size not in self._doubted:
            self._doubted.add(size)
            return
        self._doubted.discard(size)
        self._kept.setdefault(size, deque(maxlen=LATELY)).append(ms)
        self.known = self._rising()

    def _rising(self) -> dict[int, float]:
        """The medians, pooled where they fall (isotonic regression, weighted by how many times each comes from)."""
        pools: list[tuple[list[int], float, int]] = []
        for size in sorted(self._kept):
            pools.append(([size], median(self._kept[size]), self.count(size)))
            while len(pools) > 1 and pools[-2][1] > pools[-1][1]:
                (sizes, ms, n), (more, other, m) = pools[-2:]
                pools[-2:] = [(sizes + more, (n * ms + m * other) / (n + m), n + m)]
        return {size: ms for sizes, ms, _ in pools for size in sizes}

    def __call__(self, size: int) -> float | None:
        """The time at that size; None if nothing is known at all."""
        known = self.known
        if not known or size in known:
            return known.get(size)
        below = max((at for at in known if at < size), default=None)
        above = min((at for at in known if at > size), default=None)
        if above is None:
            return known[max(known)]
        if below is None:
            return self._before(size, above)
        share = (size - below) / (above - below)
        return known[below] * (1 - share) + known[above] * share

    def _before(self, size: int, near: int) -> float:
        """Below `near`, the smallest size that is known: along the line from there to one about twice as large."""
        known = self.known
        far = min(
            (at for at in known if at != near), key=lambda at: abs(at - 2 * near), default=near
        )
        slope = (known[far] - known[near]) / (far - near) if far != near else 0.0
        return max(known[near] - slope * (near - size), known[near] / 5)


class Meter:
    """Tells a `DraftLength` of each round: sees the events, and reads the stopwatch."""

    def __init__(self, depth: DraftLength, stopwatch: Stopwatch) -> None:
        self._depth, self._stopwatch = depth, stopwatch
        self._cold = 0
        self._waiting: deque[tuple[bool, Spent]] = (
            deque()
        )  # rounds that are not measured yet, and whether rows entered in them

    def anew(self) -> "Meter":
        """One for the same run, whose state is laid out anew after a round that came to nothing; it still tells of the rounds before."""
        meter = Meter(self._depth, self._stopwatch)
        meter._waiting = self._waiting
        self._depth.forget(len(self._waiting))
        return meter

    def see(self, event: Event) -> None:
        """Take an event that the stopwatch has passed on."""
        if event.phase != "synchronise":
            return
        state = event.state
        accepted = [row.accepted for row in state.batch.rows if row.gained]
        caught_up = state.caught_up if state.num_draft_tokens and state.keep_draft else 0
        cold, self._cold = state.graphs.cold_calls > self._cold, state.graphs.cold_calls
        spent = Spent(len(state.batch), state.num_draft_tokens, caught_up, accepted, 0.0, 0.0, cold)
        self._waiting.append((bool(state.admitted), spent))
        for schedule, draft, *others in self._stopwatch.latest():
            entered, spent = self._waiting.popleft()
            self._depth.learn(
                replace(spent, draft_ms=draft, rest_ms=sum(others) + (0.0 if entered else schedule))
            )
