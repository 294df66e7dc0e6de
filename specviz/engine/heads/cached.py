"""A draft head with K/V slabs, behind the interface of a cached model.

So moves, drops and records treat a head's K/V as they treat a draft model's. What differs: its
entries need features. `forward` and `prefill` take the target's true ones, `forward_next` takes the
head's own output of the last forward.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from specviz.engine.features import FeatureStore, Select
from specviz.engine.heads.modules import DraftHead
from specviz.engine.kv.cache import CachedModel, Output
from specviz.engine.kv.feed import Feed
from specviz.engine.kv.moves import Move


class CachedHead(CachedModel):
    """A head with K/V of `rows` rows and `slots` slots.

    Attributes:
        features: the target's, of committed tokens.
    """

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
        self.hides_first = head.settings.hides_first
        self.features = features

    def forward(self, feed: Feed, **arguments: Any) -> Output:
        """Read committed tokens with their true features.

        Return logits (b, 1, V) and own features (b, 1, D) after the last.

        Args:
            feed: the input; feed.rows are 0..b-1.
            arguments: further ones of the head's own forward.
        """
        features = self.features.before(feed.rows, feed.indices)
        if not self.holds_kv:
            # Heads on the target's state alone have nothing to read.
            return Output(features[..., :0], features[:, -1:])
        return self._read(feed, features, **arguments)

    def forward_next(self, feed: Feed, features: Tensor | None) -> Output:
        """Read drafts, with the head's own features (b, q, D) of the tokens before them."""
        assert features is not None, "a draft follows entries that were read before"
        return self._read(feed, features, logits_to_keep=features.shape[1])

    def ready(self, feed: Feed) -> Feed:
        return replace(super().ready(self._hiding_first(feed)), visible=feed.visible)

    def _mask(self, feed: Feed) -> Tensor:
        return super()._mask(self._hiding_first(feed))

    def _hiding_first(self, feed: Feed) -> Feed:
        """Return the feed with entry 0 hidden from the entries behind it, if the head wants that.

        The record keeps the feed as it was: entry 0 is there, as any token's is.
        """
        if not self.hides_first:
            return feed
        # Slots are in the order of a row's tokens, so the first that a query sees is entry 0's.
        rank = feed.visible.cumsum(-1)
        is_only = rank[..., -1:] == 1  # entry 0 itself, which has nothing else to attend to
        return replace(feed, visible=feed.visible & ((rank > 1) | is_only))

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
            self.prefill_with(feed, self.features.before(feed.rows, feed.indices))

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
