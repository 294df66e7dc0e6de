"""Replay of a record into cache slots: what each row and slot of both models holds after a phase.

`Replay` walks through a validated record, applies feeds and moves to `Cells`, and classifies the
cells of the rows in the batch. Whether a feed saw the right slots, the invariant checks judge.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from specviz.record.schema import (
    DRAFTED,
    EMPTY,
    MODELS,
    PADDING,
    PENDING,
    PHASES,
    STALE,
    Array,
    Table,
)
from specviz.record.trace import Trace
from specviz.util.validate import is_int, require_kind, short

# Where a draft head's entries took the feature from that they read beside their token: a hidden
# state of the token before it.
# "none": no feature is read, as the target does, and a head for the token at index 0. "target": the
# target's own. "own": what the head predicted. "mask": the entry stands in a block for a token that
# is not known yet. "block": it stands there for the pending token, whose feature is not known yet.
SOURCES = ("none", "target", "own", "mask", "block")
NONE, TARGET, OWN, MASK, BLOCK = (np.uint8(code) for code in range(len(SOURCES)))
# What is right for one round only.
GUESSES = (OWN, MASK, BLOCK)
# By `draft_kv` of the record, what an entry behind the pending token reads.
_BEYOND = {"provisional": OWN, "masks": MASK}
_SHOWN = ("request", "token", "index", "position", "source")
_DRAFT, _ACCEPT = PHASES.index("draft"), PHASES.index("accept")


class FeatureReads(NamedTuple):
    """What each entry of the table `feeds` reads beside its token; arrays (F,).

    Attributes:
        token: int32, the index of the token whose feature it reads, -1 where it reads none, or one
            that belongs to no token.
        source: uint8, one of the codes that SOURCES names.
    """

    token: Array
    source: Array


def head_of(meta: Mapping[str, Any]) -> str | None:
    """Return the name of the draft head that a run drafted with; None if it had none."""
    if meta.get("draft_kv", "kept") == "kept":
        return None
    # Trees grow from what their drafter's option `base` names.
    options = meta.get("drafter_options")
    base = options.get("base") if isinstance(options, Mapping) else None
    name: str | None = base if isinstance(base, str) else meta["drafter"]
    return name


def head_name(trace: Trace) -> str | None:
    """Return the name of the head that drafted, such as "eagle3 head"; None for other drafters."""
    head = head_of(trace.meta)
    return None if head is None else f"{head} head"


def feature_lag(meta: Mapping[str, Any]) -> int:
    """Return how many tokens before a head's entry the token lies whose feature it reads."""
    return 0 if meta.get("draft_kv") == "masks" else 1


def feature_reads(trace: Trace) -> FeatureReads:
    """Return what each entry of the table `feeds` reads beside its token."""
    feeds = trace.feeds
    source = np.full(feeds["index"].shape, NONE)
    token = np.full(feeds["index"].shape, -1, np.int32)
    if head_name(trace) is None:
        return FeatureReads(token, source)
    of_head = feeds["model"] == MODELS.index("draft")
    lag = feature_lag(trace.meta)
    source[of_head & (feeds["index"] >= lag)] = TARGET
    # Nodes count a row's drafts from 1. All that is fed in other phases is committed.
    drafting = of_head & (feeds["phase"] == _DRAFT)
    source[drafting & (feeds["node"] > 0)] = _BEYOND.get(trace.meta["draft_kv"], TARGET)
    if lag == 0:
        lengths = np.append(trace.rows["length"], -1)[trace.index.feed_rows]
        source[drafting & (feeds["index"] == lengths - 1)] = BLOCK
    reads = (source == TARGET) | (source == OWN)
    token[reads] = feeds["index"][reads] - lag
    return FeatureReads(token, source)


MOVE = ("model", "from_row", "from_slot", "to_row", "to_slot", "length")


