"""Who decodes next: the policies that are simulated, and their choice from pools, for many independent pools at once.

The choices are those of the engine's scheduler, made on sorted arrays instead of one pool at a time; a test holds them side by side.
Not known here: time, costs, acceptance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from specviz.record.schema import Array
from specviz.util.validate import require_bool, require_int, short

STRATEGIES = ("autoregressive", "inplace", "eqspec", "exspec")
FALLBACKS = ("realign", "partial", "wait")
DECISIONS = ("grouped", "realigned", "partial", "overdue")
GROUPED, REALIGNED, PARTIAL, OVERDUE = range(4)
_AS_SIMULATED = {
    "bonus": True,
    "shrink_to_budget": False,
    "drop_cache": False,
    "group_by": "length",
}

_PLACE_BITS, _CAME_BITS = 12, 24  # of a key that is sorted: n, order of arrival, place
MAX_WINDOW, MAX_QUEUE, MAX_LENGTH = 2**_PLACE_BITS, 2**_CAME_BITS, 2**26


@dataclass(frozen=True)
class Policy:
    """A strategy and its options, by the names that they have in `specviz.strategy`; window, fallback and max_wait are exspec's alone."""

    strategy: str = "inplace"
    batch_size: int = 8
    num_draft_tokens: int = 5
    refill: bool = True
    window: int = 32
    fallback: str = "realign"
    max_wait: int = 8

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(
                f"strategy={short(self.strategy)} is not simulated; choose one of {', '.join(STRATEGIES)}"
            )
        if self.fallback not in FALLBACKS:
            raise ValueError(
                f"fallback={short(self.fallback)} is unknown; choose one of {', '.join(FALLBACKS)}"
            )
        for name in ("batch_size", "num_draft_tokens", "window", "max_wait"):
            require_int(name, getattr(self, name))
        require_bool("refill", self.refill)
        if self.pooled and not self.refill:
            raise ValueError("refill=False leaves exspec no pool to choose from; leave it out")
        if self.pooled and not self.batch_size <= self.window <= MAX_WINDOW:
            raise ValueError(
                f"window={self.window} is no pool; pass at least batch_size={self.batch_size}, and at most {MAX_WINDOW}"
            )

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> Policy:
        """That of a recorded run, from its meta data. Raises ValueError if it had an option that changes rounds and is not simulated."""
        given = meta["strategy_options"]
        for name, simulated in _AS_SIMULATED.items():
            if given.get(name, simulated) != simulated:
                raise ValueError(
                    f"strategy_options.{name}={given[name]!r} is not simulated; record a run with {simulated!r}"
                )
        options = {
            name: given[name]
            for name in ("refill", "window", "fallback", "max_wait")
            if name in given
        }
        return cls(
            meta["strategy"], meta["batch_size"], max(meta["num_draft_tokens"], 1), **options
        )

    @property
    def pooled(self) -> bool:
        """Whether rounds take some of more live rows."""
        return self.strategy == "exspec"

    @property
    def capacity(self) -> int:
        """Rows that are live at the most."""
        return self.window if self.pooled else self.batch_size

    @property
    def drafted(self) -> int:
        """Drafts a row and round: K, or 0 without speculation."""
        return 0 if self.strategy == "autoregressive" else self.num_draft_tokens

    @property
    def name(self) -> str:
        """As tables show it: the strategy, and those of its options that are not the default."""
        refill = () if self.refill else ("refill=false",)
        pool = (
            (f"window={self.window}", f"fallback={self.fallback}", f"max_wait={self.max_wait}")
            if self.pooled
            else ()
        )
        defaults = ("window=32", "fallback=realign", "max_wait=8")
        shown = ",".join(option for option in (*refill, *pool) if option not in defaults)
        return f"{self.strategy}:{shown}" if shown else self.strategy


