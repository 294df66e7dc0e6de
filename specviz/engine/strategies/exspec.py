"""EXSPEC: a pool of sequences from which rounds take groups of equal length (arXiv 2510.22876).

Rows of equal length form a rectangle as they are, so nothing has to be realigned. When no group
fills the batch, the scheduler uses its fallback. All rows of the pool live in the slabs, and the
group of a round occupies the first of them. K/V moves when rows trade places, and when a group has
to end in one column and one of its rows lies elsewhere. No row is prefilled twice.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from specviz.engine.batch import Request
from specviz.engine.prefill import prefill
from specviz.engine.state import State
from specviz.engine.strategies.base import Strategy
from specviz.engine.strategies.eqspec import end_at
from specviz.record.schema import DECISIONS, FALLBACKS
from specviz.scheduling.scheduler import Scheduler
from specviz.util.validate import require_bool, require_choice, require_int


@dataclass(frozen=True)
class ExSpec(Strategy):
    """A pool of `window` rows.

    Attributes:
        window: rows of the pool, at least the batch size.
        fallback: what a round does when no batch of equal length can be formed. "realign" takes
            the rows that came first and realigns them, which is the paper's way. "partial" takes
            the largest group of equal length, even if it is smaller than the batch. "wait" does
            the same, but takes a row that was passed over `max_wait` times, and realigns it if
            need be. Then no row waits more than max_wait + window / batch_size rounds.
        max_wait: rounds that a row may be passed over with fallback="wait".
        sort_prompts: whether prompts enter by length, so that equal lengths meet.
    """

    window: int = 32
    fallback: str = "realign"
    max_wait: int = 8
    sort_prompts: bool = False

    name: ClassVar[str] = "exspec"
    valid: ClassVar[bool] = True
    right_aligned: ClassVar[bool] = True
    capturable: ClassVar[bool] = True
    description: ClassVar[str] = (
        "a pool from which rounds take groups of equal length, with a fallback (the paper's EXSPEC)"
    )
    cost: ClassVar[str] = "K/V of a whole pool; moves K/V when the group changes; rows wait"
    decisions: ClassVar[tuple[str, ...]] = DECISIONS

    def __post_init__(self) -> None:
        require_bool("sort_prompts", self.sort_prompts)
        require_int("window", self.window, remedy="pass the batch size or more")
        require_int("max_wait", self.max_wait)
        require_choice("fallback", self.fallback, FALLBACKS)
        require_bool("refill", self.refill)
        if not self.refill:
            raise ValueError(
                "refill=False leaves exspec without a pool to choose from; leave it out"
            )
        super().__post_init__()

    def capacity(self, batch_size: int, requests: int) -> int:
        if self.window < batch_size:
            raise ValueError(
                f"window={self.window} is smaller than batch_size={batch_size}; "
                "pass a window of at least the batch size"
            )
        return min(self.window, requests)

    def halved(self) -> "ExSpec":
        return replace(self, window=max(self.window // 2, 1))

    def order(self, requests: Sequence[Request]) -> Sequence[Request]:
        if not self.sort_prompts:
            return requests
        return sorted(requests, key=lambda request: len(request.prompt))

    def schedule(self, state: State) -> None:
        """Refill the pool, choose the group of this round, and bring it to the front, aligned."""
        if state.memory is None:
            state.memory = Scheduler(state.batch_size, self.fallback, self.max_wait)
        fresh = self.replace(state)
        if fresh:
            # A new row starts at slot 0, wherever the row before it lay.
            starts = list(state.layout.starts[: len(state.batch.live)])
            for row in fresh:
                starts[row] = 0
            state.layout.set_starts(starts)
            self.read_prompts(state, fresh)
        lengths = self.group_lengths(state)
        # `passed_over` is how it was before this choice, which is what the choice went by.
        state.passed_over = state.memory.update(lengths)
        group, decision = state.memory.choose(lengths)
        state.decision = self.decisions.index(decision)
        # A round runs over the first rows. They must be in place before they are aligned.
        bring_to_front(state, group)
        self.align(state)

    def read_prompts(self, state: State, fresh: Sequence[int]) -> None:
        """Prefill the rows that have just entered the pool."""
        prefill(state, fresh)

    def group_lengths(self, state: State) -> dict[int, int]:
        """Return the length by which each request of the pool is grouped, by request index."""
        return {row.request.index: row.length for row in state.batch.live}

    def align(self, state: State, fresh: Collection[int] = ()) -> None:
        """End all rows of the group in one column."""
        end_at(state, _common_end(state), range(len(state.batch)), fresh)

    def synchronise(self, state: State) -> None:
        """Do nothing: a row stays where it is until a group needs it elsewhere."""


def _common_end(state: State) -> int:
    """Return the column where the group is to end."""
    rows = state.batch.rows
    longest = max(row.length for row in rows)
    room = state.caches["target"].slots - state.max_columns
    starts = state.layout.starts
    ends = Counter(start + row.length for row, start in zip(rows, starts, strict=False))
    end, rows_there = ends.most_common(1)[0]
    # Where half of the group ends already, few rows move. It must not lie so far left that the
    # longest row would start below slot 0, nor so far right that the drafts would leave the slab.
    # Otherwise as far left as the longest row allows.
    if 2 * rows_there >= len(rows) and longest <= end <= room:
        return end
    return longest


def bring_to_front(state: State, group: Sequence[int]) -> None:
    """Move the requests `group` to the first rows and make them the batch.

    Only rows that are not there yet trade places.
    """
    order = list(range(len(state.batch.live)))
    row_of = {row.request.index: i for i, row in enumerate(state.batch.live)}
    chosen = {row_of[request] for request in group}
    # Rows of the group that are in front already stay where they are, whatever their order: every
    # exchange moves two rows' K/V.
    places = [row for row in range(len(group)) if row not in chosen]
    outside = sorted(row for row in chosen if row >= len(group))
    for place, row in zip(places, outside, strict=True):
        order[place], order[row] = row, place
    state.take(order)
    state.batch.active = len(group)
