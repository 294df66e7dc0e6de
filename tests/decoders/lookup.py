"""Prompt lookup: drafts are what followed the row's last tokens earlier in its text.

Rows have ragged numbers of drafts, with fillers on the right. Rejected drafts and fillers stay in
the cache behind a 2-D mask.
"""

import torch
from transformers import DynamicCache

from .base import Decoder

FILLER = 0


class Lookup(Decoder):
    """Right."""

    def run(self, prompts: list[list[int]]) -> list[list[int]]:
        rows = [list(prompt) for prompt in prompts]
        outputs: list[list[int]] = [[] for _ in prompts]
        requests = list(range(len(prompts)))
        self.prefill(rows)
        while requests:
            drafts = [self.propose(row) for row in rows]
            fed = [[row[-1], *found] for row, found in zip(rows, drafts, strict=True)]
            width = max(len(ids) for ids in fed)
            filled = torch.tensor([ids + [FILLER] * (width - len(ids)) for ids in fed])
            self.seen = torch.cat([self.seen, torch.ones_like(filled)], dim=1)
            choices = self.read(filled)
            staying = []
            for i, request in enumerate(requests):
                new = self.accept(drafts[i], choices[i])
                rows[i] += new
                self.seen[i, self.seen.shape[1] - width + len(new) :] = 0
                if not self.finish(outputs[request], new):
                    staying.append(i)
            self.keep(staying)
            rows = [rows[i] for i in staying]
            requests = [requests[i] for i in staying]
        return outputs

    def prefill(self, rows: list[list[int]]) -> None:
        """Read all but the last token of each prompt, with padding on the left."""
        longest = max(len(row) for row in rows)
        self.past = DynamicCache()
        ids = torch.full((len(rows), longest - 1), FILLER)
        self.seen = torch.zeros_like(ids)  # (rows, slots)
        for i, row in enumerate(rows):
            start = longest - len(row)
            ids[i, start:] = torch.tensor(row[:-1])
            self.seen[i, start:] = 1
        self.read(ids)

    def propose(self, row: list[int]) -> list[int]:
        """Return up to K tokens that followed the last two, else the last one, before."""
        for size in (2, 1):
            ending = row[-size:]
            for start in reversed(range(len(row) - size)):
                if row[start : start + size] == ending:
                    return row[start + size : start + size + self.K]
        return []

    def read(self, ids: torch.Tensor) -> list[list[int]]:
        """Feed tokens whose places are in `seen` already; return the target's choices."""
        positions = (self.seen.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        return self.logits(ids, positions).float().argmax(-1).tolist()

    def logits(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        # Positional arguments, in the order of Llama's forward().
        output = self.target(ids, self.seen, positions, self.past, use_cache=True)
        return output.logits

    def keep(self, staying: list[int]) -> None:
        if staying:
            self.past.batch_select_indices(torch.tensor(staying))
            self.seen = self.seen[staying]


class LookupInside(Lookup):
    """Right: calls the model without its head, and the head by itself."""

    def logits(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        output = self.target.model(ids, self.seen, positions, self.past, use_cache=True)
        return self.target.lm_head(output.last_hidden_state)
