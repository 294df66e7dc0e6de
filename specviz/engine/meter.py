"""Report the cost and the gain of each round to the run's `DraftLength` and to its state."""

from collections import deque
from dataclasses import replace

from specviz.engine.draft_length import DraftLength, Spent
from specviz.engine.events import Event
from specviz.engine.round_times import RoundTimes
from specviz.engine.timing import Stopwatch


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
        self._report(state.times)

    def _report(self, times: RoundTimes) -> None:
        for schedule_ms, draft_ms, *other_ms in self._stopwatch.latest():
            entered, spent = self._pending.popleft()
            # A schedule phase with a prefill says nothing of later rounds.
            rest_ms = sum(other_ms) + (0.0 if entered else schedule_ms)
            spent = replace(spent, draft_ms=draft_ms, rest_ms=rest_ms)
            self._draft_length.learn(spent)
            times.add(
                spent.rows,
                sum(spent.verified or ()),
                spent.num_draft_tokens + spent.extra,
                draft_ms,
                rest_ms,
                cold=spent.cold or spent.caught_up > 0,
            )
