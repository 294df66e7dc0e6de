"""Speculative sampling row by row and without a cache, as a textbook writes it."""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from .base import fault
from .sampling import Sampling


class Textbook(Sampling):
    """Right."""

    def run(self, prompts: list[list[int]]) -> list[list[int]]:
        return [self.decode_one(prompt) for prompt in prompts]

    def decode_one(self, prompt: list[int]) -> list[int]:
        text, output, done = list(prompt), [], False
        while not done:
            drafts, q = self.propose(text)
            p = self.read(self.target, [*text, *drafts])[-len(drafts) - 1 :]
            new = self.judge(torch.tensor(drafts), q, p)
            self.verified(text, drafts)
            text += new
            done = self.finish(output, new)
        return output

    def propose(self, text: list[int]) -> tuple[list[int], torch.Tensor]:
        drafts: list[int] = []
        q = []
        for _ in range(self.K):
            q.append(self.read(self.draft, [*text, *drafts])[-1])
            drafts.append(self.draw(q[-1]))
        return drafts, torch.stack(q)

    def read(self, model: PreTrainedModel, tokens: Sequence[int]) -> torch.Tensor:
        return self.warp(model(torch.tensor([tokens])).logits[0])

    def verified(self, text: list[int], drafts: list[int]) -> None:
        pass


class ReadsLate(Textbook):
    """Right: the draft model reads its last draft once it was judged, and nothing comes of it."""

    def verified(self, text: list[int], drafts: list[int]) -> None:
        self.read(self.draft, [*text, *drafts])


class WithoutBonus(Textbook):
    """Right: nothing is drawn behind drafts that were all accepted."""

    def judge(self, drafts: torch.Tensor, q: torch.Tensor, p: torch.Tensor) -> list[int]:
        return super().judge(drafts, q, p)[: len(drafts)]


class Repeats(Textbook):
    """Right: the last token of the text is the draft, without a draft model."""

    def propose(self, text: list[int]) -> tuple[list[int], torch.Tensor]:
        drafts = text[-1:] * self.K
        size = self.target.config.vocab_size
        return drafts, torch.nn.functional.one_hot(torch.tensor(drafts), size).float()


@fault(rule="bonus", affects="text")
class DrawsAgain(Textbook):
    """After a rejection, the next token is drawn from p, so it may be the draft again.

    Breaks "bonus"; the distribution of the text is wrong.
    """

    def residual(self, p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        return p
