"""Draft heads as drafters: they read the target's own hidden states instead of running a model.

A head reads the features of committed tokens. Beyond the pending token none are known, so a chain
goes on with the head's own output. What it has written for such guesses is right for the round
only: accepted drafts are read again, with true features, when the next round begins.

Sources: those of `specviz.engine.heads.modules`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.engine.draft import Draft
from specviz.engine.drafters.base import Drafter, Task
from specviz.engine.drafters.chains import choose, run_ahead
from specviz.engine.features import Features
from specviz.engine.heads import DFlashHead, DraftHead, ResidualHeads
from specviz.engine.heads.cached import CachedHead
from specviz.engine.heads.modules import at
from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.feed import Feed
from specviz.engine.models.pair import Pair
from specviz.engine.state import State
from specviz.util.validate import require_bool


@dataclass(frozen=True)
class HeadDrafter(Drafter):
    """A head of the pair, by the drafter's name."""

    def head(self, pair: Pair) -> DraftHead:
        """Return the pair's head of this name. Raise ValueError if it has none."""
        if self.name not in pair.heads:
            known = ", ".join(pair.heads) or "none"
            own = ", or load_heads(None, pair) for the target's own layers"
            raise ValueError(
                f"drafter={self.name!r} needs a head that was trained on this target, and the "
                f"pair's heads are: {known}; pass load_heads(folder, pair)"
                f"{own if self.name == 'mtp' else ''}, or drafter='model'"
            )
        return pair.heads[self.name]

    def features(self, pair: Pair) -> Features:
        head = self.head(pair)
        return Features(head.settings.hidden_size, lambda states: head.fuse(head.select(states)))

    def models(self, pair: Pair) -> dict[str, PreTrainedModel]:
        return {"draft": self.head(pair)}

    def limit(self, pair: Pair) -> int | None:
        return self.head(pair).settings.heads or None

    def check(self, task: Task) -> None:
        self.check_depth(task.max_draft_tokens, task.pair)

    def check_depth(self, depth: int, pair: Pair) -> None:
        """Raise ValueError if the head cannot draft `depth` tokens in a row."""
        most = self.head(pair).settings.heads
        if most and depth > most:
            raise ValueError(
                f"num_draft_tokens must be at most {most}, as many as the head of "
                f"drafter={self.name!r} drafts, got {depth}; lower it, or the depth of the tree"
            )


@dataclass(frozen=True)
class Eagle3Drafter(HeadDrafter):
    """A head that goes on with its own output, one forward a draft.

    Attributes:
        reread: whether accepted drafts are read again with true features. Without it the text is
            the same, and fewer drafts are accepted from round to round.
    """

    reread: bool = True

    name: ClassVar[str] = "eagle3"
    description: ClassVar[str] = (
        "EAGLE-3: one layer over tokens and three of the target's layers, fed with its own output"
    )
    capturable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_bool("reread", self.reread)

    @property
    def draft_kv(self) -> str:
        return "provisional"

    @property
    def rereads(self) -> str:
        return "drafts" if self.reread else "none"

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        return run_ahead(state, "draft", num_draft_tokens, count_fed(state))


@dataclass(frozen=True)
class MtpDrafter(Eagle3Drafter):
    """The target's own MTP layers: step k of a chain is layer k, then the last one again.

    Attributes:
        reread: as in `Eagle3Drafter`.
    """

    name: ClassVar[str] = "mtp"
    description: ClassVar[str] = (
        "MTP: the layers that the target's checkpoint has for predicting further tokens"
    )
    capturable: ClassVar[bool] = True


@dataclass(frozen=True)
class DFlashDrafter(HeadDrafter):
    """A block of masks, filled in by one forward."""

    name: ClassVar[str] = "dflash"
    description: ClassVar[str] = (
        "DFlash: one forward fills in a block of masks, which sees several of the target's layers"
    )
    capturable: ClassVar[bool] = True

    @property
    def draft_kv(self) -> str:
        return "masks"

    @property
    def rereads(self) -> str:
        return "pending"  # it is part of the block

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        cache = state.caches["draft"]
        head = cache.model
        assert isinstance(head, DFlashHead)
        fed, indices = state.batch.last_tokens(state.fed_first)
        block = head.block(fed[:, -1:])  # (b, block size)
        length = block.shape[1]
        indices = indices[:, -1:] + torch.arange(1 - state.fed_first, length, device=fed.device)
        valid = indices >= 0
        # What a short row lacks of the context is filling, in a slot behind the block.
        indices = torch.where(valid, indices, state.batch.n[:, None] - 1 + length)
        tokens = torch.cat([fed[:, :-1], block], 1)
        feed = state.feed_rows(state.batch.index, tokens, indices, state.window, valid)
        # All of a block see what its last token sees.
        whole = feed.visible[:, -1:].expand(-1, length, -1)
        visible = torch.cat([feed.visible[:, :-length], whole], 1)
        logits = cache.forward(replace(feed, visible=visible)).logits[:, :num_draft_tokens].float()
        chosen: list[Tensor] = []  # (b, 1) each
        steps = []
        for j in range(num_draft_tokens):
            step = logits[:, j]
            if state.processors is not None:
                step = state.processors.next(state.batch, chosen, step)
            chosen.append(choose(state, step, j)[:, None])
            steps.append(step)
        return Draft(torch.cat(chosen, 1), torch.stack(steps, 1))


