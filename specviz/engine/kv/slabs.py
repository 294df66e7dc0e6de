"""Slabs: the tensors that hold a model's K/V, and the cache that holds them and all states.

Contract: with `states`, this is the only file that touches the cache classes of transformers. A
slab holds one layer's keys (or values) as (R rows, T slots, H heads, D). Not known here: masks.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

from specviz.engine.kv.states import StateLayer, Steps
from specviz.engine.models.compat import HYBRIDS, STATES


@dataclass(frozen=True)
class Access:
    """Where the current forward writes, and which slots it attends to.

    Attributes:
        rows, slots: it writes slots (b, q) of rows (b,).
        window: the number of slots that it attends to.
        dense: whether the rows are 0..b-1.
        order: (b, window), the slots that it attends to, in that order; None for 0..window-1.
        writing: (1, N), the row of each slot written, where the feed is packed and `slots` is
            (1, N); None where a row's slots are its own line of `slots`.
        contiguous: whether the layers need K/V in one piece, which costs a copy of the window.
        indices: (b, window), the indices in their row of the tokens in these slots, 0 where none
            is visible; None where no layer asks for them.
    """

    rows: Tensor
    slots: Tensor
    window: int
    dense: bool
    order: Tensor | None
    contiguous: bool = False
    writing: Tensor | None = None
    indices: Tensor | None = None

    @property
    def kind(self) -> tuple[bool, ...]:
        """What decides how `SlabLayer.update` goes about it."""
        return self.dense, self.order is None, self.contiguous, self.writing is None

    def row(self, row: slice) -> "Access":
        """Return the access of a forward of this row alone."""
        order = None if self.order is None else self.order[row]
        indices = None if self.indices is None else self.indices[row]
        return replace(
            self,
            rows=self.rows[row],
            slots=self.slots[row],
            dense=False,
            order=order,
            indices=indices,
        )

    def on(self, device: torch.device) -> "Access":
        """Return a copy for a layer on another device than the inputs, as with a device_map."""
        if self.rows.device == device:
            return self
        order = None if self.order is None else self.order.to(device)
        writing = None if self.writing is None else self.writing.to(device)
        return replace(
            self,
            rows=self.rows.to(device),
            slots=self.slots.to(device),
            order=order,
            writing=writing,
        )


class SlabLayer(CacheLayerMixin):
    """One layer's slabs, allocated at the first write, when heads, dtype and device are known."""

    is_sliding = False
    is_initialized: bool
    keys: Tensor
    values: Tensor

    def __init__(self, rows: int, slots: int) -> None:
        super().__init__()
        self.rows = rows
        self.slots = slots
        self.indexer: Tensor | None = None
        # (3, b, window): transformers counts positions in a text and in an image's two directions.
        self.indexer_position_ids: Tensor | None = None

    @property
    def slabs(self) -> list[Tensor]:
        """Those that are allocated: keys, values and, where there are any, the indexer's keys."""
        found = [self.keys, self.values] if self.is_initialized else []
        return found if self.indexer is None else [*found, self.indexer]

    def _zeros(self, like: Tensor, slots: int, heads: int, depth: int) -> Tensor:
        # Zeros, because a mask does not keep out NaN: 0 * NaN is NaN.
        slab = like.new_zeros(self.rows, slots, heads, depth)
        # Runs differ in rows and slots, and the same compiled code is to serve all. Nothing can be
        # marked inside that code, which allocates the slabs where there was nothing to prefill.
        if not torch.compiler.is_compiling():
            torch._dynamo.maybe_mark_dynamic(slab, (0, 1))
        return slab

    def release(self) -> None:
        """Free the slabs. The next write allocates new ones."""
        if self.is_initialized:
            del self.keys, self.values
            self.is_initialized = False
        self.indexer = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        # Some models' values have another depth than their keys.
        self.keys, self.values = (
            self._zeros(states, self.slots, states.shape[1], states.shape[3])
            for states in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        access: Access = args[0]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        rows = access.rows[:, None] if access.writing is None else access.writing
        found = []
        for slab, states in ((self.keys, key_states), (self.values, value_states)):
            # states: (b, H, q, D)
            # Slots before heads, so that a token's K/V of all heads is one block: writes and moves
            # copy it whole.
            slab[rows, access.slots] = states.transpose(1, 2)
            if access.order is not None:
                seen = slab[access.rows[:, None], access.order]
            else:
                window = slab[:, : access.window]
                # A slice is a view; indexing by rows copies their K/V.
                seen = window[: len(access.rows)] if access.dense else window[access.rows]
            seen = seen.transpose(1, 2)  # (b, H, w, D)
            found.append(seen.contiguous() if access.contiguous else seen)
        return found[0], found[1]

    def update_indexer(self, keys: Tensor, access: Access) -> Tensor:
        """Write the keys (b, q, D) by which a layer selects tokens; return those attended to."""
        if self.indexer is None:
            self.indexer = self._zeros(keys, self.slots, 1, keys.shape[2])
        rows = access.rows[:, None]
        self.indexer[access.writing if access.writing is not None else rows, access.slots] = keys[
            :, :, None
        ]
        if access.order is not None:
            return self.indexer[rows, access.order][:, :, 0]
        return self.indexer[access.rows, : access.window, 0]

    def held(self, rows: Tensor, slots: Tensor) -> list[Tensor]:
        """Return copies of slots (n,) of rows (n,): keys, values, the indexer's keys, (n, H, D).

        What there is not is (n, 0): some layers read another's K/V, and few have an indexer.
        """
        kv = [self.keys, self.values] if self.is_initialized else [None, None]
        return [
            torch.empty(len(rows), 0)
            if slab is None
            else slab[rows.to(slab.device), slots.to(slab.device)]
            for slab in (*kv, self.indexer)
        ]

    def restore(self, row: int, slots: Tensor, held: Sequence[Tensor]) -> None:
        """Write what `held` has returned to slots (n,) of a row."""
        keys, values, indexer = held
        if keys.numel():
            if not self.is_initialized:
                # As a forward passes them: (b, H, q, D).
                self.lazy_initialization(keys.transpose(0, 1)[None], values.transpose(0, 1)[None])
            self.keys[row, slots.to(keys.device)] = keys
            self.values[row, slots.to(values.device)] = values
        if indexer.numel():
            if self.indexer is None:
                self.indexer = self._zeros(indexer, self.slots, *indexer.shape[1:])
            self.indexer[row, slots.to(indexer.device)] = indexer

    # What transformers asks a cache layer. The answers do not matter: masks and positions are
    # passed to every forward.
    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.slots, 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return self.slots

    def get_max_cache_shape(self) -> int:
        return self.slots


class HybridLayer(StateLayer, SlabLayer):
    """K/V and states of one layer."""

    is_initialized: bool

    def __init__(self, rows: int, slots: int, depth: int, number_of_states: int) -> None:
        SlabLayer.__init__(self, rows, slots)
        StateLayer.__init__(self, rows, depth, number_of_states)

    def lazy_initialization(self, *args: Any, **kwargs: Any) -> None:
        kind = SlabLayer if args else StateLayer
        kind.lazy_initialization(self, *args, **kwargs)


class SlabCache(Cache):
    """All layers' slabs. `access` is set before a forward, because `update` only gets the layer."""

    access: Access
    steps: Steps

    def __init__(
        self,
        num_layers: int,
        rows: int,
        slots: int,
        kinds: Sequence[tuple[str, int]] = (),
        depth: int = 0,
    ) -> None:
        layers: list[Any] = []
        for number in range(num_layers):
            kind, states = kinds[number] if kinds else ("", 1)
            if kind in STATES:
                layers.append(StateLayer(rows, depth, states))
            elif kind in HYBRIDS:
                layers.append(HybridLayer(rows, slots, depth, states))
            else:
                layers.append(SlabLayer(rows, slots))
        Cache.__init__(self, layers=layers)  # a subclass may have a parent that takes none

    @property
    def state_layers(self) -> list[StateLayer]:
        """The layers that keep states."""
        return [layer for layer in self.layers if isinstance(layer, StateLayer)]

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        self.layers[layer_idx].asked.add(("conv_states", state_idx))
        return super().get_conv_state(layer_idx, state_idx)

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        self.layers[layer_idx].asked.add(("recurrent_states", state_idx))
        return super().get_recurrent_state(layer_idx, state_idx)

    def update_conv_state(
        self, conv_states: Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any
    ) -> Tensor:
        self.layers[layer_idx].asked.add(("conv_states", state_idx))
        whole = super().update_conv_state(conv_states, layer_idx, state_idx, **kwargs)
        self.layers[layer_idx].whole[state_idx] = whole
        return whole

    def update_recurrent_state(
        self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any
    ) -> Tensor:
        self.layers[layer_idx].asked.add(("recurrent_states", state_idx))
        return super().update_recurrent_state(recurrent_states, layer_idx, state_idx, **kwargs)

    def get_query_offset(self, layer_idx: int = 0) -> Any:
        if self.access.indices is None:
            return super().get_query_offset(layer_idx)
        indices = self.steps.indices[0]
        # What a layer adds to 0, 1, 2 and so on for its queries: they need not be in a row.
        return indices - torch.arange(len(indices), device=indices.device)

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> Any:
        if self.access.indices is None:
            return super().get_mask_sizes(query_length, layer_idx)
        indices = self.access.indices[0]
        return len(indices), indices - torch.arange(len(indices), device=indices.device)

    def show_indices(self) -> None:
        """Let indexers see at which positions the tokens in their slots are."""
        for layer in self.layers:
            if isinstance(layer, SlabLayer) and self.access.indices is not None:
                layer.indexer_position_ids = self.access.indices.expand(3, -1, -1)

    def update_indexer(self, keys: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Tensor:
        found: Tensor = self.layers[layer_idx].update_indexer(keys, self.access.on(keys.device))
        return found

    def get_linear_cache(self, layer_idx: int) -> Tensor | None:
        return self.get_recurrent_state(layer_idx)

    def set_linear_cache(self, layer_idx: int, linear_cache: Tensor) -> None:
        self.update_recurrent_state(linear_cache, layer_idx)

    def hide_from_compiler(self) -> None:
        """Let torch.compile leave writes out of what it compiles."""
        self.update = torch.compiler.disable(self.update)  # type: ignore[method-assign]

    @property
    def slab_layers(self) -> list[SlabLayer]:
        """The layers that may keep K/V."""
        return [layer for layer in self.layers if isinstance(layer, SlabLayer)]

    def restore(self, row: int, slots: Tensor, held: Sequence[Tensor]) -> None:
        """Write what the layers' `held` has returned, one after the other, to slots of a row."""
        for number, layer in enumerate(self.slab_layers):
            layer.restore(row, slots, held[3 * number : 3 * number + 3])

    def release(self) -> None:
        """Free all slabs and states."""
        for layer in self.slab_layers:
            layer.release()
        for states in self.state_layers:
            states.forget()

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        return self.layers[layer_idx].update(
            key_states, value_states, self.access.on(key_states.device)
        )


def cache_class(model: nn.Module) -> type[SlabCache]:
    """Return SlabCache, made a subclass of the cache that the model's own file asks for."""
    own = getattr(sys.modules.get(type(model).__module__), "MiniMaxCache", None)
    if own is None:
        return SlabCache
    return type("SlabCache", (SlabCache, own), {"linear_cache": ()})


def plain_cache(states: Sequence[tuple[Tensor, Tensor]] = ()) -> DynamicCache:
    """Return the cache of transformers that grows, filled with K/V, a pair for each layer.

    states: keys and values (b, heads, T, head size).
    """
    cache = DynamicCache()
    for layer, (keys, values) in enumerate(states):
        if keys.shape[2]:
            cache.update(keys, values, layer)
    return cache


def states_of(cache: DynamicCache, start: int = 0) -> list[tuple[Tensor, Tensor]]:
    """Return keys and values (b, heads, T - start, head size) of each layer, from slot `start`."""
    return [(layer.keys[:, :, start:], layer.values[:, :, start:]) for layer in cache.layers]
