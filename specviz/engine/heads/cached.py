"""A draft head with K/V slabs, behind the interface of a cached model.

So moves, drops and records treat a head's K/V as they treat a draft model's. What differs: its
entries need features. `forward` and `prefill` take the target's true ones, `forward_next` takes the
head's own output of the last forward.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from specviz.engine.features import Features, FeatureStore, Select
from specviz.engine.heads.dflash import DFlashHead
from specviz.engine.heads.modules import DraftHead
from specviz.engine.heads.mtp import MtpHead
from specviz.engine.kv.cache import CachedModel, Output
from specviz.engine.kv.feed import Feed
from specviz.engine.kv.moves import Move, row_pairs
from specviz.engine.models.compat import SLIDING, WIDTHS, read_setting


class CachedHead(CachedModel):
    """A head with K/V of `rows` rows and `slots` slots.

    Attributes:
        features: the target's, of committed tokens.
        hidden_entries: how many of a row's first entries no later one attends to.
    """

    model: DraftHead

    def __init__(
        self,
        head: DraftHead,
        rows: int,
        slots: int,
        vocabulary: int | None,
        features: FeatureStore,
    ) -> None:
        super().__init__(head, rows, slots, vocabulary)
        self.holds_kv = head.settings.has_cache
        self.hidden_entries = int(head.settings.hides_first)
        self.features = features

    def forward(self, feed: Feed, **arguments: Any) -> Output:
        """Read committed tokens with their true features.

        Return logits (b, 1, V) and own features (b, 1, D) after the last.

        Args:
            feed: the input; feed.rows are 0..b-1.
            arguments: further ones of the head's own forward.
        """
        features = self._features_of(feed)
        if not self.holds_kv:
            # Heads on the target's state alone have nothing to read.
            return Output(features[..., :0], features[:, -1:])
        return self._read(feed, features, **arguments)

    def forward_next(self, feed: Feed, features: Tensor | None) -> Output:
        """Read drafts, with the head's own features (b, q, D) of the tokens before them."""
        assert features is not None, "a draft follows entries that were read before"
        return self._read(feed, features, logits_to_keep=features.shape[1])

    def _features_of(self, feed: Feed) -> Tensor:
        """Return the target's features (b, q, D) that the entries of a feed read."""
        return self.features.before(feed.rows, feed.indices, self.model.lag)

    def ready(self, feed: Feed) -> Feed:
        hidden = hiding_first(feed, self.hidden_entries)
        return replace(super().ready(hidden), visible=feed.visible)

    def _mask(self, feed: Feed) -> Any:
        # The record keeps the feed as it was: entry 0 is there, as any token's is.
        return super()._mask(hiding_first(feed, self.hidden_entries))

    def _read(self, feed: Feed, features: Tensor, **arguments: Any) -> Output:
        arguments |= self._arguments(feed, dense=True)
        if self._call is not self.model:
            features = features.clone()  # compiled code for a view would depend on its offset
        with self._attending():
            output = self._call(features=features, **arguments)
        return Output(output.logits[..., : self.vocabulary], output.hidden)

    def prefill(self, feed: Feed, *, select: Select | None = None) -> None:
        """Write K/V of committed tokens, whose true features are known. No logits are computed."""
        if self.holds_kv:
            self.prefill_with(feed, self._features_of(feed))

    def prefill_with(self, feed: Feed, features: Tensor) -> None:
        """Write K/V of tokens, given the features (b, q, D) of those before them."""
        if self._compiles_prefill_of(feed):
            self._read(feed, features)
            return
        with self._attending():
            self.model(features=features, logits_to_keep=0, **self._arguments(feed, dense=False))

    def move(self, moves: Sequence[Move]) -> None:
        if self.holds_kv:
            super().move(moves)


