"""What the rounds of each lane of a fleet add up to."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from specviz.record.schema import PHASES, Array


@dataclass(frozen=True)
class Round:
    """One round of every lane, each attribute (L,)."""

    rows: Array
    slots: Array
    decision: Array
    gained_tokens: Array
    verified_tokens: Array
    realigned_slots: Array
    compacted_slots: Array


class Totals:
    """Sums over the rounds of each lane (L,); seconds (5, L) are those of each phase.

    longest_wait_rounds is the most rounds in a row for which a pool passed a row over.
    """

    def __init__(self, lanes: int) -> None:
        self.seconds = np.zeros((len(PHASES), lanes))
        self.rounds = np.zeros(lanes, np.int64)
        self.row_rounds = np.zeros(lanes, np.int64)
        self.full_rounds = np.zeros(lanes, np.int64)
        self.grouped_rounds = np.zeros(lanes, np.int64)
        self.finished = np.zeros(lanes, np.int64)
        self.gained_tokens = np.zeros(lanes, np.int64)
        self.verified_tokens = np.zeros(lanes, np.int64)
        self.realigned_slots = np.zeros(lanes, np.int64)
        self.compacted_slots = np.zeros(lanes, np.int64)
        self.longest_wait_rounds = np.zeros(lanes, np.int64)

    def add(self, active: Array, seconds: Array, this: Round, batch_size: int) -> None:
        """Add a round of the `active` lanes (L,), whose phases took `seconds` (5, L)."""
        self.seconds += seconds
        self.rounds += active
        self.row_rounds += this.rows
        self.full_rounds += active & (this.rows == batch_size)
        self.gained_tokens += this.gained_tokens
        self.verified_tokens += this.verified_tokens
        self.realigned_slots += this.realigned_slots
        self.compacted_slots += this.compacted_slots


class Series:
    """What every round of every lane was, column by column.

    Columns have room for more rounds than there are, and twice as much when it is used up: an array
    for each round would cost more time than the round.
    """

    def __init__(self) -> None:
        self._columns: dict[str, Array] = {}
        self._rounds = 0

    def add(self, active: Array, **columns: Array) -> None:
        """Add a round of the `active` lanes (L,); the columns have an entry for each lane (L,)."""
        begin = self._rounds
        self._rounds += int(active.sum())
        if not self._columns:
            self._columns = {name: np.zeros_like(values) for name, values in columns.items()}
        if self._rounds > len(self._columns["lane"]):
            for name, kept in self._columns.items():
                self._columns[name] = np.resize(kept, 2 * self._rounds)
        lanes = slice(None) if active.all() else active
        for name, values in columns.items():
            self._columns[name][begin : self._rounds] = values[lanes]

    def table(self) -> pd.DataFrame:
        """Return one entry a round, by start."""
        table = pd.DataFrame({name: kept[: self._rounds] for name, kept in self._columns.items()})
        return table.sort_values(["start_s", "lane"], kind="stable", ignore_index=True)
