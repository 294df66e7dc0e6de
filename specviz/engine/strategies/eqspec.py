"""EQSPEC: rows aligned on the right, realigned after every ragged acceptance (arXiv 2510.22876, section on EQSPEC).

All rows end in one column, so that every forward writes one rectangle. After a round, row i has gained g_i tokens; the longest row
defines the new length L, each row's padding becomes L - n_i, and its K/V moves there in the target's and the draft's cache.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from specviz.engine.cache import Move
from specviz.engine.state import State
from specviz.engine.strategies.base import Strategy


@dataclass(frozen=True)
class EqSpec(Strategy):
    """Unpad, append, repad: correct, at the price of moving K/V. `refill=False` is the paper's static batch."""

    name: ClassVar[str] = "eqspec"
    valid: ClassVar[bool] = True
    description: ClassVar[str] = "right-aligned rectangle, K/V realigned after every ragged acceptance (the paper's EQSPEC)"

    def align(self, state: State, fresh: Collection[int] = ()) -> None:
        """Let every row that stays end in the column of the longest; a row that is about to leave is not moved."""
        starts = list(state.layout.starts[: len(state.batch)])
        staying = [i for i, row in enumerate(state.batch.rows) if not (row.finished and self.refill)]
        longest = max((state.batch.rows[i].length for i in staying), default=0)
        moves = []
        for i in staying:
            n, old, new = state.batch.rows[i].length, starts[i], longest - state.batch.rows[i].length
            if new != old and i not in fresh and n > 1:
                moves.append(Move(i, old, i, new, n - 1))  # all K/V but the pending token's, which does not exist yet
            starts[i] = new
        state.move(moves)
        state.layout.set_starts(starts)
