"""EQSPEC and EXSPEC with the habits of the paper's public code: eBay/spec_dec at 96e1d12.

Each habit costs time and changes no text. Each is an option, so that `losses.py` can measure it
alone, and `as_published=True` sets all habits of a strategy. They are:

- refill=False (EQSPEC): a finished row stays in the batch until the whole batch has finished.
- bonus=False: after a full acceptance the target's next token, verified and right, is dropped.
  Such a round gains K tokens instead of K + 1, and K = 1 gains no more than plain decoding.
- shrink_to_budget=True: the whole batch drafts no more tokens than the row with the smallest
  remaining budget may still write.
- `Levers(keep_draft=False)`: the draft reads every row's whole text in every round.
- drop_cache=True (EXSPEC): a prompt is read when its row is first chosen. A batch that has to be
  realigned and contains such a row loses all its K/V and reads all its rows again.
- group_by="padded" (EXSPEC): groups are rows that end in one column as they lie, padding
  included, instead of rows of equal length.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import specviz as sv
from specviz.engine.prefill import prefill
from specviz.engine.state import State
from specviz.engine.strategies.base import Strategy
from specviz.engine.strategies.eqspec import EqSpec
from specviz.engine.strategies.exspec import ExSpec


@dataclass(frozen=True)
class Habits(Strategy):
    """The habits that both published strategies share.

    Attributes:
        as_published: whether to set every option in `published`, whatever was given for it, and
            to keep no K/V of the draft.
        published: the options as the public code has them.
    """

    bonus: bool = True
    shrink_to_budget: bool = False
    as_published: bool = False

    published: ClassVar[Mapping[str, object]] = {}

    def __post_init__(self) -> None:
        if self.as_published:
            for name, value in self.published.items():
                object.__setattr__(self, name, value)
        super().__post_init__()

    @property
    def keeps_draft(self) -> bool:
        return not self.as_published

    def shorten(self, state: State, num_draft_tokens: int) -> int:
        if not self.shrink_to_budget:
            return num_draft_tokens
        rows = [row for row in state.batch.rows if not row.finished]
        return min([num_draft_tokens, *(row.request.budget - len(row.output) for row in rows)])

    def max_gain(self, num_draft_tokens: int) -> int:
        # With K = 0 there is no bonus to drop: the target's token is all there is.
        return num_draft_tokens + 1 if self.bonus else max(num_draft_tokens, 1)


@dataclass(frozen=True)
class EqSpecWithHabits(Habits, EqSpec):
    """`EqSpec`; without a habit it is that itself."""

    capturable: ClassVar[bool] = True
    published: ClassVar[Mapping[str, object]] = {
        "refill": False,
        "bonus": False,
        "shrink_to_budget": True,
    }


@dataclass(frozen=True)
class ExSpecWithHabits(Habits, ExSpec):
    """`ExSpec`; without a habit it is that itself."""

    drop_cache: bool = False
    group_by: str = "length"

    capturable: ClassVar[bool] = True
    published: ClassVar[Mapping[str, object]] = {
        "bonus": False,
        "shrink_to_budget": True,
        "drop_cache": True,
        "group_by": "padded",
    }

    def slots(self, longest: int, budget: int, max_draft_tokens: int) -> int:
        slots = super().slots(longest, budget, max_draft_tokens)
        # A row that keeps its padding may end behind the longest one by as much as it writes.
        return slots + budget if self.group_by == "padded" else slots

    def read_prompts(self, state: State, fresh: Sequence[int]) -> None:
        if not self.drop_cache:
            super().read_prompts(state, fresh)

    def group_lengths(self, state: State) -> dict[int, int]:
        lengths = super().group_lengths(state)
        if self.group_by == "padded":
            for row, padding in zip(state.batch.live, state.layout.starts, strict=False):
                lengths[row.request.index] += padding
        return lengths

    def align(self, state: State, fresh: Collection[int] = ()) -> None:
        unread = self._unread(state) if self.drop_cache else []
        # Unread rows only get their starts: what lies in their slots is not their own K/V.
        super().align(state, unread)
        if unread:
            prefill(state, unread)

    def _unread(self, state: State) -> list[int]:
        """Return the rows to read: the new ones, and if the group is realigned, all with them."""
        new = []
        for i, row in enumerate(state.batch.rows):
            # `written` is from before memory ran out: this state has not read it either.
            if len(row.output) == len(row.request.written):
                new.append(i)
        realigned = self.decisions[state.decision] == "realigned"
        return list(range(len(state.batch))) if new and realigned else new


@dataclass(frozen=True)
class EqSpecAsPublished(EqSpecWithHabits):
    """EQSPEC with all its habits, under the name that tables of speeds have for it."""

    as_published: bool = True
    refill: bool = False
    bonus: bool = False
    shrink_to_budget: bool = True

    name: ClassVar[str] = "eqspec:as_published=true"
    capturable: ClassVar[bool] = True


@dataclass(frozen=True)
class ExSpecAsPublished(ExSpecWithHabits):
    """EXSPEC, likewise."""

    as_published: bool = True
    bonus: bool = False
    shrink_to_budget: bool = True
    drop_cache: bool = True
    group_by: str = "padded"

    name: ClassVar[str] = "exspec:as_published=true"
    capturable: ClassVar[bool] = True


def strategy(name: str, **options: Any) -> Strategy:
    """Return "eqspec" or "exspec" with habits, and any other strategy as it is registered."""
    kinds: dict[str, type[Habits]] = {"eqspec": EqSpecWithHabits, "exspec": ExSpecWithHabits}
    return kinds[name](**options) if name in kinds else sv.strategy(name, **options)
