"""What a sentence about one round needs: who entered and left, what was fed, moved, waited for.

Contract: plain values, filled in by `scenes`. Not known here: records, words.
"""

from dataclasses import dataclass
from functools import cached_property

from specviz.record.schema import MODELS, PHASES

SCHEDULE, DRAFT, VERIFY, ACCEPT, SYNCHRONISE = range(len(PHASES))
TARGET = MODELS.index("target")
DRAFTER = MODELS.index("draft")


@dataclass(frozen=True)
class BatchRow:
    """One row of the batch in a round: columns of the record's table `rows`."""

    request: int
    length: int
    drafted: int
    accepted: int
    gained: int
    finished: bool
    discarded: int
    start: int
    start_after: int
    pending: int
    pending_after: int


@dataclass(frozen=True)
class PoolEntry:
    """One sequence of the pool. waited: rounds in which it was passed over before this one."""

    request: int
    length: int
    waited: int
    chosen: bool


@dataclass(frozen=True)
class Motion:
    """What one phase copied inside the caches.

    shifts: by row of the batch, by how many slots to the right the target's K/V of the row moved.
    """

    size_bytes: int
    shifts: dict[int, int]


@dataclass(frozen=True)
class Scene:
    """One round. Rows are numbers in the batch.

    Attributes:
        number, slots, decision: as in the record's table `rounds`.
        ms: time of each phase.
        rows: the rows of the batch; before, after: those of the previous and the next round.
        new: requests that entered in this round, into the batch or the pool.
        prefilled: by request, how many of its tokens were fed in this round's schedule phase.
        pool: its sequences; empty without a pool.
        forwards: their number, by phase and model.
        motion: by phase; only phases that copied something.
        draft_probabilities: by row; NaN where the drafter gave none.
        next_positions: by row, the position id that its last token gets after this round.
        ended_with_eos: by row, whether its last token is EOS.
        judge: whether to report that a position differs from its token's index, and to call a
            token the target's own.
        not_targets_choice: by row, whether its last token is known not to be the target's choice.
    """

    number: int
    slots: int
    decision: str
    ms: list[float]
    rows: list[BatchRow]
    before: list[BatchRow]
    after: list[BatchRow]
    new: frozenset[int]
    prefilled: dict[int, int]
    pool: list[PoolEntry]
    forwards: dict[tuple[int, int], int]
    motion: dict[int, Motion]
    draft_probabilities: list[list[float]]
    next_positions: list[int]
    ended_with_eos: list[bool]
    judge: bool
    not_targets_choice: list[bool]

    @cached_property
    def continuing(self) -> list[int]:
        """The rows whose requests go on after this round."""
        later = {row.request for row in self.after}
        return [
            number
            for number, row in enumerate(self.rows)
            if row.request in later or not row.finished
        ]

    @cached_property
    def ends(self) -> dict[int, int]:
        """By continuing row, the slot of its last token after the acceptance, before any move."""
        return {
            number: self.rows[number].pending + self.rows[number].gained
            for number in self.continuing
        }

    @cached_property
    def began_aligned(self) -> bool:
        """Whether the continuing rows ended in one column when the round began."""
        return len({self.rows[number].pending for number in self.continuing}) == 1

    @property
    def bonus_is_targets(self) -> bool:
        """Whether, in all rows, the token after the accepted drafts may be called the target's."""
        return self.judge and not any(self.not_targets_choice)

    def resume_slot(self, number: int) -> int | None:
        """The slot of a row's last token where it lies past rejected drafts although nothing moved.

        None where the last token goes right behind the row's other tokens.
        """
        row = self.rows[number]
        moved = row.start_after != row.start
        if moved or row.pending_after == self.ends[number]:
            return None
        return row.pending_after

    def holes(self, number: int) -> int:
        """Slots between a row's first and last token without a token of it, after synchronising."""
        row = self.rows[number]
        slots = row.pending_after - row.start_after + 1
        return slots - row.length - row.gained

    def next_index(self, number: int) -> int:
        """The index of the row's last token after this round."""
        return self.rows[number].length + self.rows[number].gained - 1

    def drift(self, number: int) -> int:
        """By how much the next token's position will exceed its index; 0 if not to be reported."""
        return self.next_positions[number] - self.next_index(number) if self.judge else 0
