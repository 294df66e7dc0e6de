"""Fault injection: one invariant of a valid strategy broken on purpose, and nothing else."""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

FAULTS = ("positions", "mask", "kv", "bonus")


@dataclass(frozen=True)
class Fault:
    """What breaks, in which rows of the batch (None: all), from which round on.

    "positions": position ids run ahead, by one more each round (as if a hole had been counted). "mask": every query also sees the slot
    behind its own. "kv": after each round the row's cached K/V slips one slot to the right. "bonus": after a rejection the draft's
    token is kept instead of the target's.
    """

    kind: str
    rows: Collection[int] | None
    from_round: int

    def active(self, kind: str, number: int) -> bool:
        """Whether this is that kind of fault and round `number` is one that it breaks."""
        return kind == self.kind and number >= self.from_round

    def includes(self, row: int) -> bool:
        """Whether the row of the batch is one that it breaks."""
        return self.rows is None or row in self.rows

    def positions(self, number: int, rows: Tensor, positions: Tensor) -> Tensor:
        """The position ids (b, q) of `rows` (b,) as the model is given them."""
        drift = (
            number - self.from_round + 1
        )  # a constant shift would not change a model with relative positions
        return positions + drift * self._hit("positions", number, rows)[:, None]

    def visible(self, number: int, rows: Tensor, slots: Tensor, visible: Tensor) -> Tensor:
        """The mask (b, q, w), for queries at `slots` (b, q)."""
        leak = torch.arange(visible.shape[-1], device=visible.device) == slots[:, :, None] + 1
        return visible | (leak & self._hit("mask", number, rows)[:, None, None])

    def bonus(self, number: int, drafts: Tensor, accepted: Tensor, emitted: Tensor) -> Tensor:
        """The emitted tokens (b, K+1), with the draft's own token where the target rejected it."""
        wrong = torch.cat([drafts, emitted[:, -1:]], 1)
        here = torch.arange(emitted.shape[1], device=emitted.device) == accepted[:, None]
        hit = self._hit("bonus", number, torch.arange(len(drafts), device=drafts.device))
        return torch.where(here & hit[:, None], wrong, emitted)

    def _hit(self, kind: str, number: int, rows: Tensor) -> Tensor:
        if not self.active(kind, number):
            return torch.zeros_like(rows, dtype=torch.bool)
        if self.rows is None:
            return torch.ones_like(rows, dtype=torch.bool)
        return torch.isin(rows, torch.tensor(list(self.rows), dtype=torch.long, device=rows.device))
