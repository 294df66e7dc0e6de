"""A batch with left padding and no cache at all: both models read all rows again and again."""

import torch
from transformers import PreTrainedModel

from .base import Decoder, fault


class NoCache(Decoder):
    """Right."""

    def run(self, prompts: list[list[int]]) -> list[list[int]]:
        rows = [list(prompt) for prompt in prompts]
        outputs: list[list[int]] = [[] for _ in prompts]
        live = list(range(len(prompts)))
        while live:
            known = [rows[request] for request in live]
            drafts = self.propose(known)
            longer = [row + new for row, new in zip(known, drafts, strict=True)]
            choices = self.logits(self.target, longer, self.K + 1).argmax(-1).tolist()
            staying = []
            for request, drafted, chosen in zip(live, drafts, choices, strict=True):
                new = self.accept(drafted, chosen)
                rows[request] += new
                if not self.finish(outputs[request], new):
                    staying.append(request)
            live = staying
        return outputs

    def propose(self, rows: list[list[int]]) -> list[list[int]]:
        drafts: list[list[int]] = [[] for _ in rows]
        for _ in range(self.K):
            longer = [row + new for row, new in zip(rows, drafts, strict=True)]
            tokens = self.logits(self.draft, longer, 1)[:, -1].argmax(-1)
            for new, token in zip(drafts, tokens.tolist(), strict=True):
                new.append(token)
        return drafts

    def logits(self, model: PreTrainedModel, rows: list[list[int]], last: int) -> torch.Tensor:
        """Return the logits of the last columns, (rows, last, V)."""
        ids, mask = self.padded(rows)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        output = model(
            ids,
            attention_mask=mask,
            position_ids=positions,
            use_cache=False,
            logits_to_keep=last,
        )
        return output.logits.float()

    def padded(self, rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        longest = max(len(row) for row in rows)
        ids = torch.zeros(len(rows), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, longest - len(row) :] = torch.tensor(row)
            mask[i, longest - len(row) :] = 1
        return ids, mask


@fault(rule="mask", affects="text", model="target", min_batch=2)
class PaddingSeen(NoCache):
    """Padding is not masked, so that only the longest row is right.

    Breaks "mask"; the text is wrong.
    """

    def padded(self, rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        ids, mask = super().padded(rows)
        return ids, torch.ones_like(mask)
