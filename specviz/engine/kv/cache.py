"""KV state of one model: slabs that are written slot by slot.

Contract: this is the only file that touches the cache classes of transformers. A slab holds one
layer's keys (or values) as (R rows, T slots, H heads, D). A forward writes each token's K/V at the
slot that the caller names and attends to the slots that the caller makes visible, so rows of
different length need no common column. Not known here: which token a slot holds, which is up to the
layout.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from specviz.engine.kv.attention import (
    NAME,
    additive_mask,
    attending,
    grouped_mask,
    query_groups,
    takes_grouped,
)
from specviz.engine.kv.moves import Move, move

# Compiled variants of a model's code (one row or many, one token a row or more, ...). The target
# and the draft share this limit, and torch's default is too low for both.
VARIANTS = 64


@dataclass(frozen=True)
class Feed:
    """The input of one forward. All tensors are on the model's device.

    Attributes:
        rows: (b,), rows of the slab.
        requests: the request that each of these rows serves.
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
        indices, positions, slots, visible, valid = (
            each[:, columns]
            for each in (self.indices, self.positions, self.slots, self.visible, self.valid)
        )
        added = None if self.added is None else self.added[:, columns]
        return Feed(
            self.rows,
            self.requests,
            tokens,
            indices,
            positions,
            slots,
            visible,
            valid,
            self.order,
            added,
        )


class _SlabLayer(CacheLayerMixin):
    """One layer's slabs, allocated at the first write.

    They are zeroed because a mask does not keep out NaN: 0 * NaN is NaN.
    """

    is_sliding = False

    def __init__(self, rows: int, slots: int) -> None:
        super().__init__()
        self.rows = rows
        self.slots = slots

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        _, heads, _, depth = key_states.shape
        self.keys = key_states.new_zeros(self.rows, self.slots, heads, depth)
        self.values = value_states.new_zeros(
            self.rows, self.slots, value_states.shape[1], value_states.shape[3]
        )
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        where: _Where = args[0]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        found = []
        for slab, states in ((self.keys, key_states), (self.values, value_states)):
            # states: (b, H, q, D)
            slab[where.rows[:, None], where.slots] = states.transpose(1, 2)
            if where.order is not None:
                seen = slab[where.rows[:, None], where.order]
            else:
                window = slab[:, : where.window]
                seen = window[: len(where.rows)] if where.dense else window[where.rows]
            found.append(seen.transpose(1, 2))  # (b, H, w, D)
        return found[0], found[1]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.slots, 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return self.slots

    def get_max_cache_shape(self) -> int:
        return self.slots


@dataclass(frozen=True)
class _Where:
    """Where the current forward writes, and which slots it attends to.

    Attributes:
        rows, slots: it writes slots (b, q) of rows (b,).
        window: the number of slots that it attends to.
        dense: whether the rows are 0..b-1.
        order: (b, window), the slots that it attends to, in that order; None for 0..window-1.
    """

    rows: Tensor
    slots: Tensor
    window: int
    dense: bool
    order: Tensor | None

    def on(self, device: torch.device) -> "_Where":
        """Return a copy for a layer on another device than the inputs, as with a device_map."""
        if self.rows.device == device:
            return self
        order = None if self.order is None else self.order.to(device)
        return replace(self, rows=self.rows.to(device), slots=self.slots.to(device), order=order)


class _SlabCache(Cache):
    """All layers' slabs. `where` is set before a forward, because `update` only gets the layer."""

    where: _Where

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        return self.layers[layer_idx].update(
            key_states, value_states, self.where.on(key_states.device)
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
        layers: list[CacheLayerMixin] = [_SlabLayer(rows, slots) for _ in range(num_layers)]
        self.model = model
        self.rows = rows
        self.slots = slots
        self.vocabulary = vocabulary
        self.cache = _SlabCache(layers=layers)
        self.log: list[Feed | list[Move]] | None = None
        self.hidden: Tensor | None = None
        self._groups = query_groups(model)
        self._grouped = takes_grouped(model)
        self._call: Callable[..., Any] = model

    def compile(self) -> None:
        """Run the forwards of a round through torch.compile. Prefills are not compiled."""
        compiled = torch.compile(self.model)

        def call(**arguments: Any) -> Any:
            with torch._dynamo.config.patch(recompile_limit=VARIANTS):
                return compiled(**arguments)

        self._call = call

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
        return output.logits[..., : self.vocabulary]

    def prefill(self, feed: Feed) -> Tensor:
        """Write K/V of feed.tokens and return the last hidden states (b, q, D).

        No logits are computed. `feed.rows` may be any rows.
        """
        with self._attending():
            hidden: Tensor = self.model.base_model(**self._arguments(feed, dense=False))[0]
        return hidden.to(feed.tokens.device)

    def _attending(self) -> AbstractContextManager[None]:
        """Enter `attending`, unless the run has done so already."""
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

    def _note(self, feed: Feed) -> None:
        if self.log is not None:
            self.log.append(feed)

    def _arguments(self, feed: Feed, dense: bool) -> dict[str, Any]:
        self._note(feed)
        self.cache.where = _Where(feed.rows, feed.slots, feed.visible.shape[-1], dense, feed.order)
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
        """Return the mask of `grouped_mask`, or (b, 1, q, w) for models that attend by themselves.

        The latter is bool for sdpa. Eager attention adds the mask to the scores, so a bool mask
        would be silently wrong there.
        """
        if self._grouped:
            added = feed.added
            if added is None:
                added = additive_mask(feed.visible, self.model.dtype)
            return grouped_mask(added, self._groups)
        visible = feed.visible[:, None]
        if self.model.config._attn_implementation == "sdpa":
            return visible
        additive = torch.zeros(visible.shape, dtype=self.model.dtype, device=visible.device)
        return additive.masked_fill(~visible, torch.finfo(self.model.dtype).min)

    def zero_nonfinite(self, rows: Sequence[int]) -> None:
        """Replace non-finite values in these rows by zeros."""
        for slab in self._slabs():
            for row in rows:
                slab[row].nan_to_num_(0.0, 0.0, 0.0)

    def move(self, moves: Sequence[Move]) -> None:
        """Move blocks of K/V in every layer, all read before any is written."""
        if not moves:
            return
        if self.log is not None:
            self.log.append(list(moves))
        move(self._slabs(), moves)
