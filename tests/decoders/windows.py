"""Targets in which some layers attend to a window of the row's last tokens, and others to all.

Rejected drafts stay in the cache as holes, which a mask hides. A mask of each kind is given.
"""

from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from .base import Tokens
from .slots import Slots


class Holes(Slots):
    """Right: a window counts the tokens that a query may see, wherever they lie."""

    def run(self, prompts: list[Tokens]) -> list[Tokens]:
        self.used: dict[int, int] = {}  # slots of each row that were ever written
        return super().run(prompts)

    def room(self) -> int:
        return self.max_new_tokens * (self.K + 1)

    def clear(self, row: int) -> None:
        super().clear(row)
        self.used[row] = 0

    def free_slots(self, row: int, count: int) -> Tokens:
        first = self.used[row]
        self.used[row] += count
        return list(range(first, first + count))

    def read_target_prompt(self, row: int, prompt: Tokens) -> DynamicCache:
        # A cache that knows of windows would keep the last tokens alone.
        cache = DynamicCache()
        self.target(torch.tensor([prompt]), past_key_values=cache)
        return cache

    def read_draft_prompt(self, row: int, prompt: Tokens) -> None:
        cache = DynamicCache()
        self.draft(torch.tensor([prompt]), past_key_values=cache)
        self.draft_cache.copy_in(row, list(range(len(prompt))), cache)

    def masks(self, model: PreTrainedModel, mask: torch.Tensor) -> Any:
        width = model.config.sliding_window
        # The draft's slots are its tokens' positions, so its windows are right in any case.
        narrowed = self.narrowed if model is self.target else Holes.narrowed.__get__(self)
        return {"full_attention": mask, "sliding_attention": narrowed(mask, width)}

    def narrowed(self, seen: torch.Tensor, width: int) -> torch.Tensor:
        behind = seen.flip(-1).cumsum(-1).flip(-1)
        return seen & (behind <= width)


class BySlot(Holes, rule="window", affects="text", model="target"):
    """A window counts slots, and so the holes in it."""

    def narrowed(self, seen: torch.Tensor, width: int) -> torch.Tensor:
        slots = torch.arange(seen.shape[-1])
        last = torch.where(seen, slots, -1).amax(-1, keepdim=True)
        return seen & (slots > last - width)


class OneTooLong(Holes, rule="window", affects="text", model="target"):
    """A window has one token too many."""

    def narrowed(self, seen: torch.Tensor, width: int) -> torch.Tensor:
        return super().narrowed(seen, width + 1)


class OneTooShort(Holes, rule="window", affects="text", model="target"):
    """A window has one token too few."""

    def narrowed(self, seen: torch.Tensor, width: int) -> torch.Tensor:
        return super().narrowed(seen, width - 1)