class Cells:
    """The (model, row, slot) cells of both caches; int32 planes, -1 where nothing was written.

    The plane "written" has the number of each cell's last write. A cell that was moved is newer
    than one that stayed, and moved cells keep their order among themselves.

    Attributes:
        planes: (planes, models, rows, slots), in the order of their names; "written" is the last.
        latest: by model, the number of the last write into its cache.
    """

    def __init__(self, names: Sequence[str], moves: Table, shape: tuple[int, int]) -> None:
        """Make empty cells.

        Args:
            names: of the planes, beside "written".
            moves: the table of a record, whose entries `move` applies.
            shape: rows and slots.
        """
        self._places = {name: place for place, name in enumerate((*names, "written"))}
        self.planes = np.full((len(self._places), len(MODELS), *shape), -1, np.int32)
        self._moves = np.stack([moves[name] for name in MOVE], axis=1)  # (N, 6)
        self._writes = 0
        self.latest = [0] * len(MODELS)

    def __getitem__(self, name: str) -> Array:
        """Return a plane, (models, rows, slots), to read or to write."""
        plane: Array = self.planes[self._places[name]]
        return plane

    def of(self, model: int, rows: Array, width: int) -> Table:
        """Return a copy of the planes of some rows and the first `width` slots, (B, T) by name."""
        held = self.planes[:, model, rows, :width]
        return {name: held[place] for name, place in self._places.items()}

    def write(self, model: int, rows: Array, slots: Array, **values: Any) -> None:
        """Write what is given for each of the planes into n cells at once."""
        self._writes += 1
        self.latest[model] = self._writes
        for name, value in {**values, "written": self._writes}.items():
            self.planes[self._places[name], model, rows, slots] = value

    def move(self, entries: Array) -> None:
        """Apply these entries of the table `moves` at once: all are read before any is written."""
        blocks = self._moves[entries].tolist()
        copies = [
            self.planes[:, model, row, slot : slot + length].copy()
            for model, row, slot, _, _, length in blocks
        ]
        written = self._places["written"]
        ages = np.unique(np.concatenate([copied[written] for copied in copies]))
        self._writes += 1
        for (model, _, _, row, slot, length), copied in zip(blocks, copies, strict=True):
            copied[written] = self._writes + np.searchsorted(ages, copied[written])
            self.planes[:, model, row, slot : slot + length] = copied
            self.latest[model] = self._writes
        self._writes += ages.size


@dataclass(frozen=True, eq=False)
class Slots:
    """The cache of one model. All arrays are (B, T).

    Attributes:
        request, token, index, position: int32, the token whose K/V the slot holds, -1 where none
            was ever written.
        source: int32, where a draft head took the feature from that it read with the token, one of
            the codes that `heads.SOURCES` names, -1 where none was ever written.
        state: uint8, one of the codes that STATES names.
    """

    request: Array
    token: Array
    index: Array
    position: Array
    source: Array
    state: Array


@dataclass(frozen=True, eq=False)
class Frame:
    """Both caches after one phase of one round.

    Attributes:
        round: number of the round.
        phase: its name, one of PHASES.
        requests: int32 (B,), the request in each row, rows in the order of the record.
        lengths: int32 (B,), committed tokens n of each row, prompt included. From "accept" on, the
            tokens that the round gained count too.
        starts: int32 (B,), slot of each row's first token.
        pending: int32 (B,), slot where the K/V of each row's pending token goes. That is its last
            token, whose K/V does not exist before it is fed.
        target, draft: Slots of (B, T). T is what the verify forward saw, or more where a row holds
            or awaits more.
    """

    round: int
    phase: str
    requests: Array
    lengths: Array
    starts: Array
    pending: Array
    target: Slots
    draft: Slots


class _Batch(NamedTuple):
    """The rows of a frame, each (B,): their cache rows, and what `Frame` says of them."""

    rows: Array
    requests: Array
    lengths: Array
    starts: Array
    pending: Array


