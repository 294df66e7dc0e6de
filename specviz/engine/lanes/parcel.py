"""Rows that change lanes: their K/V is copied, so no model reads their text again.

For the receiving strategy such a row enters like any prompt. Where the others are prefilled, its
K/V is written instead. So a strategy needs to know nothing of lanes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import torch
from torch import Tensor

from specviz.engine.batch import Request
from specviz.engine.placing import place
from specviz.engine.state import State


@dataclass(frozen=True)
class Parcel:
    """What a row takes along.

    Attributes:
        request: with the tokens that the row has written.
        blocks: by cache, K/V of the row's first tokens as `CachedModel.held` returns it.
        features: (n - 1, F), the target's features of its tokens; None where none are kept.
        draft_cached: as in `Row`; 0 where the draft's K/V stays behind: a window lies in slots of
            its own, and is read again.
        waited: as in `Batch`.
    """

    request: Request
    blocks: dict[str, list[Tensor]]
    features: Tensor | None
    draft_cached: int
    waited: Tensor


@dataclass
class LaneState(State):
    """The state of one lane.

    Attributes:
        arriving: rows on their way into this lane, by request index; they are in `waiting`, too.
    """

    arriving: dict[int, Parcel] = field(default_factory=dict)

    @classmethod
    def of(cls, state: State) -> "LaneState":
        """Return `state` as that of a lane, in which no request waits yet."""
        made = cls(**{each.name: getattr(state, each.name) for each in fields(State)})
        made.waiting.clear()
        return made

    @property
    def unfinished(self) -> list[int]:
        """The live rows that go on."""
        return [i for i, row in enumerate(self.batch.live) if not row.finished]

    @property
    def has_work(self) -> bool:
        """Whether another round would decode anything."""
        return bool(self.waiting or self.unfinished)

    def prefill(self, rows: Sequence[int]) -> None:
        """Prefill rows as `State.prefill` does; those from the other lane bring their K/V along."""
        rest = []
        for row in rows:
            parcel = self.arriving.pop(self.batch.live[row].request.index, None)
            if parcel is None:
                rest.append(row)
            else:
                self._unpack(row, parcel)
        super().prefill(rest)

    def _unpack(self, row: int, parcel: Parcel) -> None:
        """Write what the parcel holds where the layout wants this row."""
        device = self.batch.tokens.device
        n = self.batch.live[row].length
        rows = torch.tensor([row], device=device)
        self.batch.live[row].draft_cached = parcel.draft_cached
        self.batch.waited[row] = parcel.waited
        window = self.layout.pending(row, n) + 1
        for name, blocks in parcel.blocks.items():
            indices = torch.arange(len(blocks[0]), device=device)[None]  # (1, q)
            tokens = self.batch.tokens[rows, : indices.shape[1]]
            valid = torch.ones_like(tokens, dtype=torch.bool)
            feed = place(self.batch, self.layout, rows, tokens, indices, window, valid)
            self.caches[name].put(feed, blocks)
        if self.features is not None and parcel.features is not None:
            self.features.values[row, : n - 1] = parcel.features
        wait_for(device)

    @torch.inference_mode()
    def pack(self, rows: Sequence[int]) -> list[Parcel]:
        """Remove `rows` and return what they take along. Only between two rounds."""
        parcels = [self._pack(row) for row in rows]
        self.drop(rows)
        wait_for(self.batch.tokens.device)
        return parcels

    def _pack(self, row: int) -> Parcel:
        live = self.batch.live[row]
        # The pending token has no K/V yet.
        known = live.length - 1
        blocks = {}
        draft_cached = 0
        for name in self.kept_caches():
            count = known
            if name != "target":
                draft_cached = live.draft_cached
                count = min(draft_cached, known)
            if count:
                blocks[name] = self.held(name, row, count)
        features = None if self.features is None else self.features.values[row, :known].clone()
        request = live.request
        moved = Request(request.index, request.prompt, request.budget, tuple(live.output))
        return Parcel(moved, blocks, features, draft_cached, self.batch.waited[row].clone())


def wait_for(device: torch.device) -> None:
    """Wait until this thread's stream is done: the lanes' streams know nothing of each other."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
