"""What every strategy shares: who leaves, who enters, and the two places where rows may be brought back into step."""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from specviz.engine.state import State


@dataclass(frozen=True)
class Strategy:
    """How KV state, positions and masks are kept in step after a ragged acceptance.

    A strategy of your own subclasses this, sets `name` and `description`, and overrides `align`, or `schedule` and `synchronise` whole.

    Attributes:
        refill: whether a finished row leaves at once and the next prompt takes its place. Without it a batch is static: finished
            rows stay in the forwards, gaining nothing, until the whole batch has finished.
        name, description: what it is called in records and messages.
        valid: whether it promises token identity with autoregressive decoding; no promise unless it says so.
        drafts: whether rows draft at all; False makes every round a plain decoding step.
    """

    refill: bool = True

    name: ClassVar[str] = ""
    description: ClassVar[str] = ""
    valid: ClassVar[bool] = False
    drafts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.refill, bool):
            raise ValueError(f"refill={self.refill!r} is no bool; pass True, or False for static batches")

    @property
    def options(self) -> dict[str, Any]:
        """The options that this strategy was made with, by name."""
        return asdict(self)

    def schedule(self, state: State) -> None:
        """Let finished rows leave, let waiting prompts enter, align all rows, and prefill the new ones."""
        state.admitted = []
        finished = [i for i, row in enumerate(state.batch.rows) if row.finished]
        if not self.refill and len(finished) < len(state.batch):
            return
        free = [*finished, *range(len(state.batch), state.batch.capacity)]
        entering = [state.waiting.popleft() for _ in free[: len(state.waiting)]]
        fresh, left_over = free[: len(entering)], free[len(entering) :]
        state.batch.place(entering, fresh)
        for row in sorted((row for row in left_over if row in finished), reverse=True):
            state.drop_row(row)
        if fresh:
            state.admitted = fresh
            self.align(state, fresh)
            state.prefill(fresh)

    def synchronise(self, state: State) -> None:
        """Bring the rows back into step after an acceptance."""
        self.align(state)

    def align(self, state: State, fresh: Collection[int] = ()) -> None:
        """Give every row its start and move the K/V that lies elsewhere; rows in `fresh` have none yet."""
