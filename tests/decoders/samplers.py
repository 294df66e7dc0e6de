"""Right designs of speculative sampling.

They differ in how drafts are drawn, judged and selected.
"""

from typing import Any

import torch

from .base import Tokens
from .one_row import OneRow
from .sampling import Sampling


class CachedSampling(OneRow):
    """Right: one prompt after the other, with caches that are cropped after rejections."""

    def __init__(self, *args: Any, temperature: float = 1.0, seed: int = 0) -> None:
        super().__init__(*args)
        self.temperature = temperature
        self.generator = torch.Generator().manual_seed(seed)

    def propose(self, tokens: Tokens) -> Tokens:
        self.q: list[torch.Tensor] = []
        return super().propose(tokens)

    def choose(self, logits: torch.Tensor) -> int:
        self.q.append((logits / self.temperature).softmax(-1))
        return int(torch.multinomial(self.q[-1], 1, generator=self.generator))

    def verify(self, tokens: Tokens, drafts: Tokens) -> Tokens:
        """Return the new tokens, accepted drafts and one more."""
        p = (self.judged(tokens, drafts) / self.temperature).softmax(-1)
        weights = p[-1]
        new: Tokens = []
        for draft, of_draft, of_target in zip(drafts, self.q, p, strict=False):
            coin = torch.rand((), generator=self.generator)
            if coin * of_draft[draft] >= of_target[draft]:
                weights = (of_target - of_draft).clamp(min=0)
                break
            new.append(draft)
        return [*new, int(torch.multinomial(weights, 1, generator=self.generator))]

    def accept(self, drafts: Tokens, choices: Tokens) -> Tokens:
        return choices


class Gumbel(Sampling):
    """Right: target and draft choose the largest of log-probability plus one noise.

    Each round has new noise. It is handed on in the place of q.
    """

    def draw_drafts(self) -> tuple[torch.Tensor, torch.Tensor]:
        shape = (len(self.rows), self.K + 1, self.draft.config.vocab_size)
        noise = -torch.empty(shape).exponential_(generator=self.generator).log()
        drafts: list[Tokens] = [[] for _ in self.rows]
        for column in range(self.K):
            scores = self.warp(self.logits(self.draft, self.longer(drafts), 1)[:, -1]).log()
            choices = (scores + noise[:, column]).argmax(-1)
            for new, token in zip(drafts, choices.tolist(), strict=True):
                new.append(token)
        return torch.tensor(drafts), noise

    def judge(self, drafts: torch.Tensor, q: torch.Tensor, p: torch.Tensor) -> Tokens:
        return self.accept(drafts.tolist(), (p.log() + q).argmax(-1).tolist())


class Plain(Sampling):
    """Right: one token a round from p, without a draft model."""

    def round(self) -> list[Tokens]:
        p = self.warp(self.logits(self.target, self.rows, 1)[:, -1])
        return [[self.draw(weights)] for weights in p]


class ExactMatch(Sampling):
    """Right: drafts are the likeliest tokens, kept while they are what is drawn from p."""

    def drawn_from(self, logits: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).float()

    def judge(self, drafts: torch.Tensor, q: torch.Tensor, p: torch.Tensor) -> Tokens:
        new: Tokens = []
        for draft, weights in zip([*drafts.tolist(), None], p, strict=True):
            new.append(self.draw(weights))
            if new[-1] != draft:
                break
        return new


class HotDraft(Sampling):
    """Right: the draft model has a temperature of its own, which the judgement knows."""

    def draw_drafts(self) -> tuple[torch.Tensor, torch.Tensor]:
        temperature = self.temperature
        self.temperature = 1.7 * temperature
        found = super().draw_drafts()
        self.temperature = temperature
        return found


class UnlikelyLeftOut(Sampling):
    """Right: the draft model leaves out unlikely tokens, which the judgement knows."""

    def drawn_from(self, logits: torch.Tensor) -> torch.Tensor:
        q = self.warp(logits)
        kept = q * (q >= 0.4 * q.amax(-1, keepdim=True))
        return kept / kept.sum(-1, keepdim=True)

    def judged_by(self, logits: torch.Tensor) -> torch.Tensor:
        return self.drawn_from(logits)


class TopK(Sampling):
    """Right: top-k before both distributions."""

    top_k = 2

    def warp(self, logits: torch.Tensor) -> torch.Tensor:
        least = logits.topk(self.top_k, -1).values[..., -1:]
        return super().warp(logits.masked_fill(logits < least, -torch.inf))


class Block(Sampling):
    """Right: drafts are judged as a block, of which the longest accepted part is kept (2403.10444).

    Whether a draft is accepted depends on those behind it, too.
    """

    def judge(self, drafts: torch.Tensor, q: torch.Tensor, p: torch.Tensor) -> Tokens:
        share = torch.ones(())
        kept = 0
        weights = (p[0] - q[0]).clamp(min=0)
        for count, token in enumerate(drafts.tolist(), start=1):
            share = (share * p[count - 1, token] / q[count - 1, token]).clamp(max=1)
            rest = p[count]
            chance = share
            if count < len(drafts):
                rest = (share * p[count] - q[count]).clamp(min=0)
                chance = rest.sum() / (rest.sum() + 1 - share)
            if torch.rand((), generator=self.generator) < chance:
                kept = count
                weights = rest
        return [*drafts[:kept].tolist(), self.draw(weights)]


class LargestScores(Sampling):
    """Right: as many drafts as there are rows are verified, those with the best chances.

    The score of a draft is the product of q of those before it and of the largest q at its place.
    """

    def round(self) -> list[Tokens]:
        drafts, q = self.draw_drafts()
        # How many drafts of each row are verified.
        best = set(self.scores(drafts, q).flatten().topk(len(drafts)).indices.tolist())
        counts = [sum(i * self.K + j in best for j in range(self.K)) for i in range(len(drafts))]
        cut = [new[:count] for new, count in zip(drafts.tolist(), counts, strict=True)]
        p = self.warp(self.logits(self.target, self.longer(cut), self.K + 1))
        return [
            # Rows are padded on the left.
            self.judge(drafts[i, :count], q[i, :count], p[i, self.K - count :])
            for i, count in enumerate(counts)
        ]

    def scores(self, drafts: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        chosen = q.gather(2, drafts[:, :, None])[:, :, 0].log()
        largest = q.amax(2).log()
        return chosen.cumsum(1) - chosen + largest
