"""Which rows decode next: the simulated policies, and their choice from pools.

The choices are those of the engine's scheduler, made for many independent pools at once on sorted
arrays. A test compares the two. Not known here: time, costs, acceptance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from specviz.record.schema import FALLBACKS, Array
from specviz.simulation.selection import Everything, selector_of
from specviz.util.validate import require_bool, require_int, require_mapping, short

STRATEGIES = ("autoregressive", "inplace", "eqspec", "exspec")
GROUPED, REALIGNED, PARTIAL, OVERDUE = range(4)
_READ = ("strategy", "strategy_options", "batch_size", "num_draft_tokens")
_SIMULATED_OPTIONS = {
    "bonus": True,
    "shrink_to_budget": False,
    "drop_cache": False,
    "group_by": "length",
}
_BRANCHING = ("tree", "static_tree")

# A row sorts by one int64 key: n, order of arrival, place.
_PLACE_BITS = 12
_ARRIVAL_BITS = 24
MAX_WINDOW = 2**_PLACE_BITS
MAX_QUEUE = 2**_ARRIVAL_BITS
MAX_LENGTH = 2**26
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Policy:
    """A strategy and its options, by their names in `specviz.strategy`.

    window, fallback and max_wait belong to exspec alone. selector says which proposals are
    verified; those that go by q need a workload from an acceptance table. overlap divides the rows
    into two lanes, of which one drafts while the other verifies; batch_size and window are those of
    both together.

    Raises:
        ValueError: an option is unknown or out of range.
    """

    strategy: str = "inplace"
    batch_size: int = 8
    num_draft_tokens: int = 5
    refill: bool = True
    window: int = 32
    fallback: str = "realign"
    max_wait: int = 8
    selector: Everything = field(default_factory=Everything)
    overlap: bool = False

    def __post_init__(self) -> None:
        _check_choice("strategy", self.strategy, STRATEGIES)
        _check_choice("fallback", self.fallback, FALLBACKS)
        for name in ("batch_size", "num_draft_tokens", "window", "max_wait"):
            require_int(name, getattr(self, name))
        require_bool("refill", self.refill)
        require_bool("overlap", self.overlap)
        if self.overlap and self.batch_size % 2:
            raise ValueError(
                "batch_size must be even for overlap=True, which gives each lane half of the rows,"
                f" got {short(self.batch_size)}; pass {self.batch_size + 1}"
            )
        if not isinstance(self.selector, Everything):
            raise ValueError(
                f"selector must be a selector, got {short(self.selector)}; "
                "pass for instance Tetris(extra=2)"
            )
        if self.pooled and not self.refill:
            raise ValueError(
                "refill must be True for exspec, got False: without it there is no pool to choose"
                " from; leave it out"
            )
        if self.pooled and not self.batch_size <= self.window <= MAX_WINDOW:
            raise ValueError(
                f"window must be from batch_size={short(self.batch_size)} to {MAX_WINDOW}, got"
                f" {short(self.window)}; pass such a number"
            )

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> Policy:
        """Return the policy of a recorded run, from its meta data.

        Raises:
            ValueError: the run had an option that changes rounds and is not simulated, or a drafter
                of trees.
        """
        require_mapping("meta", meta, "pass the meta data of a record")
        missing = [name for name in _READ if name not in meta]
        if missing:
            raise ValueError(f"meta lacks {', '.join(missing)}; pass the meta data of a record")
        if meta.get("drafter") in _BRANCHING:
            raise ValueError(
                f"drafter must propose chains to be simulated, got {meta['drafter']!r}; "
                "record a run with drafter='model'"
            )
        given = meta["strategy_options"]
        for name, simulated in _SIMULATED_OPTIONS.items():
            if given.get(name, simulated) != simulated:
                raise ValueError(
                    f"strategy_options.{name} must be {simulated!r} to be simulated, got"
                    f" {given[name]!r}; record a run with {simulated!r}"
                )
        names = ("refill", "window", "fallback", "max_wait")
        selector = selector_of(meta)
        extra = selector.drafted(1) - 1
        return cls(
            meta["strategy"],
            meta["batch_size"],
            max(meta["num_draft_tokens"] - extra, 1),
            selector=selector,
            # The record of a lane is that of a run with half of the rows.
            overlap=meta.get("lanes", 1) > 1 and "lane" not in meta,
            **{name: given[name] for name in names if name in given},
        )

    @property
    def pooled(self) -> bool:
        """Whether a round takes some of the live rows, rather than all."""
        return self.strategy == "exspec"

    @property
    def capacity(self) -> int:
        """The most rows that are live at once."""
        return self.window if self.pooled else self.batch_size

    @property
    def drafted(self) -> int:
        """Drafts a row and round: K, or what the selector asks for; 0 without speculation."""
        if self.strategy == "autoregressive":
            return 0
        return self.selector.drafted(self.num_draft_tokens)

    @property
    def name(self) -> str:
        """The strategy and those of its options that are not the default, for tables."""
        options = []
        if not self.refill:
            options.append("refill=false")
        if self.pooled:
            for name in ("window", "fallback", "max_wait"):
                value = getattr(self, name)
                if value != getattr(Policy, name):
                    options.append(f"{name}={value}")
        if self.overlap:
            options.append("overlap=true")
        name = f"{self.strategy}:{','.join(options)}" if options else self.strategy
        return name if type(self.selector) is Everything else f"{name}+{self.selector.name}"


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(
            f"{name} must be one of {', '.join(choices)} to be simulated, got {short(value)};"
            " choose one of them"
        )


def choose(
    policy: Policy, round_: Array, count: Array, length: Array, arrival: Array, served: Array
) -> tuple[Array, Array, Array]:
    """Choose this round's rows of each of L pools.

    Args:
        policy: exspec, with its options.
        round_: (L,), how many rounds a pool has had.
        count: (L,), its rows, which lie in places 0..count-1 of P.
        length, arrival, served: (L, P), n, order of arrival, and see `service_order`.

    Returns:
        chosen (L, min(B, P)), places, of which the first `rows` count; rows (L,); and decision
        (L,), an index into DECISIONS.
    """
    place = np.arange(length.shape[1])
    width = min(policy.batch_size, len(place))
    absent = place >= count[:, None]
    size = np.minimum(count, width)
    # An empty place has a length of its own, so that it never belongs to a group.
    own_length = np.where(absent, MAX_LENGTH + place, length)
    if policy.fallback == "realign" and not _some_group_of(size, own_length):
        oldest = _first(arrival, absent, place, width)
        return oldest, size, np.full_like(size, REALIGNED)
    lengths, arrivals, places = _sorted_by_length(own_length, arrival, place)
    arrivals = np.where(lengths < MAX_LENGTH, arrivals, MAX_QUEUE)
    begin, rows = _largest_groups(lengths, arrivals, width)
    group = np.minimum(begin[:, None] + np.arange(width), place[-1])  # (L, b)
    chosen = places[np.arange(len(places))[:, None], group]
    grouped = rows >= size
    if policy.fallback == "realign":
        if grouped.all():
            return chosen, size, np.full_like(size, GROUPED)
        oldest = _first(arrival, absent, place, width)
        chosen = np.where(grouped[:, None], chosen, oldest)
        return chosen, size, np.where(grouped, GROUPED, REALIGNED)
    decision = np.where(grouped, GROUPED, PARTIAL)
    rows = np.minimum(rows, size)
    if policy.fallback == "wait":
        since = np.where(absent, _NEVER, served).min(1) // (2 * len(place))
        overdue = (round_ - since >= policy.max_wait) & (count > 0)
        longest_waiting = _first(served, absent, place, width)
        chosen = np.where(overdue[:, None], longest_waiting, chosen)
        decision = np.where(overdue, OVERDUE, decision)
        rows = np.where(overdue, size, rows)
    return chosen, rows, decision


def service_order(round_: Array, turn: Array, places: int, entering: bool) -> Array:
    """Return numbers that grow in the order in which rows of a pool were last served.

    Rows that enter come after all that were served before. The number // (2 P) is the round from
    which waiting counts.

    Args:
        round_: rounds that the pool has had.
        turn: which of the rows that are served, or enter, in this round.
        places: P.
        entering: whether the rows enter.
    """
    half_rounds = 2 * round_ + (1 if entering else 2)
    return half_rounds * places + turn


def _sorted_by_length(length: Array, arrival: Array, place: Array) -> tuple[Array, Array, Array]:
    """Return length, arrival and place of the rows of each pool, by length, then by arrival."""
    by_arrival = length.astype(np.int64) << _ARRIVAL_BITS | arrival
    key = np.sort(by_arrival << _PLACE_BITS | place, axis=1)
    lengths = key >> (_PLACE_BITS + _ARRIVAL_BITS)
    arrivals = key >> _PLACE_BITS & (MAX_QUEUE - 1)
    places = key & (MAX_WINDOW - 1)
    return lengths, arrivals, places


def _largest_groups(lengths: Array, arrivals: Array, most: int) -> tuple[Array, Array]:
    """Return where the largest group of equal length of each pool begins, and its size: (L,) each.

    Groups of more than `most` rows count as `most`. Of equally large groups it is the one whose
    first row arrived first.

    Args:
        lengths, arrivals: (L, P), sorted by length, then by arrival.
        most: rows of a batch.
    """
    place = np.arange(lengths.shape[1])
    first = np.ones_like(lengths, bool)  # of its group
    first[:, 1:] = lengths[:, 1:] != lengths[:, :-1]
    # From each place on, where the next group begins.
    nexts = np.full_like(lengths, len(place))
    nexts[:, :-1] = np.where(first[:, 1:], place[1:], len(place))
    ends = np.minimum.accumulate(nexts[:, ::-1], axis=1)[:, ::-1]
    sizes = np.minimum(ends - place, most) * first
    # The largest size comes first, and of equal ones the earliest arrival.
    begin = (sizes * (MAX_QUEUE + 1) - arrivals).argmax(1)
    return begin, sizes[np.arange(len(sizes)), begin]


def _some_group_of(size: Array, length: Array) -> bool:
    """Return whether any pool may have `size` (L,) rows of equal `length` (L, P).

    It has none if False; the pool with the fewest rows decides for all.
    """
    reach = max(int(size.min()), 1) - 1
    lengths = np.sort(length, axis=1)
    return bool((lengths[:, reach:] == lengths[:, : lengths.shape[1] - reach]).any())


def _first(order: Array, absent: Array, place: Array, count: int) -> Array:
    """Return the places (L, count) of the rows that come first in `order` (L, P)."""
    key = np.where(absent, _NEVER, order.astype(np.int64) << _PLACE_BITS | place)
    return np.sort(key, axis=1)[:, :count] & (MAX_WINDOW - 1)
