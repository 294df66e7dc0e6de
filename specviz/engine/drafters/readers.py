"""What reads the drafts of trees: a draft model, or a head with the features that it has so far.

A reader gives logits after the pending token, and then level by level after drafts. A draft model
and a chain head feed each draft as a node of a tree. Heads on one state only mix the draft's token
into the state that its parent left.
"""

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from specviz.engine.heads import ResidualHeads
from specviz.engine.heads.cached import CachedHead
from specviz.engine.heads.modules import at
from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.feed import Feed
from specviz.engine.state import State


class Reader(Protocol):
    """Reads what a tree is grown from."""

    def begin(self, state: State) -> Tensor:
        """Return the logits (b, 1, V) after the pending tokens, in float32."""
        ...

    def read(
        self, tokens: Tensor, parents: Tensor, feed: Callable[[], Feed] | None = None
    ) -> Tensor:
        """Return the logits (b, m, V) after drafts, in float32.

        Args:
            tokens: (b, m).
            parents: (b, m), which of what was read last each of them follows.
            feed: makes the feed of the drafts, for a reader that feeds them.
        """
        ...


class ModelReader:
    """A draft model."""

    def __init__(self, cache: CachedModel) -> None:
        self.cache = cache

    def begin(self, state: State) -> Tensor:
        # Two tokens, as for a chain: the last draft that was accepted may not have been read.
        fed, indices = state.batch.last_tokens(2)
        return self.cache.forward(state.feed(fed, indices))[:, -1:].float()

    def read(
        self, tokens: Tensor, parents: Tensor, feed: Callable[[], Feed] | None = None
    ) -> Tensor:
        assert feed is not None, "drafts are fed as nodes"
        return self.cache.forward(feed()).float()


class ChainReader:
    """A head that goes on with its own output, which each draft takes from its parent."""

    def __init__(self, cache: CachedHead) -> None:
        self.cache = cache

    def begin(self, state: State) -> Tensor:
        fed, indices = state.batch.last_tokens(count_fed(state))
        return self.cache.forward(state.feed(fed, indices)).float()

    def read(
        self, tokens: Tensor, parents: Tensor, feed: Callable[[], Feed] | None = None
    ) -> Tensor:
        assert feed is not None, "drafts are fed as nodes"
        assert self.cache.own is not None, "drafts follow entries that were read before"
        return self.cache.forward_next(feed(), at(self.cache.own, parents)).float()


class ResidualReader:
    """Heads on one state of the target: level i is what head i proposes."""

    def __init__(self, cache: CachedHead, head: ResidualHeads) -> None:
        self.cache = cache
        self.head = head
        self._states: Tensor
        self._level = 0

    def begin(self, state: State) -> Tensor:
        fed, indices = state.batch.last_tokens(count_fed(state))
        self.cache.forward(state.feed(fed, indices))
        assert self.cache.own is not None
        return self._step(self.cache.own, fed[:, -1:])

    def read(
        self, tokens: Tensor, parents: Tensor, feed: Callable[[], Feed] | None = None
    ) -> Tensor:
        return self._step(at(self._states, parents), tokens)

    def _step(self, states: Tensor, tokens: Tensor) -> Tensor:
        output = self.head.step(states, tokens, self._level)
        self._states = output.hidden
        self._level += 1
        return output.logits[..., : self.cache.vocabulary].float()


def make_reader(state: State) -> Reader:
    """Return the reader of what drafts in this run."""
    cache = state.caches["draft"]
    if not isinstance(cache, CachedHead):
        return ModelReader(cache)
    if isinstance(cache.model, ResidualHeads):
        return ResidualReader(cache, cache.model)
    return ChainReader(cache)


def count_fed(state: State) -> int:
    """Return how many of each row's last tokens a head is fed when a round begins."""
    # A graph has the shape that it was captured with. Without K/V, short rows have not been read.
    if state.graphs.active or not state.keep_draft:
        return state.fed_first
    unread = [row.length - row.draft_cached for row in state.batch.rows]
    return min(state.fed_first, max(1, *unread))
