"""A recorded run once more: its forwards and moves through the pair's models, and the K/V that results held against fresh K/V.

Contract: `replay` feeds each model what the record says it was fed, into the slots and with the mask and positions that the record names,
and moves what it says was moved; nothing is decoded. After each round it compares what the slots hold with a prefill of the request's
text on its own. Not known here: which slots should hold what (the caller says), and what a deviation means.

The filling of shorter rows in a prefill is not in the record; here a row's last token is fed again instead, into the same slot.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.engine.kv.cache import CachedModel, Feed
from specviz.engine.kv.moves import Move
from specviz.engine.models.pair import Pair
from specviz.record.schema import MODELS, PHASES, Array
from specviz.record.trace import Trace


class Place(Protocol):
    """Where a row's tokens should lie in the cache of MODELS[model] after a round: K/V of index indices[j] in slots[j]."""

    @property
    def round(self) -> int: ...
    @property
    def model(self) -> int: ...
    @property
    def row(self) -> int: ...
    @property
    def request(self) -> int: ...
    @property
    def indices(self) -> Array: ...
    @property
    def slots(self) -> Array: ...


@dataclass(frozen=True)
class Deviation:
    """K/V in `place` that is not what a fresh prefill gives.

    Attributes:
        which: the places j in place.indices that deviate and did not in the rounds before.
        difference: the largest absolute difference of a number in them.
        error: the largest relative error in them, see `tolerance`.
    """

    place: Place
    which: Array
    difference: float
    error: float


def tolerance(dtype: torch.dtype) -> float:
    """The relative error up to which two computations of the same K/V count as equal: the square root of the dtype's precision.

    The error of a token is the norm of the difference of its keys (or values) in a layer over the norm of those that it should have, or
    over the layer's median norm where theirs is smaller. Rounding makes a few times the precision (float32: 1e-7, bfloat16:
    8e-3) and adds up over layers; another token's K/V is off by about 1. The square root lies half-way between, counted in digits.
    """
    return float(torch.finfo(dtype).eps ** 0.5)


@torch.inference_mode()
def replay(trace: Trace, pair: Pair, places: Sequence[Place]) -> Iterator[Deviation]:
    """Rerun the target, then the draft; yields what deviates, by round.

    places: in the order of rounds.
    Raises ValueError when a model keeps K/V of another size than the record says: it is not the one that ran.
    """
    for code, name in enumerate(MODELS):
        mine = [place for place in places if place.model == code and place.indices.size]
        if mine:
            model = pair.target if name == "target" else pair.draft
            yield from _Rerun(trace, code, model, pair.device).deviations(mine)


