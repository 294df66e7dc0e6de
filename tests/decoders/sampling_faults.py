"""Faults of speculative sampling: the well-known ones, and those that were published as issues."""

import torch

from .base import Tokens
from .samplers import LargestScores, TopK
from .sampling import Sampling


class Swapped(Sampling, rule="acceptance", affects="text"):
    """Drafts are accepted with q / p instead of p / q."""

    def accepts(self, coin: torch.Tensor, p: torch.Tensor, q: torch.Tensor) -> bool:
        return super().accepts(coin, q, p)


class NotClamped(Sampling, rule="bonus", affects="text"):
    """After a rejection, the next token is drawn from |p - q|."""

    def residual(self, p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        return (p - q).abs()


class NotScaled(Sampling, rule="bonus", affects="text"):
    """The residual is not scaled to 1, so that the search in its sums often ends at the last."""

    def draw(self, weights: torch.Tensor) -> int:
        coin = torch.rand((), generator=self.generator)
        found = torch.searchsorted(weights.cumsum(0), coin, right=True)
        return int(found.clamp(max=len(weights) - 1))


class BonusTooEarly(Sampling, rule="bonus", affects="text"):
    """Behind all drafts, the token is drawn from p one place too early."""

    def judge(self, drafts: torch.Tensor, q: torch.Tensor, p: torch.Tensor) -> Tokens:
        return super().judge(drafts, q, torch.cat([p[:-1], p[-2:-1]]))


class OneCoin(Sampling, rule="acceptance", affects="text", min_batch=2):
    """One uniform number a place judges the drafts of all rows: each row is right by itself."""

    def run(self, prompts: list[Tokens]) -> list[Tokens]:
        self.coins = torch.rand(self.K, generator=self.generator)
        return super().run(prompts)

    def coin(self, place: int) -> torch.Tensor:
        return self.coins[place]

    def finish(self, output: Tokens, new: Tokens) -> bool:
        self.coins = torch.rand(self.K, generator=self.generator)
        return super().finish(output, new)


class SeedIgnored(Sampling, rule="acceptance", affects="text"):
    """Every call draws with the same seed."""

    def run(self, prompts: list[Tokens]) -> list[Tokens]:
        self.generator.manual_seed(0)
        return super().run(prompts)


class ReportsOtherQ(TopK, rule="acceptance", affects="text"):
    """Drafts are drawn after top-k, and judged by q before it (transformers 47932)."""

    def judged_by(self, logits: torch.Tensor) -> torch.Tensor:
        return Sampling.warp(self, logits)


class BeamJudgedByQ(Sampling, rule="acceptance", affects="text"):
    """The likeliest chain of a beam search is judged as if drawn (ml-recurrent-drafter 6)."""

    width = 2

    def draw_drafts(self) -> tuple[torch.Tensor, torch.Tensor]:
        beams = [[(0.0, list[int](), list[torch.Tensor]())] for _ in self.rows]
        for _ in range(self.K):
            longer = [
                row + chain
                for row, beam in zip(self.rows, beams, strict=True)
                for _, chain, _ in beam
            ]
            q = iter(self.warp(self.logits(self.draft, longer, 1)[:, -1]))
            for i, beam in enumerate(beams):
                grown = []
                for score, chain, before in beam:
                    weights = next(q)
                    for token, chance in enumerate(weights.log().tolist()):
                        grown.append((score + chance, [*chain, token], [*before, weights]))
                beams[i] = sorted(grown, key=lambda each: -each[0])[: self.width]
        best = [beam[0] for beam in beams]
        return torch.tensor([chain for _, chain, _ in best]), torch.stack(
            [torch.stack(q) for _, _, q in best]
        )


class FirstUnverified(Sampling, rule="acceptance", affects="text"):
    """The first draft of a round is emitted whatever the target says (lattice 243)."""

    def judge(self, drafts: torch.Tensor, q: torch.Tensor, p: torch.Tensor) -> Tokens:
        return [int(drafts[0]), *super().judge(drafts[1:], q[1:], p[1:])]


class DraftsInBfloat16(Sampling, rule="acceptance", affects="text"):
    """Drafts are drawn from a softmax in bfloat16, and judged by one in float32 (DeepSpec 31)."""

    def drawn_from(self, logits: torch.Tensor) -> torch.Tensor:
        return self.warp(logits.bfloat16()).float()


class OwnScores(LargestScores, rule="acceptance", affects="text", min_batch=2):
    """A draft's score has its own q, so that likely drafts are verified (TETRIS, 2502.15197)."""

    def scores(self, drafts: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        return q.gather(2, drafts[:, :, None])[:, :, 0].log().cumsum(1)
