"""KV state of one model: slabs that are written slot by slot. The only file that touches the caches of transformers.

A slab holds one layer's keys (or values) as (R rows, T slots, H heads, D). A forward writes each token's K/V at the slot that
the caller names and attends to the slots that the caller shows it; so rows of different length need no common column.
Knows slots, not tokens: what a slot means is the layout's business.
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

VARIANTS = 64  # compiled forms of a model's code, which target and draft share: one row or many, one token a row, two or more, ...


@dataclass(frozen=True)
class Feed:
    """What one forward was given; all tensors (b, q) but `visible` (b, q, w) bool and `rows` (b,), on the model's device.

    `requests` names the request that each row of the slab serves. `indices` are the tokens' indices in their own rows, `positions`
    the position ids that the model was given for them. `valid` (b, q) is False for the filling of shorter rows in a prefill.
    `order` (b, w) are the slots that `visible` speaks of; None for 0..w-1. `added` (b, q, w) is `visible` as an additive mask, if that
    was made already.
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
        """Some of its columns, with the tokens (b, q) that stand there."""
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
    """One layer's slabs. They are allocated at the first write, zeroed: a mask does not stop NaN from leftovers."""

    is_sliding = False

    def __init__(self, rows: int, slots: int) -> None:
        super().__init__()
        self.rows, self.slots = rows, slots

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
        for slab, states in (
            (self.keys, key_states),
            (self.values, value_states),
        ):  # states (b, H, q, D)
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
    """Where the running forward writes: `slots` (b, q) of `rows` (b,), and how many slots it sees. `dense`: rows are 0..b-1.

    `order` (b, window): the slots that it sees, in that order; None for the first `window` as they lie.
    """

    rows: Tensor
    slots: Tensor
    window: int
    dense: bool
    order: Tensor | None

    def on(self, device: torch.device) -> "_Where":
        """For a layer that lies on another device than the inputs, as a device_map may have it."""
        if self.rows.device == device:
            return self
        order = None if self.order is None else self.order.to(device)
        return replace(self, rows=self.rows.to(device), slots=self.slots.to(device), order=order)


class _SlabCache(Cache):
    """All layers' slabs. `where` is set before a forward, because `update` is told no more than the layer."""

    where: _Where

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        return self.layers[layer_idx].update(
            key_states, value_states, self.where.on(key_states.device)
        )


class CachedModel:
    """A causal LM with KV slabs for `rows` rows of `slots` slots, each layer's on the device that the layer runs on.

    Attributes:
        vocabulary: V, how many ids the logits go over; None for all that the model has.
        log: None, or a list to which every forward appends a `Feed` and every move its list of `Move`s, in order.
        hidden: (b, q, D), the last hidden states of the last `forward` that was asked to keep them.
    """

    def __init__(
        self, model: PreTrainedModel, rows: int, slots: int, vocabulary: int | None = None
    ) -> None:
        layers: list[CacheLayerMixin] = [
            _SlabLayer(rows, slots) for _ in range(model.config.get_text_config().num_hidden_layers)
        ]
        self.model, self.rows, self.slots, self.vocabulary = model, rows, slots, vocabulary
        self.cache = _SlabCache(layers=layers)
        self.log: list[Feed | list[Move]] | None = None
        self.hidden: Tensor | None = None
        self._groups, self._grouped = query_groups(model), takes_grouped(model)
        self._call: Callable[..., Any] = model

    def compile(self) -> None:
        """Let torch.compile make the forwards of a round; prefills stay as they are."""
        compiled = torch.compile(self.model)

        def call(**arguments: Any) -> Any:
            with torch._dynamo.config.patch(recompile_limit=VARIANTS):
                return compiled(**arguments)

        self._call = call

    @property
    def bytes_per_slot(self) -> int:
        """Bytes of K and V that one slot holds over all layers; 0 before the first forward."""
        layers = [layer for layer in self.cache.layers if layer.is_initialized]
        return sum(
            slab[0, 0].numel() * slab.element_size()
            for layer in layers
            for slab in (layer.keys, layer.values)
        )

    def forward(self, feed: Feed, *, keep_hidden: bool = False, dense: bool = True) -> Tensor:
        """Run one forward, write K/V at feed.slots, and return the logits (b, q, V) in the model's dtype. `dense`: over rows 0..b-1."""
        with self._attending():
            said = self._call(
                **self._arguments(feed, dense),
                **({"output_hidden_states": True} if keep_hidden else {}),
            )
        self.hidden = said.hidden_states[-1] if keep_hidden else None
        return said.logits[..., : self.vocabulary]

    def prefill(self, feed: Feed) -> Tensor:
        """Write K/V of feed.tokens and return the last hidden states (b, q, D); no logits are computed. `feed.rows` may be any rows."""
        with self._attending():
            hidden: Tensor = self.model.base_model(**self._arguments(feed, dense=False))[0]
        return hidden.to(feed.tokens.device)

    def _attending(self) -> AbstractContextManager[None]:
        """`attending`, unless the run does so already."""
        already = not self._grouped or self.model.config._attn_implementation == NAME
        return nullcontext() if already else attending([self.model])

    def held(self, rows: Tensor, slots: Tensor) -> list[Tensor]:
        """Copies of what slots (n,) of rows (n,) hold: keys (n, H, D), then values, of one layer after the other."""
        layers = [layer for layer in self.cache.layers if layer.is_initialized]
        return [
            slab[rows.to(slab.device), slots.to(slab.device)]
            for layer in layers
            for slab in (layer.keys, layer.values)
        ]

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
        """The feed with its mask made: for one that is fed in parts."""
        return (
            replace(feed, added=additive_mask(feed.visible, self.model.dtype))
            if self._grouped
            else feed
        )

    def _mask(self, feed: Feed) -> Tensor:
        """As `grouped_mask` says; (b, 1, q, w) for models that attend by themselves: bool for sdpa, additive for eager, which would read
        a bool mask as numbers.
        """
        if self._grouped:
            added = (
                additive_mask(feed.visible, self.model.dtype) if feed.added is None else feed.added
            )
            return grouped_mask(added, self._groups)
        visible = feed.visible[:, None]
        if self.model.config._attn_implementation == "sdpa":
            return visible
        additive = torch.zeros(visible.shape, dtype=self.model.dtype, device=visible.device)
        return additive.masked_fill(~visible, torch.finfo(self.model.dtype).min)

    def zero_nonfinite(self, rows: Sequence[int]) -> None:
        """Zeros in place of whatever is no finite number in these rows."""
        for layer in self.cache.layers:
            for slab in (layer.keys, layer.values) if layer.is_initialized else ():
                for row in rows:
                    slab[row].nan_to_num_(0.0, 0.0, 0.0)

    def move(self, moves: Sequence[Move]) -> None:
        """Move blocks of K/V in every layer, all read before any is written."""
        if not moves:
            return
        if self.log is not None:
            self.log.append(list(moves))
        move(
            [
                slab
                for layer in self.cache.layers
                if layer.is_initialized
                for slab in (layer.keys, layer.values)
            ],
            moves,
        )
