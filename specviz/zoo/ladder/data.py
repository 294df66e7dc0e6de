"""What the drafts of the ladder read: the target's own greedy texts, and the library's sources.

All drafts read the same windows in the same order, so a mark is a number of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from specviz.engine.heads.settings import LAST
from specviz.engine.models.pair import Pair
from specviz.zoo.distil import continuations as written_by
from specviz.zoo.heads.features import SHARD_WINDOWS, StoredFeatures, keep_features
from specviz.zoo.heads.mix import mix_windows
from specviz.zoo.heads.pipeline import library_of
from specviz.zoo.ladder.rungs import LENGTH, ROWS, STEP_TOKENS

SHARES = {"greedy": 0.5, "corpus": 0.5}
SEED = 1

Batch = tuple[Tensor, Tensor]  # tokens (b, T), and the target's last features of them (b, T, F)


def draft_windows(pair: Pair, count: int, folder: Path, *, progress: bool = True) -> np.ndarray:
    """Return the windows (n, LENGTH) in the order of reading.

    count: documents that the target writes; they are kept in `folder`.
    """
    library, blocks = library_of(pair)
    written = written_by(pair, blocks, count, folder, progress=progress)
    windows, _ = mix_windows({"greedy": written, "corpus": library}, LENGTH, shares=SHARES)
    return windows


@dataclass(frozen=True)
class WindowFeatures:
    """The first windows with the target's features of them.

    Attributes:
        features: of the windows that are needed.
        total: windows of an epoch.
    """

    features: StoredFeatures
    total: int

    def batches(self, steps: int, start: int) -> Iterator[tuple[int, Batch, int]]:
        """Yield (step, batch, tokens in it) from step `start` to `steps`.

        The first epoch takes the windows as they come. Each further one has its own order.
        """
        per_epoch = self.total // ROWS
        for step in range(start, steps):
            epoch, index = divmod(step, per_epoch)
            order = np.arange(self.total)
            if epoch:
                order = np.random.default_rng([SEED, epoch]).permutation(self.total)
            batch = self.features.batch(order[index * ROWS : (index + 1) * ROWS], (LAST,))
            yield step, batch, batch[0].numel()


def keep_reading(
    pair: Pair, windows: np.ndarray, steps: int, folder: Path, *, progress: bool = True
) -> WindowFeatures:
    """Compute the features that so many steps need and keep them in `folder`."""
    needed = -(-steps * STEP_TOKENS // (LENGTH * SHARD_WINDOWS)) * SHARD_WINDOWS
    read = windows[: min(needed, len(windows))]
    return WindowFeatures(
        keep_features(pair.target, read, (LAST,), folder, progress=progress), len(windows)
    )
