"""Who decodes next, from a pool: plain integers, O(W) a round for a pool of W sequences.

A round takes B sequences of equal length if the pool has that many, and uses a fallback if not.
Where there is a choice, sequences that came first go first, so that a batch changes as little as
possible. This module knows no model, tensor or cache.
"""

from collections.abc import Iterable, Mapping
from itertools import islice


class Scheduler:
    """Chooses `batch_size` sequences of the pool a round; `ExSpec` describes the fallbacks."""

    def __init__(self, batch_size: int, fallback: str, max_wait: int) -> None:
        self.batch_size = batch_size
        self.fallback = fallback
        self.max_wait = max_wait
        # The pool in order of arrival.
        self._pool: list[int] = []
        # Rounds that each sequence was passed over. Those served longest ago come first, so the
        # longest waits do, too, and nothing has to be sorted.
        self._waited: dict[int, int] = {}

    def update(self, pool: Iterable[int]) -> dict[int, int]:
        """Remove sequences that left the pool and queue new ones last.

        Returns:
            How many rounds each sequence has been passed over.
        """
        present = dict.fromkeys(pool)
        self._pool = [sequence for sequence in self._pool if sequence in present]
        self._waited = {sequence: n for sequence, n in self._waited.items() if sequence in present}
        for sequence in present:
            if sequence not in self._waited:
                self._pool.append(sequence)
                self._waited[sequence] = 0
        return dict(self._waited)

    def choose(self, lengths: Mapping[int, int]) -> tuple[list[int], str]:
        """Return the sequences of this round and how they were found, one of `DECISIONS`.

        Args:
            lengths: length of each sequence of the pool, by sequence.
        """
        chosen, decision = self._choose(lengths)
        for sequence in self._waited:
            self._waited[sequence] += 1
        for sequence in chosen:
            # Sequences that are served move to the end of the order.
            del self._waited[sequence]
            self._waited[sequence] = 0
        return chosen, decision

    def _choose(self, lengths: Mapping[int, int]) -> tuple[list[int], str]:
        size = min(self.batch_size, len(lengths))
        # Before any grouping: a row whose length no other row shares might wait for ever.
        if self.fallback == "wait" and max(self._waited.values()) >= self.max_wait:
            return list(islice(self._waited, size)), "overdue"
        # In order of arrival, so that groups and the rows within them come oldest first.
        groups: dict[int, list[int]] = {}
        for sequence in self._pool:
            groups.setdefault(lengths[sequence], []).append(sequence)
        for group in groups.values():
            if len(group) >= size:
                return group[:size], "grouped"
        if self.fallback == "realign":
            return self._pool[:size], "realigned"
        return max(groups.values(), key=len), "partial"