class Replay:
    """A cursor in a trace. Moving forward is cheap; moving back starts over."""

    def __init__(self, trace: Trace) -> None:
        require_kind("trace", trace, Trace, "pass result.trace, or Trace.load(path)")
        self._trace = trace
        self._index = trace.index
        # What each feed writes into its cell: also the round, whether all that its token follows
        # was accepted, and whether it is a draft of a row with a tree. Each is (F,).
        names = ("request", "token", "index", "position", "round")
        self.planes = {name: trace.feeds[name] for name in names}
        self.planes["source"] = feature_reads(trace).source
        self.planes["follows"] = self._index.follows_accepted
        self.planes["branches"] = self._index.on_branches
        # Most records have neither mask entries nor trees.
        self._has_masks = bool((self.planes["source"] == MASK).any())
        self._has_branches = bool(self._index.on_branches.any())
        self._restart()

    def frame(self, round: int, phase: str) -> Frame:
        """Return the state after `phase` of `round`.

        Raises ValueError if there is no such phase.
        """
        last = self._trace.num_rounds - 1
        known = is_int(round) and isinstance(phase, str)
        if not known or phase not in PHASES or not 0 <= round <= last:
            raise ValueError(
                f"round={short(round)}, phase={short(phase)} is not in the record; "
                f"choose a round from 0 to {last} and one of {', '.join(PHASES)}"
            )
        number = PHASES.index(phase)
        self._seek(round * len(PHASES) + number)
        table, entries = self._trace.rows, self._index.rows_of(round)
        # The record has each number at most twice a round. What lies between follows: lengths grow
        # in "accept", and the pending slot goes with them until "synchronise" moves it.
        suffix = "_after" if phase == "synchronise" else ""
        pending = table[f"pending{suffix}"] if phase != "accept" else self._index.ends
        has_grown = number >= _ACCEPT
        batch = _Batch(
            rows=table["row"][entries],
            requests=table["request"][entries],
            lengths=table["length"][entries] + table["gained"][entries] * has_grown,
            starts=table[f"start{suffix}"][entries],
            pending=pending[entries],
        )
        # T: the slots that the verify forward saw, or that a row holds or awaits.
        held = self._cells["request"][:, batch.rows] == batch.requests[:, None]  # (models, B, T)
        used = held.any(axis=(0, 1)).nonzero()[0].max(initial=-1) + 1
        awaited = (batch.pending + 1).max(initial=0)
        width = int(max(self._trace.rounds["slots"][round], used, awaited))
        # Until they are accepted or rejected, the drafts of this round are neither.
        drafting = round if number < _ACCEPT else None
        target, draft = (self._held(model, width, drafting, batch) for model in range(len(MODELS)))
        of_rows = batch._asdict()
        del of_rows["rows"]
        return Frame(int(round), phase, **of_rows, target=target, draft=draft)

    def frames(self) -> Iterator[Frame]:
        """Return the state after every phase of every round, in order."""
        for round in range(self._trace.num_rounds):
            for phase in PHASES:
                yield self.frame(round, phase)

    def _restart(self) -> None:
        self._cells = Cells([*self.planes], self._trace.moves, self._index.cache_shape)
        self._stage = -1
        self._latest: dict[int, tuple[Any, Slots]] = {}  # by model: key of `_held`, its answer

    def _seek(self, stage: int) -> None:
        if stage < self._stage:
            self._restart()  # steps overwrite cells and cannot be undone
        while self._stage < stage:
            self._stage += 1
            for step in self._index.steps_of(self._stage):
                if step.moves.size:
                    self._cells.move(step.moves)
                if not step.feeds.size:
                    continue
                fed = {name: values[step.feeds] for name, values in self.planes.items()}
                where = (self._trace.feeds[name][step.feeds] for name in ("row", "slot"))
                self._cells.write(step.model, *where, **fed)

    def _held(self, model: int, width: int, drafting: int | None, batch: _Batch) -> Slots:
        """Return what the first `width` slots of a model's rows hold.

        The same object as before is returned where nothing has changed, which callers rely on to
        draw a cache only once.
        """
        key = (self._cells.latest[model], width, drafting, *(each.tobytes() for each in batch))
        if model not in self._latest or self._latest[model][0] != key:
            held = self._cells.of(model, batch.rows, width)
            state = self._states(held, drafting, batch)
            slots = Slots(state=state, **{name: held[name] for name in _SHOWN})
            self._latest[model] = (key, slots)
        return self._latest[model][1]

    def _states(self, held: Table, drafting: int | None, batch: _Batch) -> Array:
        """Return the state of a model's cells, (B, T).

        held: their planes. drafting: the round whose tokens are not verified yet and count as
        drafted, or None.
        """
        texts = self._index.committed
        index, length = held["index"], batch.lengths[:, None]
        slot = np.arange(index.shape[1])
        is_before = np.broadcast_to(slot < batch.starts[:, None], index.shape)
        own = (held["request"] == batch.requests[:, None]) & ~is_before
        is_drafted = own & (index >= length) & (held["round"] == drafting)

        # A cell is valid if its token was committed by the round that fed it, or before. An equal
        # token that was fed earlier is a rejected draft, read behind another text. So is an equal
        # token on another branch of a tree.
        committed = own & (index < length)
        place = texts.first[batch.requests, None] + np.where(committed, index, 0)  # (B, T)
        same = texts.tokens[place] == held["token"]
        in_time = texts.rounds[place] <= held["round"]
        valid = committed & same & in_time & (held["follows"] == 1)
        if self._has_masks:
            # A mask entry is K/V of no token, whatever id stands beside it.
            valid &= held["source"] != MASK
        is_last = index == length - 1
        if self._has_branches:
            # On a tree, the draft that became a row's last token may lie in another slot than the
            # one that awaits it. Nothing will look for its K/V there.
            is_elsewhere = is_last & (held["branches"] == 1) & (slot != batch.pending[:, None])
            valid &= ~is_elsewhere
        # Moves leave copies behind. The one written last counts.
        valid = _newest(held, valid, batch.lengths)

        # Not where the pending token was fed already, nor where its slot holds another valid one.
        is_awaited = (slot == batch.pending[:, None]) & ~valid
        is_awaited &= ~(valid & is_last).any(axis=1, keepdims=True)
        # From the strongest claim to the weakest.
        claims = [is_awaited, is_before, valid, is_drafted, own]
        states = [PENDING, PADDING, texts.origins[place], DRAFTED, STALE]
        return np.select(claims, states, EMPTY).astype(np.uint8)


def _newest(held: Table, valid: Array, lengths: Array) -> Array:
    """Return `valid` (B, T) with only the newest of several copies of one token."""
    longest = int(lengths.max(initial=0))
    token = (np.arange(len(lengths))[:, None] * longest + held["index"])[valid]
    if (token[1:] > token[:-1]).all():
        return valid  # the tokens of each row stand in their order, so none stands there twice
    written = held["written"][valid]
    last = np.full(len(lengths) * longest, -1, np.int32)
    np.maximum.at(last, token, written)
    newest = valid.copy()
    newest[valid] = written == last[token]
    return newest
