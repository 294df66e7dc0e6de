"""A batch whose caches are cut to the row with the fewest new tokens after each round.

Verified tokens of the other rows are thrown away, so all rows keep one length and nothing moves.
"""

import torch
from transformers import DynamicCache, PreTrainedModel

from checks.decoders.common import left_padded

from .base import Batch, Tokens


class Rollback(Batch):
    """Right."""

    def prefill(self) -> None:
        # The tokens and the mask of their columns, (rows, columns) each.
        self.text, mask = left_padded(self.rows, self.target.device)
        self.padding = mask.shape[1] - mask.sum(1, keepdim=True)
        self.caches = {self.target: DynamicCache(), self.draft: DynamicCache()}

    def round(self) -> list[Tokens]:
        new = super().round()
        fewest = min(len(tokens) for tokens in new)
        return [tokens[:fewest] for tokens in new]

    def propose(self) -> list[Tokens]:
        text = self.text
        for _ in range(self.K):
            choice = self.read(self.draft, text)[:, -1:].argmax(-1)
            text = torch.cat([text, choice], dim=1)
        return text[:, self.text.shape[1] :].tolist()

    def verify(self, drafts: list[Tokens]) -> list[Tokens]:
        fed = torch.cat([self.text, torch.tensor(drafts)], dim=1)
        return self.read(self.target, fed)[:, -self.K - 1 :].argmax(-1).tolist()

    def read(self, model: PreTrainedModel, text: torch.Tensor) -> torch.Tensor:
        """Feed the columns that the model's cache lacks; return the logits."""
        cache = self.caches[model]
        known = cache.get_seq_length()
        columns = torch.arange(text.shape[1])
        output = model(
            text[:, known:],
            attention_mask=(columns >= self.padding).long(),
            position_ids=(columns - self.padding).clamp(min=0)[:, known:],
            past_key_values=cache,
        )
        return output.logits.float()

    def align(self, new: list[Tokens]) -> None:
        self.text = torch.cat([self.text, torch.tensor(new)], dim=1)

    def leave(self, staying: list[int]) -> None:
        for cache in self.caches.values():
            surplus = cache.get_seq_length() - self.text.shape[1] + 1
            if surplus > 0:
                cache.crop(-surplus)
            cache.batch_select_indices(torch.tensor(staying))
        self.text = self.text[staying]
        self.padding = self.padding[staying]
