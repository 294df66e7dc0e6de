"""K/V that outlives a run: of texts that may go on later, under a limit of bytes.

What was used longest ago is dropped first, but nothing that the current run has yet to read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from specviz.engine.kv.states import Snapshot
from specviz.engine.state import State

# By the cache's name: n, keys and values (n, H, D) layer by layer, and the states after n tokens.
_Caches = dict[str, tuple[int, list[Tensor], list[Snapshot]]]


@dataclass(frozen=True)
class Kept:
    """What is kept of one text.

    Attributes:
        tokens: the tokens that have K/V in the target; a draft model may have fewer.
        caches: their K/V.
        features: the target's hidden states (n, F) that a head reads, or None.
        nbytes: of all tensors.
    """

    tokens: tuple[int, ...]
    caches: _Caches
    features: Tensor | None
    nbytes: int


class KVStore:
    """Entries by name, the one used longest ago first.

    Attributes:
        keep: "all", K/V of the "prompt" alone, or "none".
        limit_bytes: what all entries may take together.
        restored_tokens, read_tokens: of the current run's texts, how many tokens needed no forward
            of the target when they entered, and how many did.
        dropped: how many entries were dropped, or not kept, for want of room.
    """

    def __init__(self, keep: str = "all") -> None:
        self.keep = keep
        self.limit_bytes = inf
        self.restored_tokens = self.read_tokens = self.dropped = 0
        self._entries: dict[str, Kept] = {}
        self._names: Sequence[str] = ()  # of the current run's texts, by the place of the request
        self._waiting: set[str] = set()  # names of texts that have not entered the current run

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def nbytes(self) -> int:
        return sum(kept.nbytes for kept in self._entries.values())

    def begin(self, names: Sequence[str], limit_bytes: float = inf) -> None:
        """Begin a run of these texts, with a new limit."""
        self._names = names
        self.limit_bytes = limit_bytes
        self.restored_tokens = self.read_tokens = self.dropped = 0
        for name in names:
            if name in self._entries:
                self._entries[name] = self._entries.pop(name)
        self._waiting = set()
        self.make_room(0)
        self._waiting = set(names)

    def make_room(self, nbytes: int) -> bool:
        """Drop entries until `nbytes` more fit. Return whether they do; if not, none is dropped."""
        # An entry that is about to be read saves a text from being read again now. What has just
        # been written would be read later at the earliest, and an entry that is read makes room.
        free = [name for name in self._entries if name not in self._waiting]
        held = sum(self._entries[name].nbytes for name in free)
        if self.nbytes - held + nbytes > self.limit_bytes:
            return False
        while self.nbytes + nbytes > self.limit_bytes:
            self.forget(free.pop(0))
            self.dropped += 1
        return True

    def put(self, request: int, kept: Kept) -> None:
        """Keep an entry, for which there must be room."""
        self._entries[self._names[request]] = kept

    def take(self, request: int) -> Kept | None:
        """Return the entry of a request's text and forget it; None if there is none."""
        name = self._names[request]
        self._waiting.discard(name)
        return self._entries.pop(name, None)

    def forget(self, name: str) -> None:
        """Drop an entry, if there is one of that name."""
        self._entries.pop(name, None)

    def restore(self, state: State, number: int) -> int:
        """Write what is kept of a row's text. Return how many tokens the target then has."""
        row = state.batch.live[number]
        kept = self.take(row.request.index)
        count = 0
        if kept is not None:
            text = [*row.request.prompt, *row.output][: row.length - 1]
            same = [a == b for a, b in zip(kept.tokens, text, strict=False)]
            count = [*same, False].index(False)
            # States serve a text that begins with all tokens that they have read.
            if state.caches["target"].keeps_states and count < len(kept.tokens):
                count = 0
        self.restored_tokens += count
        self.read_tokens += row.length - 1 - count
        if kept is None or not count:
            return 0
        if kept.features is not None and state.features is not None:
            state.features.values[number, :count] = kept.features[:count]
        for name, (most, held, states) in kept.caches.items():
            cache = state.caches.get(name)
            have = min(most, count)
            if cache is None or (cache.keeps_states and have < most):
                continue
            _, slots = _places(state, number, have)
            cache.restore(number, slots, [block[:have] for block in held])
            cache.put_back(number, have - 1, states)
            if name != "target":
                row.draft_cached = have
        return count

    @torch.inference_mode()
    def keep_finished(self, state: State) -> None:
        """Keep the K/V of the batch's rows that have finished in this round."""
        for number, row in enumerate(state.batch.rows):
            if row.finished and row.gained and not row.ended_nonfinite and self.keep != "none":
                self._keep(state, number)

    def _keep(self, state: State, number: int) -> None:
        row = state.batch.live[number]
        # The last token is pending: its K/V does not exist.
        tokens = (*row.request.prompt, *row.output)[: row.length - 1]
        if self.keep == "prompt":
            tokens = tokens[: len(row.request.prompt)]
        # A draft model reads the last token again, so it has one less.
        counts = {"target": len(tokens)}
        if state.keep_draft:
            drafts = [name for name in state.caches if name != "target"]
            counts |= dict.fromkeys(drafts, min(row.draft_cached, len(tokens)))
        counts = {name: n for name, n in counts.items() if n and state.caches[name].holds_kv}
        features = None if state.features is None else state.features.values[number, : len(tokens)]
        nbytes = 0 if features is None else features.nbytes
        for name, n in counts.items():
            nbytes += n * state.caches[name].bytes_per_slot + state.caches[name].bytes_per_state
        caches: _Caches = {}
        # Room comes before anything is copied, so that the limit is never exceeded.
        if counts and self.make_room(nbytes):
            for name, n in counts.items():
                states = state.caches[name].snapshot(number, n - 1)
                if states is not None:
                    rows, slots = _places(state, number, n)
                    caches[name] = n, state.caches[name].held(rows, slots), states
        if "target" not in caches:
            self.dropped += 1
            return
        copied = None if features is None else features.clone()
        self.put(row.request.index, Kept(tokens, caches, copied, nbytes))


def _places(state: State, number: int, count: int) -> tuple[Tensor, Tensor]:
    """Return the row and the slot (n,) of each of a row's first tokens."""
    device = state.batch.tokens.device
    rows = torch.tensor([number], device=device)
    slots = state.layout.slots(rows, torch.arange(count, device=device)[None])[0]
    return rows.expand(count), slots
