"""The KV state of one model, and the forwards that read and write it.

Contract: a forward writes each token's K/V at the slot that the caller names and attends to the
slots that the caller makes visible, so rows of different length need no common column. Not known
here: which token a slot holds, which is up to the layout.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.engine.kv.attention import (
    NAME,
    additive_mask,
    attending,
    grouped_mask,
    query_groups,
    takes_grouped,
)
from specviz.engine.kv.compiled import CompiledModel
from specviz.engine.kv.moves import Move, move
from specviz.engine.kv.slabs import Access, SlabCache

# What a prefill on a CPU costs beside its tokens, as a number of tokens: docs/results.md.
FORWARD_TOKENS = 64


@dataclass(frozen=True)
class Feed:
    """The input of one forward. All tensors are on the model's device.

    Attributes:
        rows: (b,), rows of the slab.
        requests: the request of each live row of the slab, by its number.
        tokens, slots: (b, q), token ids and the slots that their K/V goes to.
        indices: (b, q), the tokens' indices in their own rows.
        positions: (b, q), the position ids that the model is given for them.
        visible: bool (b, q, w), the slots that each query attends to.
        valid: bool (b, q), False for the filling of shorter rows in a prefill.
        order: (b, w), the slots that `visible` refers to; None for 0..w-1.
        added: (b, q, w), `visible` as an additive mask, or None if that was not made yet.
    """

    rows: Tensor
    requests: Sequence[int]
    tokens: Tensor
    indices: Tensor
    positions: Tensor
    slots: Tensor
    visible: Tensor
    valid: Tensor
    order: Tensor | None = None
    added: Tensor | None = None

    def part(self, tokens: Tensor, columns: slice) -> "Feed":
        """Return some columns of the feed, with these tokens (b, q) in them."""
        # Slices are views: a draft step costs no new mask, slots or positions.
        added = None if self.added is None else self.added[:, columns]
        return replace(
            self,
            tokens=tokens,
            indices=self.indices[:, columns],
            positions=self.positions[:, columns],
            slots=self.slots[:, columns],
            visible=self.visible[:, columns],
            valid=self.valid[:, columns],
            added=added,
        )


class CachedModel:
    """A causal LM with KV slabs of `rows` rows and `slots` slots, on each layer's own device.

    Attributes:
        vocabulary: V, the number of ids in the logits; None for all ids of the model.
        log: None, or a list to which every forward appends its `Feed` and every move its list of
            `Move`s, in order.
        hidden: (b, q, D), the last hidden states of the last `forward`; None if it did not keep
            them.
    """

    def __init__(
        self, model: PreTrainedModel, rows: int, slots: int, vocabulary: int | None = None
    ) -> None:
        num_layers = model.config.get_text_config().num_hidden_layers
        self.model = model
        self.rows = rows
        self.slots = slots
        self.vocabulary = vocabulary
        self.cache = SlabCache(num_layers, rows, slots)
        self.log: list[Feed | list[Move]] | None = None
        self.hidden: Tensor | None = None
        self._grouped = takes_grouped(model)
        self._call: Callable[..., Any] = model

    def compile(self) -> None:
        """Run the forwards of a round through torch.compile. Prefills are not compiled."""
        self._call = CompiledModel(self.model)

    @cached_property
    def _groups(self) -> int:
        # Not before the first forward: a trial of the model may still change it.
        return query_groups(self.model)

    @property
    def forward_tokens(self) -> int | None:
        """What one more prefill costs, in tokens; None where that is not known."""
        return FORWARD_TOKENS if self.model.device.type == "cpu" else None

    @property
    def bytes_per_slot(self) -> int:
        """Bytes of K and V in one slot, over all layers; 0 before the first forward."""
        return sum(slab[0, 0].numel() * slab.element_size() for slab in self._slabs())

    def forward(self, feed: Feed, *, keep_hidden: bool = False, dense: bool = True) -> Tensor:
        """Run one forward and write its K/V at feed.slots.

        Returns the logits (b, q, V) in the model's dtype.

        Args:
            feed: the input.
            keep_hidden: whether to keep the last hidden states in `hidden`.
            dense: whether feed.rows are 0..b-1, which saves copying K/V of the rows.
        """
        arguments = self._arguments(feed, dense)
        if keep_hidden:
            arguments["output_hidden_states"] = True
        with self._attending():
            output = self._call(**arguments)
        self.hidden = output.hidden_states[-1] if keep_hidden else None
        # Ids beyond V are padding of the embedding, which must never be chosen.
        return output.logits[..., : self.vocabulary]

    def prefill(self, feed: Feed) -> Tensor:
        """Write K/V of feed.tokens and return the last hidden states (b, q, D).

        No logits are computed. `feed.rows` may be any rows.
        """
        with self._attending():
            # Without the head: a prompt's logits are (q, V), and none of them is needed.
            hidden: Tensor = self.model.base_model(**self._arguments(feed, dense=False))[0]
        return hidden.to(feed.tokens.device)

    def _attending(self) -> AbstractContextManager[None]:
        # A run has done so already. Checks and studies call single forwards.
        already = not self._grouped or self.model.config._attn_implementation == NAME
        return nullcontext() if already else attending([self.model])

    def held(self, rows: Tensor, slots: Tensor) -> list[Tensor]:
        """Return copies of slots (n,) of rows (n,): keys (n, H, D), then values, layer by layer."""
        return [slab[rows.to(slab.device), slots.to(slab.device)] for slab in self._slabs()]

    def _slabs(self) -> list[Tensor]:
        """Return the slabs that are allocated: keys, then values, layer by layer."""
        slabs = []
        for layer in self.cache.layers:
            if layer.is_initialized:
                slabs += [layer.keys, layer.values]
        return slabs

    def _note(self, entry: Feed | list[Move]) -> None:
        if self.log is not None:
            self.log.append(entry)

    def _arguments(self, feed: Feed, dense: bool) -> dict[str, Any]:
        self._note(feed)
        window = feed.visible.shape[-1]
        # The model passes K/V of each layer to the cache, but not where it belongs.
        # Attention code of a class's own may take views of K/V, which need contiguous memory.
        own = not self.model._supports_attention_backend
        self.cache.access = Access(feed.rows, feed.slots, window, dense, feed.order, own)
        return {
            "input_ids": feed.tokens,
            "position_ids": feed.positions,
            "attention_mask": self._mask(feed),
            "past_key_values": self.cache,
            "use_cache": True,
        }

    def ready(self, feed: Feed) -> Feed:
        """Return the feed with its mask made, so that feeding it in parts makes the mask once."""
        if not self._grouped:
            return feed
        return replace(feed, added=additive_mask(feed.visible, self.model.dtype))

    def _mask(self, feed: Feed) -> Tensor:
        """Return the mask of `grouped_mask`, or (b, 1, q, w) for other models."""
        dtype = self.model.dtype
        if self._grouped:
            added = additive_mask(feed.visible, dtype) if feed.added is None else feed.added
            return grouped_mask(added, self._groups)
        if self.model.config._attn_implementation == "sdpa":
            return feed.visible[:, None]
        # Eager attention adds the mask to the scores, so a bool mask would be silently wrong there.
        return additive_mask(feed.visible[:, None], dtype, hidden=torch.finfo(dtype).min)

    def zero_nonfinite(self, rows: Sequence[int]) -> None:
        """Replace non-finite values in these rows by zeros."""
        for slab in self._slabs():
            for row in rows:  # a view each; indexing with a list would change a copy
                slab[row].nan_to_num_(0.0, 0.0, 0.0)

    def move(self, moves: Sequence[Move]) -> None:
        """Move blocks of K/V in every layer, all read before any is written."""
        if not moves:
            return
        # One entry for all: the record's replay must read them before it writes any, too.
        self._note(list(moves))
        move(self._slabs(), moves)
