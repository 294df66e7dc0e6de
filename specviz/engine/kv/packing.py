"""Packed forwards: rows that verify different numbers of tokens, without the filling between them.

A rectangle (b, q) computes q tokens in every row, however few of them count. Packed, the N tokens
that count lie in one row (1, N), so that all linear layers compute N tokens. Attention alone needs
to know which row a token belongs to: there the queries are put back into the rectangle.

Both forms give the same logits up to rounding. On a CPU they are equal bit by bit in float32, for
the tests' models and the embedded target. In float64 they differ by at most 5e-15: a matrix product
of another shape may add its terms in another order.
"""

from typing import NamedTuple

from torch import Tensor

from specviz.engine.kv.feed import Feed

# Putting queries in their places costs a part of the forward, and as much as some tokens cost:
# docs/results.md has the measurement.
WORTH_SHARE = 0.1
WORTH_TOKENS = 16


class Packing(NamedTuple):
    """Where packed tokens belong.

    Attributes:
        places: (N,) int64, where they are in the flat rectangle.
        rows, width: b and q of the rectangle.
    """

    places: Tensor
    rows: int
    width: int

    def pack(self, values: Tensor) -> Tensor:
        """Return the values (1, N, ...) of the packed tokens, for values (b, q, ...) of all."""
        return values.flatten(0, 1)[self.places][None]

    def unpack(self, values: Tensor) -> Tensor:
        """Return values (1, N, ...) in their places in (b, q, ...), with zeros in all others."""
        rectangle = values.new_zeros(self.rows * self.width, *values.shape[2:])
        rectangle[self.places] = values[0]
        return rectangle.unflatten(0, (self.rows, self.width))


def is_worth_packing(feed: Feed) -> bool:
    """Return whether so much of the feed is filling that leaving it out saves time."""
    size = feed.tokens.numel()
    filling = 0 if feed.count is None else size - feed.count
    return filling >= max(WORTH_TOKENS, WORTH_SHARE * size)


def find_packing(feed: Feed) -> Packing:
    """Return the places of the feed's `count` valid tokens."""
    # A stable sort instead of `nonzero`, whose size the device would have to tell the host.
    order = (~feed.valid).flatten().argsort(stable=True)
    return Packing(order[: feed.count], *feed.tokens.shape)
