"""Who decodes next, from a pool: plain integers, O(W) a round for a pool of W. Knows no model, tensor or cache.

A round takes B sequences of equal length if there are so many; otherwise what `fallback` says. Where there is a choice, those go first
that came first, so that a batch changes as little as it must.
"""

from collections.abc import Iterable, Mapping

FALLBACKS = ("realign", "partial", "wait")
DECISIONS = ("grouped", "realigned", "partial", "overdue")


class Scheduler:
    """Chooses `batch_size` of the pool's sequences a round; see `ExSpec` for the fallbacks."""

    def __init__(self, batch_size: int, fallback: str, max_wait: int) -> None:
        self.batch_size, self.fallback, self.max_wait = batch_size, fallback, max_wait
        self._came: dict[int, None] = {}  # the pool in order of arrival
        self._waited: dict[
            int, int
        ] = {}  # rounds passed over, in the order in which they were last served: longest first

    def update(self, pool: Iterable[int]) -> Mapping[int, int]:
        """Let sequences that left the pool go and new ones queue up last; returns how many rounds each has been passed over."""
        present = dict.fromkeys(pool)
        self._came = {sequence: None for sequence in self._came if sequence in present} | present
        self._waited = {
            sequence: waited for sequence, waited in self._waited.items() if sequence in present
        }
        self._waited |= {sequence: 0 for sequence in present if sequence not in self._waited}
        return dict(self._waited)

    def choose(self, lengths: Mapping[int, int]) -> tuple[list[int], str]:
        """This round's sequences and how they were found, one of DECISIONS; `lengths` are those of the pool, by sequence."""
        size = min(self.batch_size, len(lengths))
        groups: dict[
            int, list[int]
        ] = {}  # by length, each in order of arrival; the groups in that of their first
        for sequence in self._came:
            groups.setdefault(lengths[sequence], []).append(sequence)
        chosen, decision = self._choose(groups, size)
        served = set(chosen)
        passed = {
            sequence: waited + 1
            for sequence, waited in self._waited.items()
            if sequence not in served
        }
        self._waited = passed | dict.fromkeys(chosen, 0)
        return chosen, decision

    def _choose(self, groups: Mapping[int, list[int]], size: int) -> tuple[list[int], str]:
        if self.fallback == "wait" and any(
            waited >= self.max_wait for waited in self._waited.values()
        ):
            return _first(self._waited, size), "overdue"
        full = next((group for group in groups.values() if len(group) >= size), None)
        if full is not None:
            return full[:size], "grouped"
        if self.fallback == "realign":
            return _first(self._came, size), "realigned"
        return max(groups.values(), key=len), "partial"


def _first(sequences: Iterable[int], size: int) -> list[int]:
    return [sequence for sequence, _ in zip(sequences, range(size), strict=False)]
