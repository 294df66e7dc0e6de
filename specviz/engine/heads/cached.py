"""A draft head with K/V slabs, behind the interface of a cached model.

So moves, drops and records treat a head's K/V as they treat a draft model's. What differs: its
entries need features. `forward` and `prefill` take the target's true ones, `forward_next` takes the
head's own output of the last forward.
"""

from typing import Any

from torch import Tensor

from specviz.engine.features import FeatureStore, Select
from specviz.engine.heads.base import DraftHead
from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.feed import Feed


class CachedHead(CachedModel):
    """A head with K/V of `rows` rows and `slots` slots.

    Attributes:
        features: the target's, of committed tokens.
        own: (b, 1, D), the head's own feature after the last entry that it read.
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
        self.features = features
        self.own: Tensor | None = None

    def forward(self, feed: Feed, **arguments: Any) -> Tensor:
        """Read committed tokens with their true features. Return logits (b, 1, V) after the last.

        Args:
            feed: the input; feed.rows are 0..b-1.
            arguments: further ones of the head's own forward.
        """
        return self._read(feed, self.features.before(feed.rows, feed.indices), **arguments)

    def forward_next(self, feed: Feed) -> Tensor:
        """Read one draft a row, with the head's own feature of the token before it."""
        assert self.own is not None, "a draft follows entries that were read before"
        return self._read(feed, self.own)

    def _read(self, feed: Feed, features: Tensor, **arguments: Any) -> Tensor:
        arguments |= self._arguments(feed, dense=True)
        with self._attending():
            output = self._call(features=features, **arguments)
        self.own = output.hidden
        logits: Tensor = output.logits[..., : self.vocabulary]
        return logits

    def prefill(self, feed: Feed, *, select: Select | None = None) -> None:
        """Write K/V of committed tokens, whose true features are known. No logits are computed."""
        features = self.features.before(feed.rows, feed.indices)
        with self._attending():
            self.model(features=features, logits_to_keep=0, **self._arguments(feed, dense=False))