class CachedMtp(CachedHead):
    """MTP layers, whose K/V of a token lies in the same slot of all of them.

    What a layer makes of each token is kept by row and index, as features are, for the next layer.
    """

    model: MtpHead

    def __init__(
        self,
        head: MtpHead,
        rows: int,
        slots: int,
        vocabulary: int | None,
        features: FeatureStore,
    ) -> None:
        super().__init__(head, rows, slots, vocabulary, features)
        self.hidden_entries = 1
        wanted = Features(features.values.shape[2], features.select)
        size = features.values.shape[1]
        self._made = [
            FeatureStore(wanted, rows, size, features.values.dtype, features.values.device)
            for _ in head.layers[1:]
        ]
        self._step = 0

    def reads(self, step: int) -> int:
        # Layer k of a chain has not seen any of the drafts yet.
        return step if step < len(self.model.layers) else 1

    def ready(self, feed: Feed) -> Feed:
        return feed if self._made else super().ready(feed)  # layers differ in what they hide

    def forward(self, feed: Feed, **arguments: Any) -> Output:
        self._step = 0
        self._note(feed)
        features = self._features_of(feed)
        first, _ = self.read_committed(self._call, feed, features, dense=True, keep=1)
        return Output(first.logits[..., : self.vocabulary], first.hidden[:, -1:])

    def forward_next(self, feed: Feed, features: Tensor | None) -> Output:
        self._step += 1
        layer = min(self._step, len(self.model.layers) - 1)
        if self._step <= layer:
            features = self._made[layer - 1].before(feed.rows, feed.indices)
        assert features is not None, "a draft follows entries that were read before"
        self._note(feed)
        with self._attending():
            output = self._read_layer(self._call, layer, feed, features, dense=True, keep=1)
        return Output(output.logits[..., : self.vocabulary], output.hidden[:, -1:])

    def prefill_with(self, feed: Feed, features: Tensor) -> None:
        self._note(feed)
        self.read_committed(self.model, feed, features, dense=False, keep=0)

    def read_committed(
        self, call: Any, feed: Feed, features: Tensor, *, dense: bool, keep: int
    ) -> tuple[Any, Tensor]:
        """Read committed tokens with all layers.

        Return layer 0's output, with logits after the last `keep` tokens, and the states (b, q, D)
        that the last layer made.
        """
        with self._attending():
            first = output = self._read_layer(call, 0, feed, features, dense=dense, keep=keep)
            for layer, made in enumerate(self._made, 1):
                features = made.before(feed.rows, feed.indices)
                output = self._read_layer(call, layer, feed, features, dense=dense, keep=0)
        return first, output.hidden

    def _read_layer(
        self, call: Any, layer: int, feed: Feed, features: Tensor, *, dense: bool, keep: int
    ) -> Any:
        self.hidden_entries = layer + 1
        arguments = self._inputs(feed, dense) | {"attention_mask": self._mask(feed)}
        if call is not self.model:
            features = features.clone()  # compiled code for a view would depend on its offset
        output = call(features=features, layer=layer, logits_to_keep=keep, **arguments)
        if layer < len(self._made):
            self._made[layer].write(feed.rows, feed.indices, output.hidden)
        return output

    def move(self, moves: Sequence[Move]) -> None:
        super().move(moves)
        pairs = row_pairs(moves)
        if pairs and self._made:
            from_rows, to_rows = torch.tensor(pairs, device=self.model.device).T
            for made in self._made:
                made.values[to_rows] = made.values[from_rows]

    def zero_nonfinite(self, rows: Sequence[int]) -> None:
        super().zero_nonfinite(rows)
        for made in self._made:
            made.zero_nonfinite(rows)


class CachedDFlash(CachedHead):
    """A DFlash drafter: a forward reads new tokens of the context, and the block behind them."""

    model: DFlashHead

    def forward(self, feed: Feed, **arguments: Any) -> Output:
        """Return logits (b, K, V) for the masks of the block, the last K + 1 tokens of the feed."""
        self._note(feed)
        length = self.model.settings.heads + 1
        context = slice(0, feed.tokens.shape[1] - length)
        features = self._features_of(feed.part(feed.tokens[:, context], context))
        block = slice(context.stop, None)
        inputs = self._inputs(feed, dense=True) | {
            "input_ids": feed.tokens[:, block],
            "attention_mask": self._mask(feed.part(feed.tokens[:, block], block)),
        }
        with self._attending():
            output = self._call(features=features, **inputs)
        return Output(output.logits[..., : self.vocabulary], None)

    def prefill_with(self, feed: Feed, features: Tensor) -> None:
        self._note(feed)
        inputs = self._inputs(feed, dense=False)
        self.model.read_context(features, feed.positions, inputs["past_key_values"])

    def _mask(self, feed: Feed) -> Any:
        """Return the mask of a block; windows reach as far ahead as back."""
        width = read_setting(self.model.config, WIDTHS[SLIDING])
        found: dict[str, Any] = {}
        for kind in dict.fromkeys(self.model.config.layer_types):
            visible = feed.visible
            if kind == SLIDING:
                index = visible.cumsum(-1) - 1  # of each visible token in its row
                visible = visible & ((feed.indices[..., None] - index).abs() <= width)
            found[kind] = self._mask_of(visible)
        return found


def cached_head(
    head: DraftHead, rows: int, slots: int, vocabulary: int | None, features: FeatureStore
) -> CachedHead:
    """Return the head with K/V of so many rows and slots."""
    kind = {MtpHead: CachedMtp, DFlashHead: CachedDFlash}.get(type(head), CachedHead)
    return kind(head, rows, slots, vocabulary, features)


def hiding_first(feed: Feed, count: int) -> Feed:
    """Return the feed with a row's first `count` entries hidden from all behind them."""
    if not count:
        return feed
    # Slots are in the order of a row's tokens, so the first that a query sees are those entries'.
    rank = feed.visible.cumsum(-1)
    last = rank[..., -1:]
    is_own = (rank == last) & (last <= count)  # a hidden entry itself has nothing else
    return replace(feed, visible=feed.visible & ((rank > count) | is_own))
