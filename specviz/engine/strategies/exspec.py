"""EXSPEC: a pool of sequences, each with its own K/V, from which rounds take groups of equal length (arXiv 2510.22876, on EXSPEC).

Rows of equal length form a rectangle as they are, so nothing has to be realigned. When no group fills the batch, the scheduler falls
back as it was told. All rows of the pool live in the slabs; a round's group occupies the first of them. K/V moves when rows trade
places, and when a group has to end in one column and a row of it lies elsewhere; no row is ever prefilled twice.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from specviz.engine.batch import Request
from specviz.engine.state import State
from specviz.engine.strategies.base import Strategy
from specviz.engine.strategies.eqspec import end_at
from specviz.engine.strategies.scheduler import DECISIONS, FALLBACKS, Scheduler
from specviz.util.validate import require_bool, require_int


@dataclass(frozen=True)
class ExSpec(Strategy):
    """A pool of `window` rows.

    `fallback`, when no batch of equal length can be formed: "realign" takes the rows that came first and realigns them (the
    paper's way), "partial" the largest group of equal length even if it is smaller than the batch, "wait" the same, but a row that was
    passed over `max_wait` times is taken, realigned if need be. Then no row waits more than max_wait + window / batch_size rounds.
    `sort_prompts` lets prompts enter by length, so that equal lengths meet.

    Two ways of the paper's public code, which cost time and change no text. `drop_cache`: prompts are read when their row is first chosen,
    and a batch that has to be realigned and has such a row in it loses all its K/V and reads all its rows again. `group_by="padded"`:
    groups are those whose rows end in one column as they lie, padding included, instead of rows of equal length. `as_published` sets
    both, whatever was given for them, and bonus=False, shrink_to_budget=True and, of a drafter chosen by name, keep_cache=False.
    """

    window: int = 32
    fallback: str = "realign"
    max_wait: int = 8
    sort_prompts: bool = False
    drop_cache: bool = False
    group_by: str = "length"
    as_published: bool = False

    name: ClassVar[str] = "exspec"
    valid: ClassVar[bool] = True
    capturable: ClassVar[bool] = True
    description: ClassVar[str] = (
        "a pool from which rounds take groups of equal length, with a fallback (the paper's EXSPEC)"
    )
    cost: ClassVar[str] = "K/V of a whole pool; moves K/V when the group changes; rows wait"
    decisions: ClassVar[tuple[str, ...]] = DECISIONS

    def __post_init__(self) -> None:
        for name in ("sort_prompts", "drop_cache", "as_published"):
            require_bool(name, getattr(self, name))
        if self.as_published:
            for name, value in {
                "bonus": False,
                "shrink_to_budget": True,
                "drop_cache": True,
                "group_by": "padded",
            }.items():
                object.__setattr__(self, name, value)
        if self.group_by not in ("length", "padded"):
            raise ValueError(f'group_by={self.group_by!r} is unknown; choose "length" or "padded"')
        require_int("window", self.window, remedy="pass the batch size or more")
        if self.fallback not in FALLBACKS:
            raise ValueError(
                f"fallback={self.fallback!r} is unknown; choose one of {', '.join(FALLBACKS)}"
            )
        require_int("max_wait", self.max_wait)
        if not self.refill:
            raise ValueError("refill=False leaves exspec no pool to choose from; leave it out")
        super().__post_init__()

    @property
    def drafter_options(self) -> dict[str, dict[str, Any]]:
        return {"model": {"keep_cache": False}} if self.as_published else {}

    def capacity(self, batch_size: int, requests: int) -> int:
        if self.window < batch_size:
            raise ValueError(
                f"window={self.window} is smaller than batch_size={batch_size}; pass a window of at least the batch size"
            )
        return min(self.window, requests)

    def halved(self) -> "ExSpec":
        return replace(self, window=max(self.window // 2, 1))

    def slots(self, longest: int, budget: int, num_draft_tokens: int) -> int:
        """A row that keeps its padding may end as far behind the longest one as it has tokens to write."""
        return super().slots(longest, budget, num_draft_tokens) + (
            budget if self.group_by == "padded" else 0
        )

    def order(self, requests: Sequence[Request]) -> Sequence[Request]:
        return (
            sorted(requests, key=lambda request: len(request.prompt))
            if self.sort_prompts
            else requests
        )

    def schedule(self, state: State) -> None:
        """Refill the pool, choose this round's group, and bring it to the front of the slabs, ending in one column."""
        if state.memory is None:
            state.memory = Scheduler(state.batch_size, self.fallback, self.max_wait)
        fresh = self.replace(state)
        if fresh:
            starts = state.layout.starts[: len(state.batch.live)]
            state.layout.set_starts(
                [0 if row in fresh else start for row, start in enumerate(starts)]
            )
            if not self.drop_cache:
                state.prefill(fresh)
        starts = state.layout.starts if self.group_by == "padded" else [0] * len(state.batch.live)
        lengths = {
            row.request.index: row.length + start
            for row, start in zip(state.batch.live, starts, strict=False)
        }
        state.passed_over = state.memory.update(lengths)
        group, decision = state.memory.choose(lengths)
        state.decision = self.decisions.index(decision)
        bring_to_front(state, group)
        unread = self._unread(state, decision) if self.drop_cache else []
        end_at(state, self._end(state), range(len(group)), unread)
        if unread:
            state.prefill(unread)

    def _unread(self, state: State, decision: str) -> list[int]:
        """Rows of the batch that have no K/V: those that are in a batch for the first time; and, if it is realigned, with them all."""
        first = [
            i
            for i, row in enumerate(state.batch.rows)
            if len(row.output) == len(row.request.written)
        ]
        return list(range(len(state.batch))) if first and decision == "realigned" else first

    def _end(self, state: State) -> int:
        """The column where the group ends: where half of it or more ends already, else as far left as its longest row allows."""
        rows, starts = state.batch.rows, state.layout.starts
        longest = max(row.length for row in rows)
        room = state.caches["target"].slots - state.headroom
        ends = Counter(start + row.length for row, start in zip(rows, starts, strict=False))
        end, rows_there = ends.most_common(1)[0]
        return end if 2 * rows_there >= len(rows) and longest <= end <= room else longest

    def synchronise(self, state: State) -> None:
        """Nothing: rows of the pool stay where they are until a group needs them elsewhere."""


def bring_to_front(state: State, group: Sequence[int]) -> None:
    """Let the requests `group` occupy the first rows and be the batch; only rows that are not there yet trade places."""
    order = list(range(len(state.batch.live)))
    row_of = {row.request.index: i for i, row in enumerate(state.batch.live)}
    wanted = {row_of[request] for request in group}
    places = [row for row in range(len(group)) if row not in wanted]
    for place, row in zip(places, sorted(row for row in wanted if row >= len(group)), strict=True):
        order[place], order[row] = row, place
    state.take(order)
    state.batch.active = len(group)
