"""EQSPEC: rows aligned on the right, realigned after every ragged acceptance (arXiv 2510.22876, section on EQSPEC).

All rows end in one column, so that every forward writes one rectangle. After a round, row i has gained g_i tokens; the longest row
defines the new length L, each row's padding becomes L - n_i, and its K/V moves there in the target's and the draft's cache.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

from specviz.engine.kv.moves import Move
from specviz.engine.state import State
from specviz.engine.strategies.base import Strategy
from specviz.util.validate import require_bool


@dataclass(frozen=True)
class EqSpec(Strategy):
    """Unpad, append, repad: correct, at the price of moving K/V. `refill=False` is the paper's static batch.

    `as_published` sets what the paper's public code does besides, whatever was given for it: refill=False, bonus=False,
    shrink_to_budget=True, and, of a drafter chosen by name, keep_cache=False. The text is the same, and comes more slowly.
    """

    as_published: bool = False

    name: ClassVar[str] = "eqspec"
    valid: ClassVar[bool] = True
    capturable: ClassVar[bool] = True
    description: ClassVar[str] = (
        "right-aligned rectangle, K/V realigned after every ragged acceptance (the paper's EQSPEC)"
    )
    cost: ClassVar[str] = "moves the K/V of every row but the longest, every round"

    def __post_init__(self) -> None:
        require_bool("as_published", self.as_published)
        if self.as_published:
            if self.name != EqSpec.name:
                raise ValueError(
                    f"as_published=True is no option of {self.name!r}, which was not published; choose eqspec or exspec"
                )
            for name, value in {"refill": False, "bonus": False, "shrink_to_budget": True}.items():
                object.__setattr__(self, name, value)
        super().__post_init__()

    @property
    def drafter_options(self) -> dict[str, dict[str, Any]]:
        return {"model": {"keep_cache": False}} if self.as_published else {}

    def align(self, state: State, fresh: Collection[int] = ()) -> None:
        """Let every row that stays end in the column of the longest; a row that is about to leave is not moved."""
        rows = state.batch.rows
        staying = [i for i, row in enumerate(rows) if not (row.finished and self.refill)]
        end_at(state, max((rows[i].length for i in staying), default=0), staying, fresh)


def end_at(state: State, end: int, rows: Collection[int], fresh: Collection[int] = ()) -> None:
    """Let `rows` end in one column: start = end - n, and move the K/V that lies elsewhere; rows in `fresh` have none yet."""
    starts, moves = list(state.layout.starts[: len(state.batch.live)]), []
    for i in rows:
        n = state.batch.live[i].length
        old, starts[i] = starts[i], end - n
        if starts[i] != old and i not in fresh and n > 1:
            moves.append(
                Move(i, old, i, starts[i], n - 1)
            )  # all K/V but the pending token's, which does not exist yet
    state.move(moves)
    state.layout.set_starts(starts)