class _Rerun:
    """One model's part of a record."""

    def __init__(
        self, trace: Trace, code: int, model: PreTrainedModel, device: torch.device
    ) -> None:
        self._trace = trace
        self._code = code
        self._model = model
        self._device = device
        self._cache = CachedModel(model, *trace.index.cache_shape)
        self._fresh: dict[int, list[Tensor]] = {}  # K/V of the requests that are being decoded
        self._told: dict[int, set[int]] = {}  # indices of each request

    def deviations(self, places: Sequence[Place]) -> Iterator[Deviation]:
        steps = iter([step for step in self._trace.index.steps if step.model == self._code])
        step = next(steps, None)
        last = {place.request: place.round for place in places}
        for number, group in groupby(places, key=lambda place: place.round):
            while step is not None and step.stage < (number + 1) * len(PHASES):
                if step.moves.size:
                    self._cache.move(self._moves(step.moves))
                if step.feeds.size:
                    self._cache.prefill(self._feed(step.feeds))
                step = next(steps, None)
            self._check_size()
            yield from self._compare(list(group))
            self._fresh = {
                request: held for request, held in self._fresh.items() if last[request] > number
            }

    def _check_size(self) -> None:
        recorded, ours = (
            self._trace.meta["kv_bytes_per_slot"][MODELS[self._code]],
            self._cache.bytes_per_slot,
        )
        if recorded != ours:
            raise ValueError(
                f"pair.{MODELS[self._code]} keeps {ours} bytes of K/V a slot, and the record's model {recorded}; pass the pair of that run"
            )

    def _moves(self, which: Array) -> list[Move]:
        return [
            Move(*block)
            for block in np.stack(
                [self._trace.moves[name][which] for name in Move._fields], axis=1
            ).tolist()
        ]

    def _feed(self, which: Array) -> Feed:
        """One forward from entries of the table `feeds`."""
        rows, row = np.unique(self._trace.feeds["row"][which], return_inverse=True)
        order, counts = np.argsort(row, kind="stable"), np.bincount(row)
        place = (
            np.minimum(np.arange(counts.max()), counts[:, None] - 1)
            + (counts.cumsum() - counts)[:, None]
        )  # (b, q)
        entries, sight = (
            which[order][place],
            self._trace.index.visible(which[order])[place],
        )  # (b, q, w)
        names = {"tokens": "token", "indices": "index", "positions": "position", "slots": "slot"}
        columns = {
            name: self._tensor(self._trace.feeds[column][entries]) for name, column in names.items()
        }
        valid = torch.ones_like(columns["tokens"], dtype=torch.bool)
        return Feed(
            rows=self._tensor(rows),
            requests=(),
            visible=torch.from_numpy(sight).to(self._device),
            valid=valid,
            **columns,
        )

    def _tensor(self, values: Array) -> Tensor:
        return torch.from_numpy(values.astype(np.int64)).to(self._device)

    def _compare(self, places: Sequence[Place]) -> Iterator[Deviation]:
        """Deviations in the places of one round."""
        for place in places:
            if place.request not in self._fresh:
                self._fresh[place.request] = self._prefill(place.request)
        difference, error = self._errors(places)
        wrong = ~(error <= tolerance(self._model.dtype))  # NaN is wrong, too
        stop = 0
        for place in places:
            first, stop = stop, stop + place.indices.size
            told = self._told.setdefault(place.request, set())
            which = [
                j
                for j in np.flatnonzero(wrong[first:stop]).tolist()
                if int(place.indices[j]) not in told
            ]
            if which:
                told.update(place.indices[which].tolist())
                at = first + np.array(which)
                yield Deviation(
                    place, np.array(which), float(difference[at].max()), float(error[at].max())
                )

    def _errors(self, places: Sequence[Place]) -> tuple[Array, Array]:
        """Largest absolute difference and relative error of each token, both (sum of tokens,)."""
        rows = np.concatenate([np.full_like(place.slots, place.row) for place in places])
        slots = np.concatenate([place.slots for place in places])
        held = self._cache.held(self._tensor(rows), self._tensor(slots))
        found = np.zeros((2, slots.size))
        for number, ours in enumerate(held):
            theirs = torch.cat(
                [self._fresh[place.request][number][place.indices] for place in places]
            )
            precise = torch.promote_types(ours.dtype, torch.float32)
            ours, theirs = ours.to(precise).flatten(1), theirs.to(precise).flatten(1)
            norm = theirs.norm(dim=1)
            error = (ours - theirs).norm(dim=1) / norm.clamp(min=norm.median()).clamp(
                min=torch.finfo(precise).tiny
            )
            found = np.maximum(
                found, torch.stack([(ours - theirs).abs().amax(1), error]).cpu().numpy()
            )
        return found[0], found[1]

    def _prefill(self, request: int) -> list[Tensor]:
        """K/V of the request's whole text, computed at once and alone; of a part of it, it is the same."""
        text = torch.tensor(
            [self._trace.prompt(request) + self._trace.output(request)], device=self._device
        )
        index = torch.arange(text.shape[1], device=self._device)[None]  # (1, n)
        cache, row = (
            CachedModel(self._model, 1, text.shape[1]),
            torch.zeros(1, dtype=torch.long, device=self._device),
        )
        visible = index[:, None] <= index[:, :, None]
        cache.prefill(
            Feed(
                row, (), text, index, index, index, visible, torch.ones_like(text, dtype=torch.bool)
            )
        )
        return cache.held(torch.zeros_like(index[0]), index[0])
