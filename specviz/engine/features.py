"""The target's hidden states of committed tokens, kept for drafters that read them.

Contract: by row and index, like the tokens. Entry j of a draft head reads the feature of token
j - 1, so those of all committed tokens but the pending one are known. Not known here: which states
of the target these are, and what a drafter makes of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Select = Callable[[Sequence[Tensor]], Tensor]


@dataclass(frozen=True)
class Features:
    """What a drafter wants to know of the target's hidden states.

    Attributes:
        width: F.
        select: returns (b, q, F) from the hidden states as transformers returns them: the
            embedding, the output of each layer but the last, and that of the final norm, each
            (b, q, D).
    """

    width: int
    select: Select


class FeatureStore:
    """The features of each row's tokens: R rows, S tokens.

    Attributes:
        values: (R, S, F); undefined from a row's pending token on.
        select: as in `Features`.
    """

    def __init__(
        self, wanted: Features, rows: int, size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.select = wanted.select
        self.values = torch.zeros(rows, size, wanted.width, dtype=dtype, device=device)

    def write(self, rows: Tensor, indices: Tensor, features: Tensor) -> None:
        """Keep features (b, q, F) of the tokens at indices (b, q) of rows (b,)."""
        self.values[rows[:, None], indices] = features.to(self.values.dtype)

    def before(self, rows: Tensor, indices: Tensor, lag: int = 1) -> Tensor:
        """Return the features (b, q, F) of the tokens `lag` before indices (b, q).

        They are 0 before index 0.
        """
        found = self.values[rows[:, None], (indices - lag).clamp(min=0)]
        return found.masked_fill((indices < lag)[..., None], 0)

    def take(self, order: Tensor) -> None:
        """Let row order[k] become row k."""
        # Indexing copies the sources before anything is written.
        self.values[: len(order)] = self.values[order]

    def zero_nonfinite(self, rows: Sequence[int]) -> None:
        """Replace non-finite values in these rows by zeros."""
        for row in rows:
            self.values[row].nan_to_num_(0.0, 0.0, 0.0)
