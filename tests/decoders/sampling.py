"""Speculative sampling at a temperature: drafts are drawn from q and judged by p / q.

A batch without a cache. Random numbers come from one generator, row by row.
"""

from collections.abc import Collection

import torch
from transformers import PreTrainedModel

from .base import fault
from .no_cache import NoCache


class Sampling(NoCache):
    """Right: the outputs have the target's distribution at this temperature."""

    def __init__(
        self,
        target: PreTrainedModel,
        draft: PreTrainedModel,
        K: int,
        max_new_tokens: int,
        eos_token_ids: Collection[int],
        *,
        temperature: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__(target, draft, K, max_new_tokens, eos_token_ids)
        self.temperature = temperature
        self.generator = torch.Generator().manual_seed(seed)

    def run(self, prompts: list[list[int]]) -> list[list[int]]:
        rows = [list(prompt) for prompt in prompts]
        outputs: list[list[int]] = [[] for _ in prompts]
        live = list(range(len(prompts)))
        while live:
            known = [rows[request] for request in live]
            drafts, q = self.draw_drafts(known)
            longer = [row + new for row, new in zip(known, drafts.tolist(), strict=True)]
            p = self.warp(self.logits(self.target, longer, self.K + 1))  # (rows, K+1, V)
            new = [self.judge(*row) for row in zip(drafts, q, p, strict=True)]
            for request, tokens in zip(live, new, strict=True):
                rows[request] += tokens
            live = [
                request
                for request, tokens in zip(live, new, strict=True)
                if not self.finish(outputs[request], tokens)
            ]
        return outputs

    def warp(self, logits: torch.Tensor) -> torch.Tensor:
        return (logits / self.temperature).softmax(-1)

    def draw_drafts(self, rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return drafts, (rows, K), and q as it judges them, (rows, K, V)."""
        drafts: list[list[int]] = [[] for _ in rows]
        distributions = []
        for _ in range(self.K):
            longer = [row + new for row, new in zip(rows, drafts, strict=True)]
            logits = self.logits(self.draft, longer, 1)[:, -1]
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

    def judge(self, drafts: torch.Tensor, q: torch.Tensor, p: torch.Tensor) -> list[int]:
        """Return the accepted drafts of a row, and one token from the residual or from p."""
        new: list[int] = []
        for index, token in enumerate(drafts.tolist()):
            coin = torch.rand((), generator=self.generator)
            if coin * q[index, token] >= p[index, token]:
                return [*new, self.draw(self.residual(p[index], q[index]))]
            new.append(token)
        return [*new, self.draw(p[-1])]

    def residual(self, p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        return (p - q).clamp(min=0)


@fault(rule="acceptance", affects="text")
class DrawsFromOtherQ(Sampling):
    """Drafts are drawn from a sharper distribution than the q that judges them.

    Breaks "acceptance"; the distribution of the text is wrong.
    """

    def drawn_from(self, logits: torch.Tensor) -> torch.Tensor:
        return (2 * logits / self.temperature).softmax(-1)


@fault(rule="bonus", affects="text")
class NoResidual(Sampling):
    """After a rejection, the next token is drawn from p, and not from what p has above q.

    Breaks "bonus"; the distribution of the text is wrong.
    """

    def residual(self, p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        return p
