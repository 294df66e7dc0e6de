"""Find out which token's K/V each slot holds, by the bits of the K/V.

Contract: `Origins` reads the forwards of one model in order, and says for each slot of each which
earlier token left its K/V there, wherever the K/V was moved in between. Not known here: requests,
and which token should be there.
"""

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field

import numpy as np

from specviz.checks.watch.capture import CapturedForward
from specviz.checks.watch.masks import visible
from specviz.checks.watch.prints import EMPTY
from specviz.record.schema import Array

NOTHING = -1  # the slot is zero
UNKNOWN = -2  # no token of any forward had this K/V


@dataclass
class SeenForward:
    """One forward in numpy. b rows, q tokens, T slots.

    Attributes:
        forward: the forward.
        tokens, positions, slots: (b, q).
        seen: (b, q, T).
        entries: (b, q), the numbers of the tokens among all of this model.
        held: (b, T), for each slot the number of the token whose K/V it holds; or NOTHING, UNKNOWN.
        padding: (b, q).
        marks, own_marks: (b, T) and (b, q), the prints of the slots' K/V and of the tokens'.
    """

    forward: CapturedForward
    tokens: Array
    positions: Array
    slots: Array
    seen: Array
    entries: Array
    held: Array
    padding: Array
    marks: Array
    own_marks: Array


@dataclass
class Origins:
    """The tokens that a model read, by the prints of their K/V.

    Attributes:
        where: (forward, row, column) of each token, in the order of reading.
    """

    where: list[tuple[int, int, int]] = field(default_factory=list)
    _by_print: dict[int, list[int]] = field(default_factory=dict)
    _last: dict[int, tuple[Array, Array]] = field(default_factory=dict)

    def read(self, forward: CapturedForward) -> SeenForward:
        """Read the next forward."""
        tokens = forward.tokens.cpu().numpy()
        rows, count = tokens.shape
        held, written = _prints(forward)
        if held is None or written is None:
            held = written = len(self.where) + 1 + np.arange(rows * count).reshape(rows, count)
            slots = np.tile(np.arange(count), (rows, 1))
        else:
            before = self._last.get(forward.cache, (held[:0], held[:0]))[0]
            slots = find_slots(written, held, before)
        entries = self._enter(forward.number, written)
        found = self._find(forward.cache, held, entries, slots)
        seen = _seen(forward, slots, held.shape[1])
        positions = tokens if forward.positions is None else forward.positions.cpu().numpy()
        padding = _padding(forward, seen, slots) | _repeated(entries, slots)
        return SeenForward(
            forward, tokens, positions, slots, seen, entries, found, padding, held, written
        )

    def _enter(self, number: int, written: Array) -> Array:
        """Number the tokens of a forward. Those of a row with the same K/V are one token.

        So is what fills a rectangle: the same token, read several times.
        """
        entries = np.zeros(written.shape, dtype=np.int64)
        for row in range(len(written)):
            own: dict[int, int] = {}
            for column, mark in enumerate(written[row].tolist()):
                if mark not in own:
                    own[mark] = len(self.where)
                    self._by_print.setdefault(mark, []).append(len(self.where))
                    self.where.append((number, row, column))
                entries[row, column] = own[mark]
        return entries

    def _find(self, cache: int, held: Array, entries: Array, slots: Array) -> Array:
        """Return whose K/V each slot holds, (b, T)."""
        found = np.full(held.shape, UNKNOWN, dtype=np.int64)
        found[held == EMPTY] = NOTHING
        rows = min(held.shape[0], slots.shape[0])
        for row in range(rows):
            fits = slots[row] >= 0
            found[row, slots[row, fits]] = entries[row, fits]
        prints, before = self._last.get(cache, (held[:0], found[:0]))
        shape = tuple(np.minimum(held.shape, prints.shape))
        part = (slice(shape[0]), slice(shape[1]))
        same = (held[part] == prints[part]) & (found[part] == UNKNOWN)
        found[part] = np.where(same, before[part], found[part])
        # Entries from here on are of this forward, and certain.
        own = entries.min() if entries.size else 0
        # Lookups are slow, and most rows only grew since the forward before.
        for row in np.unique(np.nonzero(found == UNKNOWN)[0]).tolist():
            # Something was moved, so equal K/V in the same slot may be another row's as well.
            found[row] = np.where((found[row] >= 0) & (found[row] < own), UNKNOWN, found[row])
            had = set(before[row].tolist()) if row < len(before) else set()
            self._look_up(found[row], held[row], had)
        self._last[cache] = (held, found)
        return found

    def _look_up(self, found: Array, held: Array, had: Set[int]) -> None:
        """Fill in the unknown slots of one row, by their prints.

        Equal tokens at equal places have equal K/V, in several rows. So of several tokens that may
        have been the source, take the one with the most of its neighbours beside it here, then the
        one that was read together with most of the others, then one that the row had before.
        """
        known: dict[int, list[int]] = {}
        for slot in np.flatnonzero(found == UNKNOWN).tolist():
            entries = self._by_print.get(int(held[slot]))
            if entries:
                known[slot] = entries
        together: Counter[tuple[int, int]] = Counter()
        beside: Counter[tuple[int, int, int]] = Counter()
        for slot, entries in known.items():
            sources = [self.where[entry] for entry in entries]
            together.update({(number, row) for number, row, _ in sources})
            beside.update({(number, row, column - slot) for number, row, column in sources})

        def rank(slot: int, entry: int) -> tuple[int, int, bool, int]:
            number, row, column = self.where[entry]
            return beside[number, row, column - slot], together[number, row], entry in had, entry

        for slot, entries in known.items():
            found[slot] = max(entries, key=lambda entry: rank(slot, entry))


