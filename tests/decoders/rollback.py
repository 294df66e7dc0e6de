"""A batch whose caches are cut to the row with the fewest new tokens after each round.

Verified tokens of the other rows are thrown away, so all rows keep one length and nothing moves.
"""

import torch
from transformers import DynamicCache, PreTrainedModel

from .base import Decoder


class Rollback(Decoder):
    """Right."""

    def run(self, prompts: list[list[int]]) -> list[list[int]]:
        longest = max(len(prompt) for prompt in prompts)
        padding = torch.tensor([longest - len(prompt) for prompt in prompts])
        rows = [[0] * (longest - len(prompt)) + prompt for prompt in prompts]
        self.text = torch.tensor(rows)  # (rows, columns)
        self.padding = padding
        self.caches = {self.target: DynamicCache(), self.draft: DynamicCache()}
        outputs: list[list[int]] = [[] for _ in prompts]
        live = list(range(len(prompts)))
        while live:
            drafts = self.propose()
            fed = torch.cat([self.text, drafts], dim=1)
            choices = self.read(self.target, fed)[:, -self.K - 1 :].argmax(-1)
            new = [
                self.accept(drafted, chosen)
                for drafted, chosen in zip(drafts.tolist(), choices.tolist(), strict=True)
            ]
            fewest = min(len(tokens) for tokens in new)
            self.text = torch.cat([self.text, torch.tensor([row[:fewest] for row in new])], dim=1)
            finished = [
                self.finish(outputs[request], row[:fewest])
                for request, row in zip(live, new, strict=True)
            ]
            staying = [i for i, ended in enumerate(finished) if not ended]
            self.cut(self.text.shape[1] - 1, staying)
            live = [live[i] for i in staying]
        return outputs

    def propose(self) -> torch.Tensor:
        text = self.text
        for _ in range(self.K):
            choice = self.read(self.draft, text)[:, -1:].argmax(-1)
            text = torch.cat([text, choice], dim=1)
        return text[:, self.text.shape[1] :]

    def read(self, model: PreTrainedModel, text: torch.Tensor) -> torch.Tensor:
        """Feed the columns that the model's cache lacks; return the logits."""
        cache = self.caches[model]
        known = cache.get_seq_length()
        columns = torch.arange(text.shape[1])
        mask = (columns >= self.padding[:, None]).long()
        positions = (columns - self.padding[:, None]).clamp(min=0)[:, known:]
        output = model(
            text[:, known:],
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
        )
        return output.logits.float()

    def cut(self, length: int, staying: list[int]) -> None:
        for cache in self.caches.values():
            surplus = cache.get_seq_length() - length
            if surplus > 0:
                cache.crop(-surplus)
            if staying:
                cache.batch_select_indices(torch.tensor(staying))
        self.text = self.text[staying]
        self.padding = self.padding[staying]
