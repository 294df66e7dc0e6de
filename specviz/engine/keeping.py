"""Bring K/V of earlier runs into the rows that enter, and keep that of rows that have finished.

Contract: a part of `State`. Where tokens lie follows from the layout, so every strategy can do it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from specviz.engine.batch import Row
from specviz.engine.kv.store import Kept, KVStore
from specviz.engine.reading import Reading

FEATURES = "features"


class Keeping(Reading):
    """Prefills that leave out what a store holds."""

    store: KVStore | None

    def prefill(self, rows: Sequence[int]) -> None:
        """Prefill `rows` as `Reading` does, from the first token on that the store does not hold.

        Draft models catch up when they draft.
        """
        if self.store is None:
            super().prefill(rows)
            return
        firsts = {}
        for number in rows:
            row = self.batch.live[number]
            firsts[number] = self._restore(self.store, number, row)
            self.store.restored_tokens += firsts[number]
            self.store.read_tokens += row.length - 1 - firsts[number]
        self._read(firsts, ["target"])

    def tidy(self, phase: str) -> None:
        """Free or keep K/V after a phase."""
        if phase == "draft":
            self.release_drafts()
        # Before this, a layout does not know where the accepted drafts of a tree lie.
        if phase == "synchronise":
            self.keep_finished()

    def keep_finished(self) -> None:
        """Keep the K/V of the batch's rows that have finished in this round."""
        if self.store is None:
            return
        for number, row in enumerate(self.batch.rows):
            if row.finished and row.gained and not row.ended_nonfinite:
                self._keep(self.store, number, row)

    def held(self, name: str, number: int, count: int) -> list[Tensor]:
        """Return copies of K/V of a row's first `count` tokens; see `CachedModel.held`."""
        rows, slots = self._places(number, count)
        return self.caches[name].held(rows.expand(count), slots)

    def kept_caches(self) -> list[str]:
        """Return the caches whose K/V is there from the first token on, between two rounds."""
        names = []
        for name, cache in self.caches.items():
            if name == "target" or (self.keep_draft and cache.holds_kv):
                names.append(name)
        return names

    @torch.inference_mode()
    def _keep(self, store: KVStore, number: int, row: Row) -> None:
        # The last token is pending: its K/V does not exist.
        tokens = [*row.request.prompt, *row.output][:-1]
        if store.prompts_only:
            tokens = tokens[: len(row.request.prompt)]
        counts = {}
        nbytes = 0
        for name in self.kept_caches():
            cache = self.caches[name]
            # A draft model reads the last token again, so it has one less.
            have = len(tokens) if name == "target" else min(row.draft_cached, len(tokens))
            counts[name] = have
            nbytes += have * cache.bytes_per_slot + cache.bytes_per_state
        if self.features is not None:
            values = self.features.values
            nbytes += len(tokens) * values.shape[2] * values.element_size()
        # Before anything is copied, so that the limit is never exceeded.
        if not tokens or not store.make_room(nbytes):
            store.dropped += 1
            return
        states = {}
        snapshots = {}
        for name, have in counts.items():
            snapshot = self.caches[name].snapshot(number, have - 1) if have > 0 else None
            if snapshot is not None:
                states[name] = self.held(name, number, have)
                snapshots[name] = have, snapshot
        if "target" not in states:
            store.dropped += 1
            return
        if self.features is not None:
            states[FEATURES] = [self.features.values[number, : len(tokens)].clone()]
        store.put(row.request.index, Kept(tuple(tokens), states, snapshots))

    def _restore(self, store: KVStore, number: int, row: Row) -> int:
        """Write what the store holds of a row's text. Return how many tokens the target has."""
        kept = store.take(row.request.index)
        if kept is None:
            return 0
        text = [*row.request.prompt, *row.output]
        count = min(kept.common(text), row.length - 1)
        if count < (len(kept.tokens) if self.caches["target"].keeps_states else 1):
            return 0
        if FEATURES in kept.states and self.features is not None:
            self.features.values[number, :count] = kept.states[FEATURES][0][:count]
        for name in self.kept_caches():
            if name not in kept.states:
                continue
            cache = self.caches[name]
            most, states = kept.snapshots[name]
            have = min(most, count)
            if cache.keeps_states and have < most:
                continue
            _, slots = self._places(number, have)
            cache.restore(number, slots, [held[:have] for held in kept.states[name]])
            cache.put_back(number, have - 1, states)
            if name != "target":
                row.draft_cached = have
        return count

    def _places(self, number: int, count: int) -> tuple[Tensor, Tensor]:
        """Return a row (1,) and the slots (n,) of its first tokens."""
        device = self.batch.tokens.device
        rows = torch.tensor([number], device=device)
        indices = torch.arange(count, device=device)
        return rows, self.layout.slots(rows, indices[None])[0]
