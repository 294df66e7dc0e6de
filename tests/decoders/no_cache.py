"""A batch with left padding and no cache at all: both models read all rows again and again."""

import torch
from transformers import PreTrainedModel

from checks.decoders.common import left_padded, positions_of

from .base import Batch, Tokens


class NoCache(Batch):
    """Right."""

    def propose(self) -> list[Tokens]:
        drafts: list[Tokens] = [[] for _ in self.rows]
        for _ in range(self.K):
            tokens = self.logits(self.draft, self.longer(drafts), 1)[:, -1].argmax(-1)
            for new, token in zip(drafts, tokens.tolist(), strict=True):
                new.append(token)
        return drafts

    def verify(self, drafts: list[Tokens]) -> list[Tokens]:
        return self.logits(self.target, self.longer(drafts), self.K + 1).argmax(-1).tolist()

    def logits(self, model: PreTrainedModel, rows: list[Tokens], last: int) -> torch.Tensor:
        """Return the logits of the last columns, (rows, last, V)."""
        ids, mask = self.padded(rows)
        output = model(
            ids,
            attention_mask=mask,
            position_ids=positions_of(mask),
            use_cache=False,
            logits_to_keep=last,
        )
        return output.logits.float()

    def padded(self, rows: list[Tokens]) -> tuple[torch.Tensor, torch.Tensor]:
        return left_padded(rows, self.target.device)


class PaddingSeen(NoCache, rule="mask", affects="text", model="target", min_batch=2):
    """Padding is not masked, so that only the longest row is right."""

    def padded(self, rows: list[Tokens]) -> tuple[torch.Tensor, torch.Tensor]:
        ids, mask = super().padded(rows)
        return ids, torch.ones_like(mask)
