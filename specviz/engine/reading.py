"""How the models read the tokens of rows that have no K/V yet: prompts, and what a draft missed.

Contract: a part of `State`, which says what the attributes are. Not known here: strategies.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from specviz.engine.batch import Batch
from specviz.engine.features import FeatureStore
from specviz.engine.graphs import PhaseGraphs
from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.feed import Feed
from specviz.engine.kv.layout import Layout
from specviz.engine.kv.transfer import to_device
from specviz.engine.prefill import similar_lengths
from specviz.util.levers import Levers


class Reading:
    """The forwards that read tokens without drafting or judging any."""

    batch: Batch
    layout: Layout
    caches: dict[str, CachedModel]
    batch_size: int
    num_draft_tokens: int
    keep_draft: bool
    features: FeatureStore | None
    fed_first: int
    caught_up: int
    levers: Levers
    graphs: PhaseGraphs

    def _feed(
        self, rows: Tensor, tokens: Tensor, indices: Tensor, window: int, valid: Tensor
    ) -> Feed:
        raise NotImplementedError

    def prefill(self, rows: Sequence[int]) -> None:
        """Write the K/V of all tokens of `rows` but the last, which is pending, into every cache.

        Draft models are left out while nothing is drafted, and where their K/V is not kept:
        `catch_up` lets them read what they missed. One forward takes up to `batch_size` rows.
        """
        # Rows enter before the round's K is chosen, so this goes by the last one's.
        reads_all = self.keep_draft and self.num_draft_tokens > 0
        names = self._with_kv() if reads_all else ["target"]
        self._read(dict.fromkeys(rows, 0), names)

    def _with_kv(self) -> list[str]:
        return [name for name, cache in self.caches.items() if cache.holds_kv]

    def catch_up(self) -> None:
        """Let the draft models read what they have missed of the batch, before they draft."""
        self.caught_up = 0
        names = [name for name in self._with_kv() if name != "target"]
        firsts = {}
        for i, row in enumerate(self.batch.rows):
            first = row.draft_cached if self.keep_draft else 0
            if first < row.length - self.fed_first:
                firsts[i] = first
        if names and firsts:
            self.caught_up = self._read(firsts, names)

    def release_drafts(self) -> None:
        """Free the draft models' K/V if it is not kept: they read all text again."""
        if not self.keep_draft and not self.graphs.active:
            for name, cache in self.caches.items():
                if name != "target":
                    cache.release()

    def _read(self, firsts: Mapping[int, int], names: Sequence[str]) -> int:
        """Prefill the caches `names` with rows' tokens, each from its first to the last but one.

        Args:
            firsts: by row, the index of the first token to read.

        Returns:
            How many tokens each model was given, the filling of shorter rows included.
        """
        if not firsts:
            return 0
        rows = list(firsts)
        counts = [self.batch.live[row].length - 1 - firsts[row] for row in rows]
        most, columns = self.levers.prefill_shape(self.batch_size, max(counts))
        forward_tokens = self.caches["target"].forward_tokens
        # What a draft model missed is read in one forward: few rows miss much at once.
        if names[0] != "target":
            forward_tokens = None
        total = 0
        for group in similar_lengths(counts, most, forward_tokens):
            total += self._read_group({rows[i]: firsts[rows[i]] for i in group}, names, columns)
        return total

    def _read_group(self, firsts: Mapping[int, int], names: Sequence[str], most: int) -> int:
        """Prefill with the tokens of rows side by side, up to `most` of each row in a forward."""
        counts = {row: self.batch.live[row].length - 1 for row in firsts}
        longest = max(counts[row] - first for row, first in firsts.items())
        if longest == 0:
            return 0
        device = self.batch.tokens.device
        # The batch's own index where it will do: a tensor that is made here would need other code,
        # compiled for it.
        is_batch = list(firsts) == list(range(len(self.batch)))
        index = self.batch.index if is_batch else to_device(list(firsts), device)  # (b,)
        begins = to_device(list(firsts.values()), device)[:, None]  # (b, 1)
        ends = to_device(list(counts.values()), device)[:, None]  # (b, 1)
        pending = [self.layout.pending(row, count + 1) for row, count in counts.items()]
        window = max(pending) + 1
        for begin in range(0, longest, most):
            end = min(begin + most, longest)
            columns = begins + torch.arange(begin, end, device=device)  # (b, q)
            # Filling has to be written somewhere. It lands on the pending token's slot, whose K/V
            # is overwritten before any query sees it.
            indices = torch.minimum(columns, ends)
            tokens = self.batch.tokens[index].gather(1, indices)
            feed = self._feed(index, tokens, indices, window, columns < ends)
            for name in names:
                self._prefill(name, feed)
        if list(names) != ["target"]:
            for row, count in counts.items():
                self.batch.live[row].draft_cached = count
        return len(firsts) * longest

    def _prefill(self, name: str, feed: Feed) -> None:
        """Write the K/V of the feed's tokens into a cache. Of the target, keep the features."""
        if name != "target" or self.features is None:
            self.caches[name].prefill(feed)
            return
        target = self.caches[name]
        target.prefill(feed, select=self.features.select)
        assert target.kept is not None
        self.features.write(feed.rows, feed.indices, target.kept)