def _prints(forward: CapturedForward) -> tuple[Array | None, Array | None]:
    if forward.held is None or forward.written is None:
        return None, None
    return forward.held.cpu().numpy(), forward.written.cpu().numpy()


def find_slots(own: Array, held: Array, before: Array) -> Array:
    """Return the slots (b, q) whose K/V are those of the tokens; -1 for none.

    Args:
        own: (b, q), prints of the tokens' K/V.
        held: (b, T), prints of all K/V.
        before: prints of all K/V in the forward before, of the same cache.

    Most caches append, so the last q slots are tried first. Elsewhere the same K/V may be there
    twice. Then slots count that lie beside those of the row's other tokens, then those that have
    changed, then the first one behind that of the token before.
    """
    rows, count = own.shape
    width = held.shape[1]
    found = np.full((rows, count), -1, dtype=np.int64)
    if held.shape[0] != rows:
        return found
    for row in range(rows):
        if count <= width and (held[row, width - count :] == own[row]).all():
            found[row] = np.arange(width - count, width)
            continue
        changed = np.ones(width, dtype=bool)
        if row < len(before):
            shared = min(width, before.shape[1])
            changed[:shared] = held[row, :shared] != before[row, :shared]
        places = [np.flatnonzero(held[row] == mark) for mark in own[row]]
        shifts = np.concatenate([found_at - column for column, found_at in enumerate(places)])
        votes = Counter(shifts.tolist())
        last = -1
        for column, found_at in enumerate(places):
            if found_at.size:
                agree = np.array([votes[shift] for shift in (found_at - column).tolist()])
                # lexsort goes by its last key first.
                order = np.lexsort((found_at, found_at <= last, ~changed[found_at], -agree))
                last = found[row, column] = found_at[order[0]]
    return found


def _seen(forward: CapturedForward, slots: Array, width: int) -> Array:
    """Return what each query sees, (b, q, T).

    Where that was not seen it follows from the mask that was given, and from the order of slots.
    """
    if forward.seen is not None:
        return forward.seen.cpu().numpy()[..., :width]
    given = forward.given
    if given is not None and given.dim() == 4:
        seen, _ = visible(given, forward.shape, width, True)
        if seen is not None:
            return seen.cpu().numpy()
    causal = np.arange(width) <= slots[:, :, None]
    if given is not None and given.dim() == 2 and given.shape[1] >= width:
        return causal & (given[:, None, :width] != 0).cpu().numpy()
    if forward.padding is not None:
        hidden = np.zeros((len(slots), width), dtype=bool)
        np.put_along_axis(hidden, slots, forward.padding.cpu().numpy(), axis=1)
        causal = causal & ~hidden[:, None]
    return causal


def _repeated(entries: Array, slots: Array) -> Array:
    """Return which tokens fill a rectangle, (b, q): a row's last one again, in its own slot."""
    repeats = np.zeros(entries.shape, dtype=bool)
    same = (entries[:, 1:] == entries[:, :-1]) & (slots[:, 1:] == slots[:, :-1])
    repeats[:, 1:] = np.logical_and.accumulate(same[:, ::-1], axis=1)[:, ::-1]
    return repeats


def _padding(forward: CapturedForward, seen: Array, slots: Array) -> Array:
    """Return which tokens are padding, (b, q): those at either end that their row cannot see.

    A hidden token between others is a fault, not padding.
    """
    own = np.take_along_axis(seen, np.maximum(slots, 0)[:, :, None], axis=2)[:, :, 0]
    hidden = ~own
    if forward.padding is not None:
        hidden |= forward.padding.cpu().numpy()
    for row in range(len(hidden)):
        real = np.flatnonzero(~hidden[row])
        if real.size:
            # Padding may see itself; that no real token sees it is what counts. The last real token
            # sees more than what fills the row behind it.
            counts = seen[row, real].sum(1)
            last = real[np.flatnonzero(counts == counts.max())[-1]]
            hidden[row] |= ~seen[row, last, np.maximum(slots[row], 0)]
    left = np.logical_and.accumulate(hidden, axis=1)
    right = np.logical_and.accumulate(hidden[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(left | right)
