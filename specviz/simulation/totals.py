"""What the rounds of each lane of a fleet add up to."""

import numpy as np

from specviz.record.schema import PHASES


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
        self.realigned_slots = np.zeros(lanes, np.int64)
        self.compacted_slots = np.zeros(lanes, np.int64)
        self.longest_wait_rounds = np.zeros(lanes, np.int64)
