"""Prompt lookup: drafts are what followed the row's last tokens earlier in its text.

Rows have ragged numbers of drafts, with fillers on the right. Rejected drafts and fillers stay in
the cache behind a 2-D mask.
"""

import torch
from transformers import DynamicCache

from checks.decoders.common import left_padded, positions_of

from .base import Batch, Tokens

FILLER = 0


class Lookup(Batch):
    """Right."""

    def prefill(self) -> None:
        """Read all but the last token of each prompt, with padding on the left."""
        self.past = DynamicCache()
        # `seen` is the mask, (rows, slots).
        ids, self.seen = left_padded([row[:-1] for row in self.rows], self.target.device)
        self.read(ids)

    def propose(self) -> list[Tokens]:
        return [self.followers(row) for row in self.rows]

    def followers(self, row: Tokens) -> Tokens:
        """Return up to K tokens that followed the last two, else the last one, before."""
        for size in (2, 1):
            ending = row[-size:]
            for start in reversed(range(len(row) - size)):
                if row[start : start + size] == ending:
                    return row[start + size : start + size + self.K]
        return []

    def verify(self, drafts: list[Tokens]) -> list[Tokens]:
        fed = [[row[-1], *found] for row, found in zip(self.rows, drafts, strict=True)]
        self.width = max(len(ids) for ids in fed)
        filled = torch.tensor([ids + [FILLER] * (self.width - len(ids)) for ids in fed])
        self.seen = torch.cat([self.seen, torch.ones_like(filled)], dim=1)
        return self.read(filled)

    def read(self, ids: torch.Tensor) -> list[Tokens]:
        """Feed tokens whose places are in `seen` already; return the target's choices."""
        positions = positions_of(self.seen)[:, -ids.shape[1] :]
        return self.logits(ids, positions).float().argmax(-1).tolist()

    def logits(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        # Positional arguments, in the order of Llama's forward().
        output = self.target(ids, self.seen, positions, self.past, use_cache=True)
        return output.logits

    def align(self, new: list[Tokens]) -> None:
        for i, gained in enumerate(new):
            self.seen[i, self.seen.shape[1] - self.width + len(gained) :] = 0

    def leave(self, staying: list[int]) -> None:
        self.past.batch_select_indices(torch.tensor(staying))
        self.seen = self.seen[staying]


class LookupInside(Lookup):
    """Right: calls the model without its head, and the head by itself."""

    def logits(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        output = self.target.model(ids, self.seen, positions, self.past, use_cache=True)
        return self.target.lm_head(output.last_hidden_state)
