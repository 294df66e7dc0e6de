"""Times by size, from noisy measurements. Not known here: what is measured."""

from collections import deque
from statistics import median

KEPT_TIMES = 9  # measured times of one size of which the median is taken
OUTLIER = 1.5  # a time this many times as long as expected counts only if the next one is, too


class Curve:
    """Milliseconds by size: medians where measured, and straight lines between and below them.

    Beyond the largest size that was measured, the time is taken to be no longer than there.

    A larger size never takes less time. Where medians say so, that is chance, and they share their
    mean.

    Attributes:
        known: the time by size.
    """

    def __init__(self) -> None:
        self.known: dict[int, float] = {}
        self._kept: dict[int, deque[float]] = {}
        self._doubted: set[int] = set()

    def count(self, size: int) -> int:
        """Return how many measured times of that size count."""
        return len(self._kept.get(size, ()))

    def add(self, size: int, ms: float) -> None:
        """Add a measured time.

        The very first one serves only until there is another, because the first round of a run is
        slower than any other. One that is far too long counts only if the next one of its size is
        far too long as well.
        """
        if not self.known:
            self.known[size] = ms
            return
        expected = self(size)
        if expected is not None and ms > OUTLIER * expected and size not in self._doubted:
            self._doubted.add(size)
            return
        self._doubted.discard(size)
        self._kept.setdefault(size, deque(maxlen=KEPT_TIMES)).append(ms)
        self.known = self._rising()

    def _rising(self) -> dict[int, float]:
        """Return the medians, pooled where they fall.

        This is isotonic regression, weighted by the number of times behind each median.
        """
        pools: list[tuple[list[int], float, int]] = []
        for size in sorted(self._kept):
            pools.append(([size], median(self._kept[size]), self.count(size)))
            while len(pools) > 1 and pools[-2][1] > pools[-1][1]:
                sizes, ms, n = pools[-2]
                more_sizes, more_ms, m = pools[-1]
                mean = (n * ms + m * more_ms) / (n + m)
                pools[-2:] = [(sizes + more_sizes, mean, n + m)]
        return {size: ms for sizes, ms, _ in pools for size in sizes}

    def __call__(self, size: int) -> float | None:
        """Return the time at that size; None if nothing was measured at all."""
        known = self.known
        if not known or size in known:
            return known.get(size)
        below = max((at for at in known if at < size), default=None)
        above = min((at for at in known if at > size), default=None)
        if above is None:
            return known[max(known)]
        if below is None:
            return self._extrapolate(size, above)
        share = (size - below) / (above - below)
        return known[below] * (1 - share) + known[above] * share

    def _extrapolate(self, size: int, smallest: int) -> float:
        """Return the time below `smallest`, the smallest size that is known.

        The line goes through `smallest` and the known size nearest to twice as large.
        """
        known = self.known
        others = [at for at in known if at != smallest]
        slope = 0.0
        if others:
            far = min(others, key=lambda at: abs(at - 2 * smallest))
            slope = (known[far] - known[smallest]) / (far - smallest)
        # A steep line would reach 0, which no forward does.
        return max(known[smallest] - slope * (smallest - size), known[smallest] / 5)