@dataclass(frozen=True)
class ResidualDrafter(HeadDrafter):
    """Several heads on one state of the target."""

    @property
    def draft_kv(self) -> str:
        return "none"

    def propose(self, state: State, num_draft_tokens: int) -> Draft:
        reader = make_reader(state)
        logits = [reader.begin(state)[:, 0]]  # (b, V) each
        tokens = [choose(state, logits[0], 0)]
        for j in range(1, num_draft_tokens):
            before = tokens[-1][:, None]
            # The only token that was read last is what each of them follows.
            logits.append(reader.read(before, torch.zeros_like(before))[:, 0])
            tokens.append(choose(state, logits[-1], j))
        return Draft(torch.stack(tokens, 1), torch.stack(logits, 1))


@dataclass(frozen=True)
class MedusaDrafter(ResidualDrafter):
    name: ClassVar[str] = "medusa"
    description: ClassVar[str] = (
        "Medusa: heads on the target's last state, none of which knows what the others propose"
    )
    capturable: ClassVar[bool] = True


@dataclass(frozen=True)
class CloverDrafter(ResidualDrafter):
    name: ClassVar[str] = "clover"
    description: ClassVar[str] = (
        "Clover: heads behind a layer over the target's last states, each of which reads the token "
        "before it"
    )
    capturable: ClassVar[bool] = True


class Reader:
    """Reads drafts level by level. This one has a draft model, which is fed them as nodes."""

    def __init__(self, cache: CachedModel) -> None:
        self.cache = cache
        self._states: Tensor  # (b, m, D), a head's own features of what it read last

    def begin(self, state: State) -> Tensor:
        """Return the logits (b, 1, V) after the pending tokens, in float32."""
        fed, indices = state.batch.last_tokens(count_fed(state))
        output = self.cache.forward(state.feed(fed, indices))
        if output.features is not None:
            self._states = output.features
        return output.logits[:, -1:].float()

    def read(
        self, tokens: Tensor, parents: Tensor, feed: Callable[[], Feed] | None = None
    ) -> Tensor:
        """Return the logits (b, m, V) after drafts, in float32.

        Args:
            tokens: (b, m).
            parents: (b, m), which of what was read last each of them follows.
            feed: makes the feed of the drafts, for a reader that feeds them.
        """
        assert feed is not None, "drafts are fed as nodes"
        return self.cache.forward(feed()).logits.float()


class ChainReader(Reader):
    """A head that goes on with its own output, which each draft takes from its parent."""

    cache: CachedHead

    def read(
        self, tokens: Tensor, parents: Tensor, feed: Callable[[], Feed] | None = None
    ) -> Tensor:
        assert feed is not None, "drafts are fed as nodes"
        output = self.cache.forward_next(feed(), at(self._states, parents))
        assert output.features is not None
        self._states = output.features
        return output.logits.float()


class ResidualReader(Reader):
    """Heads on one state of the target: level i is what head i makes of the parents' states."""

    cache: CachedHead

    def __init__(self, cache: CachedHead, head: ResidualHeads) -> None:
        super().__init__(cache)
        self.head = head
        self._level = 0

    def begin(self, state: State) -> Tensor:
        fed, indices = state.batch.last_tokens(count_fed(state))
        output = self.cache.forward(state.feed(fed, indices))
        assert output.features is not None
        return self._step(output.features, fed[:, -1:])

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
        return Reader(cache)
    if isinstance(cache.model, ResidualHeads):
        return ResidualReader(cache, cache.model)
    return ChainReader(cache)


def count_fed(state: State) -> int:
    """Return how many of each row's last tokens are fed when a round begins."""
    # A graph has the shape that it was captured with. Without K/V, short rows have not been read.
    if state.batch.rereads == "none" or state.graphs.active or not state.keep_draft:
        return state.fed_first
    unread = [row.length - row.draft_cached for row in state.batch.rows]
    return min(state.fed_first, max(1, *unread))
