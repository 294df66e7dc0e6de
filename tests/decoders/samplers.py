"""Right designs of speculative sampling.

They differ in how drafts are drawn, judged and selected.
"""

from typing import Any

import torch

from .one_row import OneRow, crop_to, read
from .sampling import Sampling


class Plain(Sampling):
    """Right: one token a round from p, without a draft model."""

    def run(self, prompts: list[list[int]]) -> list[list[int]]:
        rows = [list(prompt) for prompt in prompts]
        outputs: list[list[int]] = [[] for _ in prompts]
        for _ in range(self.max_new_tokens):
            p = self.warp(self.logits(self.target, rows, 1)[:, -1])
            for row, output, weights in zip(rows, outputs, p, strict=True):
                output.append(self.draw(weights))
                row.append(output[-1])
        return outputs


class ExactMatch(Sampling):
    """Right: drafts are the likeliest tokens, kept while they are what is drawn from p."""

    def drawn_from(self, logits: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).float()

    def judge(self, drafts: torch.Tensor, q: torch.Tensor, p: torch.Tensor) -> list[int]:
        new: list[int] = []
        for draft, weights in zip([*drafts.tolist(), None], p, strict=True):
            new.append(self.draw(weights))
            if new[-1] != draft:
                break
        return new


class HotDraft(Sampling):
    """Right: the draft model has a temperature of its own, which the judgement knows."""

    def draw_drafts(self, rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        temperature = self.temperature
        self.temperature = 1.7 * temperature
        found = super().draw_drafts(rows)
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


class Gumbel(Sampling):
    """Right: target and draft choose the largest of log-probability plus one noise.

    Each round has new noise. It is handed on in the place of q.
    """

    def draw_drafts(self, rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        shape = (len(rows), self.K + 1, self.draft.config.vocab_size)
        noise = -torch.empty(shape).exponential_(generator=self.generator).log()
        drafts: list[list[int]] = [[] for _ in rows]
        for column in range(self.K):
            longer = [row + new for row, new in zip(rows, drafts, strict=True)]
            scores = self.warp(self.logits(self.draft, longer, 1)[:, -1]).log()
            choices = (scores + noise[:, column]).argmax(-1)
            for new, token in zip(drafts, choices.tolist(), strict=True):
                new.append(token)
        return torch.tensor(drafts), noise

    def judge(self, drafts: torch.Tensor, q: torch.Tensor, p: torch.Tensor) -> list[int]:
        return self.accept(drafts.tolist(), (p.log() + q).argmax(-1).tolist())


class CachedSampling(OneRow):
    """Right: one prompt after the other, with caches that are cropped after rejections."""

    def __init__(self, *args: Any, temperature: float = 1.0, seed: int = 0) -> None:
        super().__init__(*args)
        self.temperature = temperature
        self.generator = torch.Generator().manual_seed(seed)

    def propose(self, tokens: list[int]) -> list[int]:
        crop_to(self.draft_cache, len(tokens) - self.refed)
        known = self.draft_cache.get_seq_length()
        unread = tokens[known:] if known == 0 else tokens[-self.refed :]
        first = len(tokens) - len(unread)
        self.q: list[torch.Tensor] = []
        drafts: list[int] = []
        for _ in range(self.K):
            logits = read(self.draft, unread, range(first, first + len(unread)), self.draft_cache)
            first += len(unread)
            self.q.append((logits[-1] / self.temperature).softmax(-1))
            unread = [int(torch.multinomial(self.q[-1], 1, generator=self.generator))]
            drafts += unread
        return drafts

    def verify(self, tokens: list[int], drafts: list[int]) -> list[int]:
        """Return the new tokens, accepted drafts and one more."""
        known = self.target_cache.get_seq_length()
        first = len(tokens) - 1 if known else 0
        unread = [*tokens[first:], *drafts]
        logits = read(self.target, unread, range(first, first + len(unread)), self.target_cache)
        p = (logits[-len(drafts) - 1 :] / self.temperature).softmax(-1)
        weights = p[-1]
        new: list[int] = []
        for draft, of_draft, of_target in zip(drafts, self.q, p, strict=False):
            coin = torch.rand((), generator=self.generator)
            if coin * of_draft[draft] >= of_target[draft]:
                weights = (of_target - of_draft).clamp(min=0)
                break
            new.append(draft)
        return [*new, int(torch.multinomial(weights, 1, generator=self.generator))]

    def accept(self, drafts: list[int], choices: list[int]) -> list[int]:
        return choices


class Block(Sampling):
    """Right: drafts are judged as a block, of which the longest accepted part is kept (2403.10444).

    Whether a draft is accepted depends on those behind it, too.
    """

    def judge(self, drafts: torch.Tensor, q: torch.Tensor, p: torch.Tensor) -> list[int]:
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

    def run(self, prompts: list[list[int]]) -> list[list[int]]:
        rows = [list(prompt) for prompt in prompts]
        outputs: list[list[int]] = [[] for _ in prompts]
        live = list(range(len(prompts)))
        while live:
            known = [rows[request] for request in live]
            drafts, q = self.draw_drafts(known)
            counts = self.choose(drafts, q)
            longer = [
                row + new[:count]
                for row, new, count in zip(known, drafts.tolist(), counts, strict=True)
            ]
            p = self.warp(self.logits(self.target, longer, self.K + 1))
            for i, (request, count) in enumerate(zip(live, counts, strict=True)):
                first = self.K - count  # rows are padded on the left
                new = self.judge(drafts[i, :count], q[i, :count], p[i, first:])
                rows[request] += new
                if self.finish(outputs[request], new):
                    live = [other for other in live if other != request]
        return outputs

    def choose(self, drafts: torch.Tensor, q: torch.Tensor) -> list[int]:
        """Return how many drafts of each row are verified."""
        scores = self.scores(drafts, q)
        best = set(scores.flatten().topk(len(drafts)).indices.tolist())
        return [sum(i * self.K + j in best for j in range(self.K)) for i in range(len(drafts))]

    def scores(self, drafts: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        chosen = q.gather(2, drafts[:, :, None])[:, :, 0].log()
        largest = q.amax(2).log()
        return chosen.cumsum(1) - chosen + largest


class TopK(Sampling):
    """Right: top-k before both distributions."""

    top_k = 2

    def warp(self, logits: torch.Tensor) -> torch.Tensor:
        return super().warp(among_best(logits, self.top_k))


def among_best(logits: torch.Tensor, count: int) -> torch.Tensor:
    """Rule out all but the largest logits."""
    least = logits.topk(count, -1).values[..., -1:]
    return logits.masked_fill(logits < least, -torch.inf)
