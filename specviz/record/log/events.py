"""What a log consists of: forwards, moves and the ends of rounds, as a `TraceWriter` keeps them.

Contract: plain data, checked before it gets here. Not known here: files, and the tables that events
become.

m tokens of a forward, b rows of a round, R requests.
"""

from dataclasses import dataclass, field

from specviz.record.log.sight import Sight
from specviz.record.schema import Array

MOVED = ("from_row", "from_slot", "to_row", "to_slot", "length")


@dataclass(frozen=True)
class Limits:
    """What arguments are checked against: the requests' lengths n (R,), K and V."""

    lengths: Array
    num_draft_tokens: int
    vocabulary_size: int


@dataclass(frozen=True, eq=False)
class Forward:
    """Tokens that a model was fed at once.

    Attributes:
        model, phase: their names.
        row, request, token, index: int64 (m,).
        position, slot, node: the same, None where they were not given.
        sight: what the queries saw, None where it was not given.
    """

    model: str
    phase: str
    row: Array
    request: Array
    token: Array
    index: Array
    position: Array | None
    slot: Array | None
    node: Array | None
    sight: Sight | None


@dataclass(frozen=True, eq=False)
class Moves:
    """Blocks copied at once inside a model's cache: (n, 5) ints, columns as in MOVED."""

    model: str
    phase: str
    blocks: Array


@dataclass(frozen=True, eq=False)
class RoundEnd:
    """What a round did to its rows.

    Attributes:
        row, request: int64 (b,).
        values: (b, ...) arrays by name, of what was given.
        ms: time of each phase, NaN where it is not known; None where none is.
        slots: columns that the verification saw, None where it was not given.
    """

    row: Array
    request: Array
    values: dict[str, Array]
    ms: list[float] | None
    slots: int | None


@dataclass
class Placed:
    """An event with its round, and its step among what one model did in a phase."""

    event: Forward | Moves
    round: int
    step: int = field(default=0)
