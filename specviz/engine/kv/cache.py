"""The KV state of one model, and the forwards that read and write it.

Contract: a forward writes each token's K/V at the slot that the caller names and attends to the
slots that the caller makes visible, so rows of different length need no common column. Not known
here: which token a slot holds, which is up to the layout.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.engine.features import Select
from specviz.engine.kv.attention import (
    PACKED,
    additive_mask,
    attending,
    attends_grouped,
    grouped_mask,
    query_groups,
    takes_grouped,
)
from specviz.engine.kv.compiled import CompiledLayers, compiled
from specviz.engine.kv.feed import Feed
from specviz.engine.kv.layer_masks import LayerMasks
from specviz.engine.kv.moves import Move, move, row_pairs
from specviz.engine.kv.packing import Packing, find_packing, is_worth_packing
from specviz.engine.kv.rowwise import find_rowwise, running_rowwise
from specviz.engine.kv.rules import reads_at_once
from specviz.engine.kv.slabs import Access, cache_class
from specviz.engine.kv.states import Snapshot, Steps, find_mixers, held_states, stepping
from specviz.engine.models.compat import asks_indices, read_setting, selects_tokens

# What a prefill on a CPU costs beside its tokens, as a number of tokens.
FORWARD_TOKENS = 64
# How many more states a row keeps than it drafts tokens: those before the first token that a round
# reads. A draft model reads the last token but one again.
MORE_STATES = 2


class Output(NamedTuple):
    """What a forward gives.

    Attributes:
        logits: (b, q, V), in the model's dtype.
        features: (b, q, F), what `select` keeps of the hidden states; of a draft head its own
            features of what it read. None for nothing.
    """

    logits: Tensor
    features: Tensor | None


class CachedModel:
    """A causal LM with KV slabs of `rows` rows and `slots` slots, on each layer's own device.

    Attributes:
        vocabulary: V, the number of ids in the logits; None for all ids of the model.
        log: None, or a list to which every forward appends its `Feed` and every move its list of
            `Move`s, in order.
        holds_kv: whether there is any K/V to keep; some draft heads have none.
        packs: when `forward` leaves the filling of a feed out: "never", "worth" (where that saves
            time) or "always"; see `packing`.
        cache: the slabs. Layers with states keep those of a row's last `columns` tokens and a few
            more, or as `state` says; see `Levers`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        rows: int,
        slots: int,
        vocabulary: int | None = None,
        *,
        columns: int = 0,
        state: str = "states",
    ) -> None:
        config = model.config.get_text_config()
        num_layers = config.num_hidden_layers
        self.model = model
        self.rows = rows
        self.slots = slots
        self.vocabulary = vocabulary
        self._layer_masks = LayerMasks(model)
        kinds: list[tuple[str, int]] = []
        self._mixers = find_mixers(model) if self._layer_masks.has_states else {}
        self._rowwise = find_rowwise(model)
        self._asks_indices = asks_indices(model)
        if self._mixers:
            states = read_setting(config, "number_of_conv_states") or 1
            kinds = [(kind, states) for kind in config.layer_types]
        make = cache_class(model)
        self.cache = make(num_layers, rows, slots, kinds, depth=columns + MORE_STATES)
        self._set_way(state)
        for mixer, number in self._mixers.items():
            self.cache.layers[number].own = held_states(mixer)
        # Of each row, the index that it read last.
        self._last = torch.full((rows,), -1, device="cpu")
        self.log: list[Feed | list[Move]] | None = None
        self.holds_kv = True
        self.packs = "never"
        self._grouped = takes_grouped(model)
        self._call: Callable[..., Any] = model

    def compile(self) -> None:
        """Run the forwards of a round through torch.compile, and some prefills."""
        self._call = compiled(self.model)
        if isinstance(self._call, CompiledLayers):
            self.cache.hide_from_compiler()

    def compile_like(self, other: "CachedModel") -> None:
        """Run the forwards as `other` does, another cache of the same model."""
        self._call = other._call

    def _set_way(self, state: str) -> None:
        """Let layers keep states, or the inputs of their rules; by bytes for "auto"."""
        most = {"states": inf, "inputs": 0.0}.get(state)
        if most is None:
            weights = sum(each.numel() * each.element_size() for each in self.model.parameters())
            most = weights / max(len(self._mixers), 1)
        for layer in self.cache.state_layers:
            layer.most_bytes = most
            layer.at_once = True
        for mixer, number in self._mixers.items():
            own: Any = self.cache.layers[number]
            own.at_once &= reads_at_once(mixer)

    @cached_property
    def _groups(self) -> int:
        # Not before the first forward: a trial of the model may still change it.
        return query_groups(self.model)

    @cached_property
    def _dtype(self) -> torch.dtype:
        # A model looks for a parameter each time that it is asked.
        return self.model.dtype

    @property
    def forward_tokens(self) -> int | None:
        """What one more prefill costs, in tokens; None where that is not known."""
        return FORWARD_TOKENS if self.model.device.type == "cpu" else None

    @property
    def unrecorded(self) -> list[str]:
        """What layers read beyond what a record says: "windows", "selection"."""
        found = {
            "windows": len(set(self._layer_masks.widths.values())) > 1,
            "selection": selects_tokens(self.model),
        }
        return [kind for kind, applies in found.items() if applies]

    @property
    def windows(self) -> dict[str, int]:
        """To how many tokens layers attend, by type; empty if all attend to all."""
        return self._layer_masks.widths

    @property
    def layer_counts(self) -> dict[str, int]:
        """How many layers there are of each type; empty if the model does not say."""
        types = read_setting(self.model.config.get_text_config(), "layer_types")
        return dict(Counter(types or ()))

    @property
    def keeps_states(self) -> bool:
        """Whether layers keep states, as convolutions and recurrences do."""
        return bool(self._mixers)

    @property
    def bytes_per_state(self) -> int:
        """Bytes of a row's states after one token, over all layers."""
        layers = self.cache.state_layers
        return sum(ring.held[0, 0].nbytes for layer in layers for ring in layer.rings.values())

    @property
    def masks_columns(self) -> bool:
        """Whether layers mask columns of the cache by tables of their own."""
        return bool(self._layer_masks.masking)

    @property
    def bytes_per_slot(self) -> int:
        """Bytes of K and V in one slot, over all layers; 0 before the first forward."""
        return sum(slab[0, 0].numel() * slab.element_size() for slab in self.slabs)

    def forward(self, feed: Feed, *, select: Select | None = None, dense: bool = True) -> Output:
        """Run one forward and write its K/V at feed.slots.

        Args:
            feed: the input.
            select: what to keep of the hidden states, see `Features`; None for nothing.
            dense: whether feed.rows are 0..b-1, which saves copying K/V of the rows.
        """
        arguments = self._arguments(feed, dense)
        packing = None
        if self._leaves_filling_out(feed):
            packing = find_packing(feed)
            arguments |= self._pack(feed, packing)
        if select is not None:
            arguments["output_hidden_states"] = True
        with self._running(feed):
            output = self._call(**arguments)
        features = None if select is None else self._select(select, output.hidden_states)
        # Ids beyond V are padding of the embedding, which must never be chosen.
        logits = output.logits[..., : self.vocabulary]
        if packing is None:
            return Output(logits, features)
        return Output(
            packing.unpack(logits), None if features is None else packing.unpack(features)
        )

    def _leaves_filling_out(self, feed: Feed) -> bool:
        if self.packs == "never" or feed.count is None:
            return False
        return self.packs == "always" or is_worth_packing(feed)

    def _pack(self, feed: Feed, packing: Packing) -> dict[str, Any]:
        """Let the next forward write and compute the packed tokens of the feed alone."""
        rows = feed.rows[:, None].expand_as(feed.tokens)
        self.cache.access = replace(
            self.cache.access, slots=packing.pack(feed.slots), writing=packing.pack(rows)
        )
        return {
            "input_ids": packing.pack(feed.tokens),
            "position_ids": packing.pack(feed.positions),
            PACKED: packing,
        }

    def prefill(self, feed: Feed, *, select: Select | None = None) -> Tensor | None:
        """Write K/V of feed.tokens; return what `select` keeps of the hidden states.

        No logits are computed. `feed.rows` may be any rows.
        """
        if self._compiles_prefill_of(feed):
            return self.forward(feed, select=select).features
        arguments = self._arguments(feed, dense=False)
        if self._mixers:
            counts = feed.valid.sum(1).tolist()
            self.cache.steps = replace(self.cache.steps, counts=counts)
        if select is not None:
            arguments["output_hidden_states"] = True
        with self._running(feed):
            # Without the LM head: a prompt's logits are (q, V), and none of them is needed.
            output = self.model.base_model(**arguments)
        return None if select is None else self._select(select, output.hidden_states)

    def _compiles_prefill_of(self, feed: Feed) -> bool:
        """Return whether the compiled code that verifies drafts reads the tokens of a prefill."""
        if self._call is self.model or self.model.device.type != "cpu":
            return False
        # Several rows would need code of their own, since those that are prefilled together need
        # not be the first ones. So would a single token, and a forward that allocates the slabs.
        is_usual = feed.tokens.shape[1] > 1 and self.cache.layers[0].is_initialized
        return self.rows == 1 and is_usual

    def reads(self, step: int) -> int:
        """Return how many drafts the forward of a chain's `step` > 0 reads, the last included."""
        return 1

    def forward_next(self, feed: Feed, features: Tensor | None) -> Output:
        """Run a forward over drafts; a head needs its own features of the tokens before them."""
        return self.forward(feed)

    def _select(self, select: Select, hidden_states: Sequence[Tensor]) -> Tensor:
        # A device_map leaves layers' outputs on several devices.
        return select(hidden_states).to(self.model.device)

    def _running(self, feed: Feed) -> AbstractContextManager[None]:
        """Let the model's modules read what the cache holds for a feed, inside the context."""
        # Of most models, modules need nothing but their inputs. A context takes microseconds.
        if not (self._mixers or self._rowwise or self.masks_columns):
            return self._attending()
        return self._serving(feed)

    @contextmanager
    def _serving(self, feed: Feed) -> Iterator[None]:
        with (
            self._attending(),
            self._layer_masks.obeyed(feed.visible, _by_row(feed.shortened)),
            running_rowwise(self._rowwise, self.cache),
            stepping(self._mixers, self.cache),
        ):
            yield

    def _attending(self) -> AbstractContextManager[None]:
        # A run has done so already. Checks and studies call single forwards.
        already = not self._grouped or attends_grouped(self.model)
        return nullcontext() if already else attending([self.model])

    def held(self, rows: Tensor, slots: Tensor) -> list[Tensor]:
        """Return copies of slots (n,) of rows (n,), three a layer; see `SlabLayer.held`."""
        return [held for layer in self.cache.slab_layers for held in layer.held(rows, slots)]

    def snapshot(self, row: int, index: int) -> list[Snapshot] | None:
        """Return copies of a row's states after a token, layer by layer; None if they are gone."""
        found = []
        for layer in self.cache.state_layers:
            states = layer.snapshot(row, index)
            if states is None:
                return None
            found.append(states)
        return found

    def put_back(self, row: int, index: int, snapshots: Sequence[Snapshot]) -> None:
        """Let a row go on from these states after a token, as `snapshot` has returned them."""
        self._last[row] = index
        for layer, states in zip(self.cache.state_layers, snapshots, strict=True):
            layer.put_back(row, index, states)

    def restore(self, row: int, slots: Tensor, held: Sequence[Tensor]) -> None:
        """Write what `held` has returned to slots (n,) of a row."""
        self.cache.restore(row, slots, held)

    @property
    def slabs(self) -> list[Tensor]:
        """The slabs that are allocated, layer by layer."""
        return [slab for layer in self.cache.slab_layers for slab in layer.slabs]

    def _note(self, entry: Feed | list[Move]) -> None:
        if self.log is not None:
            self.log.append(entry)

    def _arguments(self, feed: Feed, dense: bool) -> dict[str, Any]:
        if self._mixers:
            feed = self._with_states(feed)
        self._note(feed)
        return self._inputs(feed, dense) | {"attention_mask": self._mask(feed)}

    def _with_states(self, feed: Feed) -> Feed:
        """Return the feed with the states that its rows go on from."""
        after = feed.after
        self._last = self._last.to(feed.rows.device)
        if after is None:
            after = feed.indices[:, 0] - 1
            if feed.goes_on is not None:
                goes_on = feed.goes_on & (after >= 0)
                after = torch.where(goes_on, self._last[feed.rows], after)
        read = feed.indices.masked_fill(~feed.valid, -1).amax(1)
        self._last[feed.rows] = torch.where(read < 0, self._last[feed.rows], read)
        return replace(feed, after=after)

    def narrowed(self, feed: Feed) -> Tensor | None:
        """Return what queries of the layers with a window see, (b, q, w); None without any."""
        return self._layer_masks.narrowed(feed.visible, _by_row(feed.shortened))

    def _inputs(self, feed: Feed, dense: bool) -> dict[str, Any]:
        window = feed.visible.shape[-1]
        # The model passes K/V of each layer to the cache, but not where it belongs.
        # Attention code of a class's own may take views of K/V, which need contiguous memory.
        own = not self.model._supports_attention_backend
        # Without states, nothing asks for what is gone on from.
        after = feed.indices[:, 0] if feed.after is None else feed.after
        self.cache.steps = Steps(feed.rows, feed.indices, after, None)
        self.cache.access = Access(feed.rows, feed.slots, window, dense, feed.order, own)
        if self._asks_indices:
            # In a tree, a token's index is that on its own path.
            ranks = (feed.visible.cumsum(-1) - 1) * feed.visible
            self.cache.access = replace(self.cache.access, indices=ranks.amax(1))
            self.cache.show_indices()
        return {
            "input_ids": feed.tokens,
            "position_ids": feed.positions,
            "past_key_values": self.cache,
            "use_cache": True,
        }

    def ready(self, feed: Feed) -> Feed:
        """Return the feed with its mask made, so that feeding it in parts makes the mask once."""
        if not self._makes_one_mask:
            return feed
        return replace(feed, added=additive_mask(feed.visible, self._dtype))

    @property
    def _makes_one_mask(self) -> bool:
        """Whether a feed's `added` serves all layers of the model."""
        return self._grouped and not self._layer_masks.widths

    def _mask(self, feed: Feed) -> Any:
        """Return the mask of `grouped_mask`, or (b, 1, q, w) for other models.

        A model whose layers attend to windows may take one for each type of layer.
        """
        if feed.added is not None:
            return grouped_mask(feed.added, self._groups)
        return self._layer_masks.masks(feed.visible, self._mask_of, _by_row(feed.shortened))

    def _mask_of(self, visible: Tensor) -> Tensor:
        if self._grouped:
            return grouped_mask(additive_mask(visible, self._dtype), self._groups)
        if self.model.config._attn_implementation == "sdpa":
            return visible[:, None]
        # Eager attention adds the mask to the scores, so a bool mask would be silently wrong there.
        return additive_mask(visible[:, None], self._dtype, torch.finfo(self._dtype).min)

    def release(self) -> None:
        """Free the slabs and states, where none of them is needed again."""
        self.cache.release()

    def zero_nonfinite(self, rows: Sequence[int]) -> None:
        """Replace non-finite values in these rows by zeros."""
        for slab in self.slabs:
            for row in rows:  # a view each; indexing with a list would change a copy
                slab[row].nan_to_num_(0.0, 0.0, 0.0)

    def move(self, moves: Sequence[Move]) -> None:
        """Move blocks of K/V in every layer, all read before any is written."""
        if not moves:
            return
        # One entry for all: the record's replay must read them before it writes any, too.
        self._note(list(moves))
        move(self.slabs, moves)
        pairs = row_pairs(moves)
        if pairs and self._mixers:
            from_rows, to_rows = torch.tensor(pairs, device=self.model.device).T
            self._last[to_rows] = self._last[from_rows]
            for layer in self.cache.state_layers:
                layer.move(from_rows, to_rows)


def _by_row(shortened: Tensor | None) -> Tensor | int:
    """Return one number for all queries and slots of a row, (b, 1, 1)."""
    return 0 if shortened is None else shortened[:, None, None]
