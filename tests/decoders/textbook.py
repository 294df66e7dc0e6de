"""Speculative sampling row by row and without a cache, as a textbook writes it."""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from .base import Tokens
from .sampling import NoResidual, Sampling


class Textbook(Sampling):
    """Right."""

    def run(self, prompts: list[Tokens]) -> list[Tokens]:
        return [self.decode_one(prompt) for prompt in prompts]

    def decode_one(self, prompt: Tokens) -> Tokens:
        text, output, done = list(prompt), [], False
        while not done:
            drafts, q = self.propose(text)
            p = self.read(self.target, [*text, *drafts])[-len(drafts) - 1 :]
            new = self.judge(torch.tensor(drafts), q, p)
            self.verified(text, drafts)
            text += new
            done = self.finish(output, new)
        return output

    def propose(self, text: Tokens) -> tuple[Tokens, torch.Tensor]:
        drafts: Tokens = []
        q = []
        for _ in range(self.K):
            q.append(self.read(self.draft, [*text, *drafts])[-1])
            drafts.append(self.draw(q[-1]))
        return drafts, torch.stack(q)

    def read(self, model: PreTrainedModel, tokens: Sequence[int]) -> torch.Tensor:
        return self.warp(model(torch.tensor([tokens])).logits[0])

    def verified(self, text: Tokens, drafts: Tokens) -> None:
        pass


class ReadsLate(Textbook):
    """Right: the draft model reads its last draft once it was judged, and nothing comes of it."""

    def verified(self, text: Tokens, drafts: Tokens) -> None:
        self.read(self.draft, [*text, *drafts])


class WithoutBonus(Textbook):
    """Right: nothing is drawn behind drafts that were all accepted."""

    def judge(self, drafts: torch.Tensor, q: torch.Tensor, p: torch.Tensor) -> Tokens:
        return super().judge(drafts, q, p)[: len(drafts)]


class Repeats(Textbook):
    """Right: the last token of the text is the draft, without a draft model."""

    def propose(self, text: Tokens) -> tuple[Tokens, torch.Tensor]:
        drafts = text[-1:] * self.K
        size = self.target.config.vocab_size
        return drafts, torch.nn.functional.one_hot(torch.tensor(drafts), size).float()


class DrawsAgain(NoResidual, Textbook):
    """After a rejection, the next token is drawn from p, so it may be the draft again."""
