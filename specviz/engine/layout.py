"""Which slot holds which token: one rule for the target's and the draft's slabs.

The token with index p in row i lies at slot start[i] + p. Rows that are aligned on the left have start 0; rows that are
aligned on the right have start = L - n_i, and the slots before it are padding. Masks and positions come from these numbers,
never from token ids. Knows neither models nor caches.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


class Layout:
    """Starts of R rows, on the device and mirrored on the host.

    Attributes:
        starts: host list, slot of each row's token 0.
        start: the same as an int64 tensor (R,).
    """

    def __init__(self, rows: int, device: torch.device) -> None:
        self.starts = [0] * rows
        self.start = torch.zeros(rows, dtype=torch.long, device=device)

    def set_starts(self, starts: Sequence[int]) -> None:
        """Take new starts for the first len(starts) rows."""
        if list(starts) != self.starts[: len(starts)]:
            self.starts[: len(starts)] = starts
            self.start[: len(starts)] = torch.tensor(starts).to(self.start.device, non_blocking=True)

    def slots(self, rows: Tensor, indices: Tensor) -> Tensor:
        """Slot (b, q) of the token indices (b, q) of `rows` (b,)."""
        return self.start[rows, None] + indices

    def positions(self, rows: Tensor, indices: Tensor) -> Tensor:
        """Position id (b, q) that the model is given: the token's index in its own row, whatever its slot."""
        return indices

    def visible(self, rows: Tensor, indices: Tensor, window: int) -> Tensor:
        """Which of the first `window` slots each query attends to, (b, q, window) bool: its row's tokens up to itself."""
        held = torch.arange(window, device=indices.device) - self.start[rows, None]  # (b, w): index of the token at each slot
        return (held[:, None] >= 0) & (held[:, None] <= indices[:, :, None])
