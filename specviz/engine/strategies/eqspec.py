"""EQSPEC: rows aligned on the right, realigned after every ragged acceptance (arXiv 2510.22876).

All rows end in one column, so every forward writes one rectangle. After a round row i has gained
g_i tokens. The longest row defines the new length L, the padding of row i becomes L - n_i, and
its K/V moves there in the target's and in the draft's cache.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from specviz.engine.kv.moves import Move
from specviz.engine.state import State
from specviz.engine.strategies.base import Strategy


@dataclass(frozen=True)
class EqSpec(Strategy):
    """Unpad, append, repad: correct, but it moves K/V. `refill=False`: the paper's static batch."""

    name: ClassVar[str] = "eqspec"
    valid: ClassVar[bool] = True
    right_aligned: ClassVar[bool] = True
    capturable: ClassVar[bool] = True
    description: ClassVar[str] = (
        "right-aligned rectangle, K/V realigned after every ragged acceptance (the paper's EQSPEC)"
    )
    cost: ClassVar[str] = "moves the K/V of every row but the longest, every round"

    def align(self, state: State, fresh: Collection[int] = ()) -> None:
        """End every row that stays in the column of the longest one; leave the others in place."""
        rows = state.batch.rows
        # With refill a finished row leaves before the next forward, so its K/V need not move. A
        # static batch goes on feeding it: it has to end where the others do.
        staying = [i for i, row in enumerate(rows) if not (row.finished and self.refill)]
        longest = max((rows[i].length for i in staying), default=0)
        end_at(state, longest, staying, fresh)


def end_at(state: State, end: int, rows: Collection[int], fresh: Collection[int] = ()) -> None:
    """End `rows` in the column before `end`: set start = end - n, and move the K/V to match.

    Rows in `fresh` have no K/V yet, so nothing of theirs moves.
    """
    starts = list(state.layout.starts[: len(state.batch.live)])
    moves = []
    for i in rows:
        n = state.batch.live[i].length
        old = starts[i]
        starts[i] = end - n
        # The K/V of the pending token does not exist yet: n - 1 slots move. Rejected drafts stay
        # behind; what lies in front of the new start is padding, which every mask hides.
        if starts[i] != old and i not in fresh and n > 1:
            moves.append(Move(i, old, i, starts[i], n - 1))
    # The draft's K/V moves in the same call: both models share one layout.
    state.move(moves)
    state.layout.set_starts(starts)
