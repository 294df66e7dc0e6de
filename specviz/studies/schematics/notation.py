"""The page of notation: one labelled drawing of a round, formulas, and worked arithmetic.

Contract: every number of the page is computed here. Not known here: files and browsers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from specviz.costs.breakeven import break_even_rate
from specviz.studies.schematics.drawing import CELL, Cell, Drawing


@dataclass(frozen=True)
class DrawnRow:
    """A left-padded row in one round.

    Attributes:
        n: committed tokens before the round; the paper's c.
        a: accepted drafts.
    """

    n: int
    a: int

    @property
    def gain(self) -> int:
        return self.a + 1


@dataclass(frozen=True)
class Example:
    """A round of some rows that end in one column."""

    rows: Sequence[DrawnRow]
    K: int

    @property
    def length(self) -> int:
        return max(row.n for row in self.rows)

    @property
    def new_length(self) -> int:
        return max(row.n + row.gain for row in self.rows)

    def start(self, row: DrawnRow) -> int:
        """Return the slot of its token 0, which is its padding p."""
        return self.length - row.n

    def d(self, row: DrawnRow) -> int:
        """Return by how many slots its K/V moves; a negative d is a move to the left."""
        return self.new_length - self.length - row.gain


EXAMPLE = Example((DrawnRow(n=6, a=2), DrawnRow(n=8, a=0)), K=3)
PER_POSITION = (0.70, 0.49, 0.28)
RATE, K = 0.7, 4
STEP_MS, DRAFT_MS, VERIFY_MS, REST_MS = 10.0, 1.5, 14.0, 1.0


@dataclass(frozen=True)
class Formula:
    """A line of the page: what it says, and the formula as text."""

    words: str
    text: str


FORMULAS = (
    Formula("what a row gains in a round", "gain = a + 1; n' = n + gain"),
    Formula("the pending token", "index n - 1; its K/V does not exist yet"),
    Formula("drafts, and the bonus", "indices n to n + K - 1; index n + a"),
    Formula("where a token lies (left padding)", "slot = start + index; start = p = L - c"),
    Formula("where a token lies (in place)", "slot = position = index"),
    Formula("what a query may see", "slots start to start + index of the query"),
    Formula("realignment", "L' = max(c + gain); d = L' - L - gain; p' = p + d"),
    Formula("mean acceptance length", "1 + accepted / rounds"),
    Formula("with one acceptance rate α for each draft", "1 + α + α² + ... + αᴷ"),
    Formula("conditional acceptance at position i", "per-position(i) / per-position(i - 1)"),
    Formula("a draft x is accepted (sampling)", "with probability min(1, p(x) / q(x))"),
    Formula("after a rejection (sampling)", "draw from max(p - q, 0), scaled to sum to 1"),
    Formula("how often drafts of q are accepted", "α = sum over x of min(p(x), q(x))"),
    Formula("floor of a forward", "max(bytes / bandwidth, operations / peak) + launches"),
    Formula("intensity", "operations / bytes"),
    Formula("price of a round, in steps", "(K · draft + verify + rest) / step"),
    Formula("speculation pays if", "mean acceptance length > price"),
)


def worked() -> list[tuple[str, str]]:
    """Return the worked arithmetic of the page: what is computed, and how."""
    price = (K * DRAFT_MS + VERIFY_MS + REST_MS) / STEP_MS
    length = sum(RATE**power for power in range(K + 1))
    accepted = length - 1
    first, second, third = PER_POSITION
    measured = 1 + sum(PER_POSITION)
    return [
        (
            "Price of a round",
            f"a step takes {STEP_MS:g} ms, a draft forward {DRAFT_MS:g}, a verification "
            f"{VERIFY_MS:g}, the rest {REST_MS:g}; K = {K}: ({K} · {DRAFT_MS:g} + {VERIFY_MS:g} + "
            f"{REST_MS:g}) / {STEP_MS:g} = {price:.2f} steps",
        ),
        (
            "Does it pay?",
            f"α = {RATE:g} gives a mean acceptance length of {length:.2f}, so {length:.2f} / "
            f"{price:.2f} = {length / price:.2f} times the speed; at the break-even α is "
            f"{break_even_rate(price, K):.2f}",
        ),
        (
            "Per-position to conditional",
            f"{first:.2f}, {second:.2f}, {third:.2f} of all rounds accept position 1, 2, 3; given "
            f"that the position before was accepted: {first:.2f}, {second / first:.2f}, "
            f"{third / second:.2f}; the mean acceptance length is 1 + {first:.2f} + {second:.2f} + "
            f"{third:.2f} = {measured:.2f}",
        ),
        (
            "α against accepted / drafted",
            f"α = {RATE:g}, K = {K}: a round accepts {accepted:.2f} of {K} drafts, so accepted / "
            f"drafted is {accepted / K:.2f}: less than α, as drafts behind a rejection count as "
            "drafted",
        ),
    ]


def drawing() -> Drawing:
    """Draw the example: a row before the round and after it, and another one."""
    first, second = EXAMPLE.rows
    picture = Drawing(
        "notation",
        "One round of two rows, and every letter",
        _alt(first, second),
        900,
        500,
    )
    x = 150
    slots = EXAMPLE.length + EXAMPLE.K
    picture.cells(x, 44, [(str(slot), "none") for slot in range(slots)], "slot")
    picture.span(x, x + CELL * EXAMPLE.length, 92, f"L = {EXAMPLE.length}")
    picture.span(x + CELL * EXAMPLE.length, x + CELL * slots, 92, f"K = {EXAMPLE.K} drafts")
    _draw_row(picture, x, 108, first, "row 0, verified")
    _draw_index(picture, x, 142, first)
    start = EXAMPLE.start(first)
    end = x + CELL * EXAMPLE.length
    picture.span(x, x + CELL * start, 190, f"start = p = {start}", below=True)
    picture.span(x + CELL * start, end, 190, f"n = c = {first.n}", below=True)
    picture.span(end, end + CELL * first.a, 190, f"a = {first.a}", below=True)
    picture.arrow(
        (end - CELL / 2, 240),
        (end - CELL / 2, 172),
        text=f"pending: index n - 1 = {first.n - 1}",
        at=(end - CELL / 2, 256),
    )
    _draw_row(picture, x, 274, second, "row 1, verified")
    _draw_index(picture, x, 308, second)
    _say_gains(picture, x + CELL * slots + 24, first, second)
    bonus = f"bonus: index n + a = {first.n + first.a}, the next pending token"
    picture.note(x + CELL * EXAMPLE.new_length + 12, 400, bonus)
    _draw_after(picture, x, 378, first, "row 0, after")
    _draw_after(picture, x, 418, second, "row 1, after")
    picture.span(
        x, x + CELL * EXAMPLE.new_length, 470, f"L' = max(c + gain) = {EXAMPLE.new_length}", True
    )
    return picture


def _say_gains(picture: Drawing, right: int, first: DrawnRow, second: DrawnRow) -> None:
    picture.note(right, 130, f"gain = a + 1 = {first.gain}")
    picture.note(
        right,
        152,
        f"d = {EXAMPLE.new_length} - {EXAMPLE.length} - {first.gain} = {EXAMPLE.d(first)}",
    )
    picture.note(right, 296, f"gain = {second.gain}")
    picture.note(
        right,
        318,
        f"d = {EXAMPLE.new_length} - {EXAMPLE.length} - {second.gain} = {EXAMPLE.d(second)}",
    )


def _draw_row(picture: Drawing, x: int, y: int, row: DrawnRow, label: str) -> None:
    drafts = [("✓", "accepted")] * row.a + [("x", "rejected")] * (EXAMPLE.K - row.a)
    text = [("t", "text")] * (row.n - 1) + [("t", "pending")]
    padding: list[Cell] = [("", "empty")] * EXAMPLE.start(row)
    picture.cells(x, y, [*padding, *text, *drafts], label)


def _draw_index(picture: Drawing, x: int, y: int, row: DrawnRow) -> None:
    index = [(str(number), "none") for number in range(row.n + EXAMPLE.K)]
    picture.cells(x + CELL * EXAMPLE.start(row), y, index, "")
    picture.note(x - 10, y + 22, "position = index", "small", "end")


def _draw_after(picture: Drawing, x: int, y: int, row: DrawnRow, label: str) -> None:
    n = row.n + row.gain
    padding: list[Cell] = [("", "empty")] * (EXAMPLE.new_length - n)
    text = [("t", "text")] * row.n + [("✓", "accepted")] * row.a
    picture.cells(x, y, [*padding, *text, ("+", "bonus")], label)


def _alt(first: DrawnRow, second: DrawnRow) -> str:
    return (
        f"Two left-padded rows of n = {first.n} and {second.n} tokens end in column L = "
        f"{EXAMPLE.length}, with K = {EXAMPLE.K} drafts behind them. Row 0 has start = p = "
        f"{EXAMPLE.start(first)}, accepts a = {first.a} drafts, gains {first.gain} tokens. Row 1 "
        f"accepts none and gains {second.gain}. After the round both end in column L' = "
        f"{EXAMPLE.new_length}: row 0 moved by {EXAMPLE.d(first)}, row 1 by {EXAMPLE.d(second)}."
    )
