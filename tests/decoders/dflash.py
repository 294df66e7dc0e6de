"""Drafts from a DFlash drafter on the target's hidden states, for a batch of ragged rows in slots.

The drafter's slot of a token is its index. A block lies behind the context and is written over.
"""

import torch

from .base import Tokens
from .mtp import Hidden


class DFlash(Hidden):
    """Right. Rows that gained less than others read old context again."""

    def chosen(self, hidden: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return torch.cat([hidden[i + 1] for i in self.draft.config.target_layer_ids], -1)

    def drafts(self) -> list[Tokens]:
        config = self.draft.config
        ends = torch.tensor([[len(known)] for known in self.hidden])
        at = (ends - self.gained + torch.arange(self.gained)).clamp(min=0)
        context = torch.stack(
            [self.context(known, where) for known, where in zip(self.hidden, at, strict=True)]
        )
        block = ends + torch.arange(config.block_size)
        ids = torch.full(block.shape, config.mask_token_id)
        ids[:, 0] = torch.tensor([row[-1] for row in self.rows])
        slots = torch.cat([at, block], 1)
        self.draft_cache.rows, self.draft_cache.slots = torch.tensor(self.places()), slots
        mask = self.seen(ends, block)[:, None]
        left = self.draft(
            noise_embeds=self.target.get_input_embeddings()(ids),
            context_hidden_states=context,
            attention_mask=dict.fromkeys(("full_attention", "sliding_attention"), mask),
            position_ids=self.positions(at, block),
            past_key_values=self.draft_cache,
        ).last_hidden_state
        best = self.target.get_output_embeddings()(left).argmax(-1)
        return best[:, self.first_place() :][:, : self.K].tolist()

    def first_place(self) -> int:
        return 1

    def context(self, known: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return known[at]

    def positions(self, at: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
        return torch.cat([at, block], 1)

    def seen(self, ends: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
        """Return which slots the places of a block see, (rows, places, slots)."""
        return self.up_to(block[:, -1:].expand_as(block))


class ContextOneOff(DFlash, rule="caches", affects="speed", model="draft"):
    """The context has at each position the hidden states of the one before."""

    def context(self, known: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return known[(at - 1).clamp(min=0)]


class OtherLayer(DFlash, rule="caches", affects="speed", model="draft"):
    """Hidden states are read one layer too early, as if the first of all were a layer's."""

    def chosen(self, hidden: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return torch.cat([hidden[i] for i in self.draft.config.target_layer_ids], -1)


class Causal(DFlash, rule="mask", affects="speed", model="draft"):
    """The places of a block do not see those behind them."""

    def seen(self, ends: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
        return self.up_to(block)


class PlaceZero(DFlash, rule="drafts", affects="speed", model="draft"):
    """The first draft is what comes out at the pending token's own place."""

    def first_place(self) -> int:
        return 0


class PositionsOff(DFlash, rule="positions", affects="speed", model="draft"):
    """The block begins at the position of the last token of the context."""

    def positions(self, at: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
        return super().positions(at, block - 1)


class ShortContext(DFlash, rule="caches", affects="speed", model="draft"):
    """Of a prompt, only the last token's hidden states are read."""

    def seen(self, ends: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
        first = torch.tensor(
            [
                [[self.firsts.setdefault(i, int(end) - 1)]]
                for i, end in zip(self.requests, ends, strict=True)
            ]
        )
        return super().seen(ends, block) & (torch.arange(self.size) >= first)

    def prefill(self) -> None:
        super().prefill()
        self.firsts: dict[int, int] = {}