def choose(
    policy: Policy, round_: Array, count: Array, length: Array, came: Array, served: Array
) -> tuple[Array, Array, Array]:
    """This round's rows of each of L pools of `count` (L,) rows, which lie in places 0..count-1 of P.

    Args: round_ (L,): how many rounds a pool has had; (L, P): length: n; came: order of arrival; served: see `service_order`.

    Returns: chosen (L, min(B, P)) places, the first `rows` of which count; rows (L,); decision (L,), an index into DECISIONS.
    """
    place = np.arange(length.shape[1])
    width, absent = min(policy.batch_size, len(place)), place >= count[:, None]
    size = np.minimum(count, width)
    lengths, arrivals, places = _by_length(
        np.where(absent, MAX_LENGTH + place, length), came, place
    )
    begin, rows = _largest_groups(
        lengths, np.where(lengths < MAX_LENGTH, arrivals, MAX_QUEUE), width
    )
    chosen = np.take_along_axis(places, np.minimum(begin[:, None] + np.arange(width), place[-1]), 1)
    grouped = rows >= size
    if policy.fallback == "realign":
        chosen = np.where(grouped[:, None], chosen, _first(came, absent, place, width))
        return chosen, size, np.where(grouped, GROUPED, REALIGNED)
    decision, rows = np.where(grouped, GROUPED, PARTIAL), np.minimum(rows, size)
    if policy.fallback == "wait":
        since = np.where(absent, np.iinfo(served.dtype).max, served).min(1) // (2 * len(place))
        overdue = (round_ - since >= policy.max_wait) & (count > 0)
        chosen = np.where(overdue[:, None], _first(served, absent, place, width), chosen)
        decision, rows = np.where(overdue, OVERDUE, decision), np.where(overdue, size, rows)
    return chosen, rows, decision


def service_order(round_: Array, turn: Array, places: int, entering: bool) -> Array:
    """A number that grows in the order in which rows of a pool were last served, those that enter behind all served before.

    turn: which of those that are served, or enter, in this round; places: P. The number // (2 P) is the round from which waiting counts.
    """
    return (2 * round_ + 1) * places + turn if entering else (2 * round_ + 2) * places + turn


def _by_length(length: Array, came: Array, place: Array) -> tuple[Array, Array, Array]:
    """Length, arrival and place of the rows of each pool, by length and then by arrival."""
    key = np.sort(((length.astype(np.int64) << _CAME_BITS | came) << _PLACE_BITS) | place, axis=1)
    return (
        key >> (_PLACE_BITS + _CAME_BITS),
        key >> _PLACE_BITS & (MAX_QUEUE - 1),
        key & (MAX_WINDOW - 1),
    )


def _largest_groups(lengths: Array, arrivals: Array, most: int) -> tuple[Array, Array]:
    """Where the largest group of each pool begins (L,), and its size; groups of more than `most` count as that many.

    Of equally large groups it is the one whose first row came first. lengths (L, P) are sorted, arrivals (L, P) are those of their rows.
    """
    begin, size, lanes = (
        arrivals.argmin(1),
        np.ones(len(lengths), np.int64),
        np.arange(len(lengths)),
    )
    for rows in range(2, most + 1):
        equal = lengths[lanes, rows - 1 :] == lengths[lanes, : lengths.shape[1] - rows + 1]
        found = equal.any(1)
        lanes, equal = lanes[found], equal[found]
        if not len(lanes):
            break
        begin[lanes] = np.where(equal, arrivals[lanes, : equal.shape[1]], MAX_QUEUE).argmin(1)
        size[lanes] = rows
    return begin, size


def _first(order: Array, absent: Array, place: Array, count: int) -> Array:
    """Places (L, count) of the rows that come first in `order` (L, P)."""
    key = np.where(absent, np.iinfo(np.int64).max, order.astype(np.int64) << _PLACE_BITS | place)
    return np.sort(key, axis=1)[:, :count] & (MAX_WINDOW - 1)
