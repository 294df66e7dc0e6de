"""Speculative sampling at a temperature: drafts are drawn from q and judged by p / q.

A batch without a cache. Random numbers come from one generator, row by row.
"""

from typing import Any

import torch

from .base import Tokens
from .no_cache import NoCache


class Sampling(NoCache):
    """Right: the outputs have the target's distribution at this temperature."""

    def __init__(self, *args: Any, temperature: float = 1.0, seed: int = 0) -> None:
        super().__init__(*args)
        self.temperature = temperature
        self.generator = torch.Generator().manual_seed(seed)

    def round(self) -> list[Tokens]:
        drafts, q = self.draw_drafts()
        p = self.warp(self.logits(self.target, self.longer(drafts.tolist()), self.K + 1))
        return [self.judge(*row) for row in zip(drafts, q, p, strict=True)]  # p is (rows, K+1, V)

    def warp(self, logits: torch.Tensor) -> torch.Tensor:
        return (logits / self.temperature).softmax(-1)

    def draw_drafts(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return drafts, (rows, K), and q as it judges them, (rows, K, V)."""
        drafts: list[Tokens] = [[] for _ in self.rows]
        distributions = []
        for _ in range(self.K):
            logits = self.logits(self.draft, self.longer(drafts), 1)[:, -1]
            distributions.append(self.judged_by(logits))
            for new, weights in zip(drafts, self.drawn_from(logits), strict=True):
                new.append(self.draw(weights))
        return torch.tensor(drafts), torch.stack(distributions, dim=1)

    def drawn_from(self, logits: torch.Tensor) -> torch.Tensor:
        return self.warp(logits)

    def judged_by(self, logits: torch.Tensor) -> torch.Tensor:
        return self.warp(logits)

    def draw(self, weights: torch.Tensor) -> int:
        return int(torch.multinomial(weights, 1, generator=self.generator))

    def coin(self, place: int) -> torch.Tensor:
        return torch.rand((), generator=self.generator)

    def judge(self, drafts: torch.Tensor, q: torch.Tensor, p: torch.Tensor) -> Tokens:
        """Return the accepted drafts of a row, and one token from the residual or from p."""
        new: Tokens = []
        for place, token in enumerate(drafts.tolist()):
            if not self.accepts(self.coin(place), p[place, token], q[place, token]):
                return [*new, self.draw(self.residual(p[place], q[place]))]
            new.append(token)
        return [*new, self.draw(p[-1])]

    def accepts(self, coin: torch.Tensor, p: torch.Tensor, q: torch.Tensor) -> bool:
        return bool(coin * q < p)

    def residual(self, p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        return (p - q).clamp(min=0)


class DrawsFromOtherQ(Sampling, rule="acceptance", affects="text"):
    """Drafts are drawn from a sharper distribution than the q that judges them."""

    def drawn_from(self, logits: torch.Tensor) -> torch.Tensor:
        return self.warp(2 * logits)


class NoResidual(Sampling, rule="bonus", affects="text"):
    """After a rejection, the next token is drawn from p, and not from what p has above q."""

    def residual(self, p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        return p
