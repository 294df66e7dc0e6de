"""A recorded run once more: its forwards and moves through the pair's models.

Contract: `rerun` feeds each model what the record says it was fed, into the recorded slots and with
the recorded mask and positions, and moves what was moved; nothing is decoded. After each round it
compares what the slots hold with a prefill of the request's text on its own. Not known here: which
slots should hold what, which the caller says, and what a deviation means.

The padding of shorter rows in a prefill is not in the record. Here a row's last token is fed again
instead, into the same slot.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.checks.ledger import ExpectedKV
from specviz.checks.text_features import TextFeatures
from specviz.engine.heads import DraftHead
from specviz.engine.heads.cached import CachedHead, cached_head
from specviz.engine.kv.cache import CachedModel
from specviz.engine.kv.feed import Feed
from specviz.engine.kv.moves import Move
from specviz.engine.models.pair import Pair
from specviz.record.index import Step
from specviz.record.replay import GUESSES, feature_reads, head_of
from specviz.record.schema import MODELS, PHASES, Array
from specviz.record.trace import Trace
from specviz.record.windows import CHUNKED, window_of, window_offsets


@dataclass(frozen=True)
class Deviation:
    """K/V in `place` that is not what a fresh prefill gives.

    Attributes:
        which: the j of place.indices that deviate and did not in the rounds before.
        difference: the largest absolute difference of an element.
        error: the largest relative error, see `tolerance`.
    """

    place: ExpectedKV
    which: Array
    difference: float
    error: float


def tolerance(dtype: torch.dtype) -> float:
    """Return the relative error up to which two computations of the same K/V count as equal.

    The error of a token is the norm of the difference of its keys (or values) in a layer over the
    norm that they should have, or over the layer's median norm where that is larger. Rounding makes
    a few times the dtype's precision (float32: 1e-7, bfloat16: 8e-3) and adds up over layers, while
    another token's K/V is off by about 1. The square root of the precision, which is used here,
    lies half-way between, counted in digits.
    """
    return float(torch.finfo(dtype).eps ** 0.5)


# Takes a place in MODELS, entries of `feeds` (m,), and the logits after each, (m, V).
Listener = Callable[[int, Array, Tensor], None]
_DECIDING = (PHASES.index("draft"), PHASES.index("verify"))  # whose logits choose tokens


@torch.inference_mode()
def rerun(
    trace: Trace, pair: Pair, places: Sequence[ExpectedKV], listen: Listener
) -> Iterator[Deviation]:
    """Rerun the target, then a draft model; yield what deviates, by round.

    Args:
        trace: the record.
        pair: the pair that made it.
        places: where K/V should be, in the order of rounds.
        listen: is given the logits of the phases draft and verify, of all requests whose K/V has
            not deviated yet.

    Raises:
        ValueError: a model keeps K/V of another size than the record says, so it is not the one
            that ran.
    """
    head = pair.heads.get(head_of(trace.meta) or "")
    features = None if head is None else TextFeatures(trace, head)
    for code, name in enumerate(MODELS):
        of_model = [place for place in places if place.model == code]
        if not (trace.feeds["model"] == code).any():
            continue
        if name == "target":
            again = _Rerun(trace, code, pair.target, pair, listen, features)
        elif head is None or features is None:
            again = _Rerun(trace, code, pair.draft, pair, listen)
        else:
            again = _HeadRerun(trace, code, head, pair, listen, features)
        yield from again.deviations(of_model)


class _Rerun:
    """One model's part of a record."""

    def __init__(
        self,
        trace: Trace,
        code: int,
        model: PreTrainedModel,
        pair: Pair,
        listen: Listener,
        features: TextFeatures | None = None,
    ) -> None:
        self._trace = trace
        self._code = code
        self._model = model
        self._device = pair.device
        self._listen = listen
        self._features = features
        self._vocabulary = pair.vocabulary_size
        self._cache = self._make_cache(*trace.index.cache_shape)
        self._fresh: dict[int, list[Tensor]] = {}  # K/V of the requests that are being decoded
        self._reported: dict[int, set[int]] = {}  # indices of each request
        states = trace.states
        of_model = np.flatnonzero(states["model"] == code)
        stage = states["round"][of_model].astype(np.int64) * len(PHASES) + states["phase"][of_model]
        keys = zip(stage, states["step"][of_model], states["row"][of_model], strict=True)
        # By stage, step and row: the entry whose token left the states that the row goes on from.
        self._sources = dict(zip(keys, states["feed"][of_model].tolist(), strict=True))

    def _make_cache(self, rows: int, slots: int) -> CachedModel:
        columns = int(self._trace.meta["num_draft_tokens"])
        return CachedModel(self._model, rows, slots, self._vocabulary, columns=columns)

    def deviations(self, places: Sequence[ExpectedKV]) -> Iterator[Deviation]:
        """Run the forwards and moves round by round; yield what deviates after each."""
        steps = iter([step for step in self._trace.index.steps if step.model == self._code])
        step = next(steps, None)
        last_round = {place.request: place.round for place in places}
        for number, group in groupby(places, key=lambda place: place.round):
            while step is not None and step.stage < (number + 1) * len(PHASES):
                if step.moves.size:
                    self._cache.move(self._moves(step.moves))
                if step.feeds.size:
                    self._run(step)
                step = next(steps, None)
            held = [place for place in group if place.indices.size]
            if held:
                self._check_size()
                yield from self._compare(held)
            finished = [request for request in self._fresh if last_round[request] <= number]
            for request in finished:
                del self._fresh[request]

    def _check_size(self) -> None:
        name = MODELS[self._code]
        recorded = self._trace.meta["kv_bytes_per_slot"][name]
        ours = self._cache.bytes_per_slot
        if recorded != ours:
            raise ValueError(
                f"pair.{name} keeps {ours} bytes of K/V a slot, but the record's model {recorded}; "
                "pass that run's pair"
            )

    def _moves(self, which: Array) -> list[Move]:
        columns = [self._trace.moves[name][which] for name in Move._fields]
        return [Move(*block) for block in np.stack(columns, axis=1).tolist()]

    def _run(self, step: Step) -> None:
        """Run one forward, and pass its logits on where they choose tokens."""
        feed, entries = self._feed(step.feeds)
        select = None if self._features is None else self._features.select
        logits = None  # (b, q, V)
        if step.stage % len(PHASES) in _DECIDING:
            logits, features = self._cache.forward(feed, select=select, dense=False)
        else:
            features = self._cache.prefill(feed, select=select)
        if self._features is not None:
            self._features.keep(entries, features)
        if logits is None:
            return
        entries, place = np.unique(entries.ravel(), return_index=True)
        # Where K/V is wrong, so are the logits.
        requests = self._trace.feeds["request"][entries].tolist()
        is_sound = np.array([not self._reported.get(request) for request in requests], bool)
        first = torch.from_numpy(place[is_sound]).to(logits.device)
        self._listen(self._code, entries[is_sound], logits.flatten(0, 1)[first])

    def _feed(self, which: Array) -> tuple[Feed, Array]:
        """Build one forward from entries of the table `feeds`; return which entry is where."""
        feeds = self._trace.feeds
        rows, row = np.unique(feeds["row"][which], return_inverse=True)
        order = np.argsort(row, kind="stable")
        counts = np.bincount(row)  # (b,)
        # Shorter rows repeat their last token up to the longest row's q tokens.
        column = np.minimum(np.arange(counts.max()), counts[:, None] - 1)
        place = column + (counts.cumsum() - counts)[:, None]  # (b, q)
        entries = which[order][place]
        visible = self._trace.index.visible(which[order])[place]  # (b, q, w)
        tokens = self._tensor(feeds["token"][entries])
        valid = torch.from_numpy(np.arange(counts.max()) < counts[:, None])
        feed = Feed(
            rows=self._tensor(rows),
            requests=(),
            tokens=tokens,
            indices=self._tensor(feeds["index"][entries]),
            positions=self._tensor(feeds["position"][entries]),
            slots=self._tensor(feeds["slot"][entries]),
            visible=torch.from_numpy(visible).to(self._device),
            valid=valid.to(self._device),
            after=self._goes_on_from(entries[:, 0]),
            shortened=self._shortened(entries),
        )
        return feed, entries

    def _goes_on_from(self, first: Array) -> Tensor | None:
        """Return `Feed.after`, given the first entry of `feeds` of each row, (b,)."""
        if not self._sources:
            return None
        feeds = self._trace.feeds
        stage = feeds["round"][first].astype(np.int64) * len(PHASES) + feeds["phase"][first]
        keys = zip(stage, feeds["step"][first], feeds["row"][first], strict=True)
        source = np.array([self._sources.get(key, -1) for key in keys])
        due = feeds["index"][first] - 1
        # What is not the row's own, or lies before what is due, the cache does not have any more.
        is_there = (source >= 0) & (feeds["request"][source] == feeds["request"][first])
        return self._tensor(np.where(is_there, np.maximum(feeds["index"][source], due), due))

    def _shortened(self, entries: Array) -> Tensor | None:
        """Return `Feed.shortened` for entries (b, q) of `feeds`."""
        window = window_of(self._trace.meta, MODELS[self._code])
        if window is None:
            return None
        kind, width = window
        feeds, flat = self._trace.feeds, entries.ravel()
        due = window_offsets(self._trace.index, feeds, flat, kind, width)
        offset = feeds["window_offset"][flat]
        seen = self._trace.index.visible(flat)  # (n, w)
        start = feeds["visible_start"][flat] + offset
        inside = (seen & (np.arange(seen.shape[1]) >= start[:, None])).sum(axis=1)
        short = (inside - seen.sum(axis=1)) % width if kind == CHUNKED else width - inside
        short = np.where(due == offset, 0, short)
        return self._tensor(short.reshape(entries.shape).max(axis=1))

    def _tensor(self, values: Array) -> Tensor:
        return torch.from_numpy(values.astype(np.int64)).to(self._device)

    def _compare(self, places: Sequence[ExpectedKV]) -> Iterator[Deviation]:
        """Yield the deviations in the places of one round."""
        for place in places:
            if place.request not in self._fresh:
                self._fresh[place.request] = self._prefill(place.request)
        difference, error = self._errors(places)
        # Written this way round because a NaN is wrong, too.
        is_wrong = ~(error <= tolerance(self._model.dtype))
        stop = 0
        for place in places:
            first = stop
            stop += place.indices.size
            reported = self._reported.setdefault(place.request, set())
            is_new = np.array([index not in reported for index in place.indices.tolist()])
            which = np.flatnonzero(is_wrong[first:stop] & is_new)
            if which.size:
                reported.update(place.indices[which].tolist())
                at = first + which
                yield Deviation(place, which, float(difference[at].max()), float(error[at].max()))

    def _errors(self, places: Sequence[ExpectedKV]) -> tuple[Array, Array]:
        """Return each token's largest absolute difference and relative error, (sum of tokens,)."""
        rows = np.concatenate([np.full_like(place.slots, place.row) for place in places])
        slots = np.concatenate([place.slots for place in places])
        held = self._cache.held(self._tensor(rows), self._tensor(slots))
        largest = np.zeros((2, slots.size))
        for number, ours in enumerate(held):
            if not ours.numel():  # a layer without keys of an indexer
                continue
            theirs = torch.cat(
                [self._fresh[place.request][number][place.indices] for place in places]
            )
            # Differences in bfloat16 would themselves be off by more than what is looked for.
            precise = torch.promote_types(ours.dtype, torch.float32)
            ours, theirs = ours.to(precise).flatten(1), theirs.to(precise).flatten(1)
            difference = ours - theirs
            norm = theirs.norm(dim=1)
            # A token whose K is near zero would have a huge relative error by rounding alone.
            at_least = norm.median().clamp(min=torch.finfo(precise).tiny)
            error = difference.norm(dim=1) / norm.clamp(min=at_least)
            found = torch.stack([difference.abs().amax(1), error]).cpu().numpy()
            largest = np.maximum(largest, found)
        return largest[0], largest[1]

    def _prefill(self, request: int) -> list[Tensor]:
        """Compute K/V of the request's whole text alone; of a part of the text, it is the same."""
        text = torch.tensor(
            [self._trace.prompt(request) + self._trace.output(request)], device=self._device
        )
        index = torch.arange(text.shape[1], device=self._device)[None]  # (1, n)
        cache = self._make_cache(1, text.shape[1])
        feed = Feed(
            rows=torch.zeros(1, dtype=torch.long, device=self._device),
            requests=(),
            tokens=text,
            indices=index,
            positions=index,
            slots=index,
            visible=index[:, None] <= index[:, :, None],
            valid=torch.ones_like(text, dtype=torch.bool),
        )
        self._read_text(cache, feed, request)
        return cache.held(torch.zeros_like(index[0]), index[0])

    def _read_text(self, cache: CachedModel, feed: Feed, request: int) -> None:
        """Prefill a fresh cache with a request's whole text."""
        if self._features is None:
            cache.prefill(feed)
            return
        found = cache.prefill(feed, select=self._features.select)
        assert found is not None
        self._features.fresh[request] = found


class _HeadRerun(_Rerun):
    """A draft head's part of a record: what it computed from true features.

    What it made of its own output is right for one round only, and is not compared.
    """

    _cache: CachedHead
    _features: TextFeatures

    def _make_cache(self, rows: int, slots: int) -> CachedModel:
        assert isinstance(self._model, DraftHead)
        self._is_guess = np.isin(feature_reads(self._trace).source, GUESSES)
        return cached_head(self._model, rows, slots, self._vocabulary, self._features.store)

    def _run(self, step: Step) -> None:
        true = step.feeds[~self._is_guess[step.feeds]]
        if true.size:
            feed, entries = self._feed(true)
            self._cache.prefill_with(feed, self._features.before(entries))

    def _read_text(self, cache: CachedModel, feed: Feed, request: int) -> None:
        assert isinstance(cache, CachedHead)
        cache.prefill_with(feed, self._features.of_text(request))
