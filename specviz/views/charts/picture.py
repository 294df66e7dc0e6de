"""`batch_picture`: the rows of a batch in their cache slots, around the drafts of one round.

Contract: one bar trace for each kind of cell, named by that kind in the trace's meta, on a canvas in pixels. Reads a Trace alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from specviz.record.schema import PHASES
from specviz.record.trace import Trace
from specviz.util.text import escape, label, visible
from specviz.views.charts.canvas import Look, boxes, canvas, lines, texts, write_into
from specviz.views.stepper.cells import (
    Cell,
    Kind,
    Row,
    Window,
    batch_rows,
    choose_window,
    frame_cells,
)
from specviz.views.stepper.sentences import count, headline, sentence
from specviz.views.theme import (
    AMBER,
    BLUE,
    BRIGHT_AMBER,
    CLEAR,
    GREEN,
    GREY,
    ORANGE,
    SANS,
    Theme,
    ThemeName,
    solid,
    themed,
    tint,
)

LOOKS: dict[Kind, Look] = {
    "padding": Look("· padding", CLEAR, sign="·"),
    "prompt": Look("prompt", tint(GREY, 0.16)),
    "accepted": Look("✓ accepted earlier", tint(GREY, 0.06), tint(GREY, 0.45), 1, "✓"),
    "bonus": Look("● earlier bonus", tint(GREY, 0.06), tint(GREY, 0.45), 1, "●"),
    "pending": Look("○ pending", tint(BLUE, 0.1), solid(BLUE), 2, "○"),
    "drafted": Look("? drafted", tint(BLUE, 0.16), tint(BLUE, 0.6), 1, "?"),
    "accepted_now": Look("✓ accepted now", tint(GREEN, 0.3), solid(GREEN), 1.5, "✓"),
    "bonus_now": Look("● bonus, pending", tint(BRIGHT_AMBER, 0.36), solid(AMBER), 2.5, "●"),
    "rejected_now": Look(
        "✗ rejected, stale K/V", tint(ORANGE, 0.15), solid(ORANGE), 1, "✗", tint(ORANGE, 0.3)
    ),
    "unreached_now": Look(
        "– not reached, stale K/V", tint(GREY, 0.06), solid(GREY), 1, "–", tint(ORANGE, 0.3)
    ),
    "discarded_now": Look(
        "↺ verified, thrown away",
        tint(BRIGHT_AMBER, 0.12),
        solid(AMBER),
        1,
        "↺",
        tint(BRIGHT_AMBER, 0.3),
    ),
    "stale": Look("stale K/V", tint(GREY, 0.06), tint(GREY, 0.5), 1, "", tint(GREY, 0.35)),
    "empty": Look("empty slot", CLEAR, tint(GREY, 0.25), 1),
}  # in the order of the legend

# all in px
CELL, NARROW, GAP = 38, 22, 2  # width of a slot, the least one, and what separates two cells
LABELS, MINIATURE, FOLD, RIGHT = (
    108,
    78,
    92,
    16,
)  # columns left and right of the slots; the second stands in the third
HEADER, AXIS, FOOTER = 58, 22, 58
NUMBERS, LANE, LOWER, BETWEEN = (
    12,
    25,
    19,
    14,
)  # parts of a row, from the top: positions, tokens, KV that does not count, arrow
ROW = NUMBERS + LANE + GAP + LOWER + BETWEEN
ARROW = 5  # middle of a realignment arrow under the last cells: nearer to its own row than to the next one's positions
LETTERS = {0: 5, 1: 4}  # of a token, in a cell of each lane
SIZES = {0: 10.5, 1: 9.5}  # of their font


def batch_picture(
    trace: Trace, round: int, phase: str = "accept", *, slots: int = 18, theme: ThemeName = "auto"
) -> go.Figure:
    """The target's cache after `phase` of `round`: a line of cells for each row, the round's drafts and bonus among them.

    Under a row's tokens hang the slots whose KV does not count: drafts that were not accepted. Slots before the last `slots` are folded.
    Where rows end too far from each other for that, there are more and narrower ones; where even those are too few, each row is folded
    by itself, so that all drafts begin in one column.

    Raises ValueError: no such round, phase or theme, a round without rows, or fewer slots than a round needs;
    or the trace is None.
    """
    rows = batch_rows(trace, round)
    if not rows:
        raise ValueError(f"round {round} has no rows; choose another one")
    if phase not in PHASES:
        raise ValueError(f"phase={phase!r} is unknown; choose one of {', '.join(PHASES)}")
    needed = trace.meta["num_draft_tokens"] + 3
    if slots < needed:
        raise ValueError(f"slots={slots} is too small; choose {needed} or more")
    window = choose_window(rows, slots, slots * CELL // NARROW, moved=phase == "synchronise")
    painter = _Painter(trace, rows, window, themed(theme), phase, slots * CELL / window.slots)
    figure = canvas(
        painter.theme,
        LABELS + FOLD + slots * CELL + RIGHT,
        HEADER + AXIS + len(rows) * ROW + FOOTER,
    )
    cells = frame_cells(trace, round, phase, rows, window)
    figure.add_traces(
        [
            *painter.cells(cells),
            painter.numbers(cells),
            *painter.margin(),
            *painter.miniatures(),
            *painter.motion(),
        ]
    )
    figure.add_traces(painter.header(headline(trace, round, phase), sentence(trace, round, phase)))
    return figure


@dataclass(frozen=True)
class _Painter:
    """Makes traces of rows and cells; knows where a row and a slot lie on the canvas."""

    trace: Trace
    rows: list[Row]
    window: Window
    theme: Theme
    phase: str
    cell: float = CELL

    @property
    def judged(self) -> bool:
        return PHASES.index(self.phase) >= PHASES.index("accept")

    @property
    def starts(self) -> list[int]:
        """Slot of each row's first token."""
        return [row.start_after if self.phase == "synchronise" else row.start for row in self.rows]

    @property
    def ends(self) -> list[int]:
        """Slot behind the tokens with which each row began the round."""
        return [row.end(self.phase == "synchronise") for row in self.rows]

    def x(self, number: int, slot: int) -> float:
        """Left edge of a slot."""
        return LABELS + FOLD + (slot - self.window.firsts[number]) * self.cell

    def y(self, number: int, lane: int) -> float:
        """Upper edge of a row's lane: 0 tokens, 1 what does not count; -1 the positions over them."""
        return HEADER + AXIS + number * ROW + {-1: 0, 0: NUMBERS, 1: NUMBERS + LANE + GAP}[lane]

    def cells(self, cells: Sequence[Cell]) -> list[go.Bar]:
        """One trace for each kind that occurs."""
        kinds = [kind for kind in LOOKS if any(cell.kind == kind for cell in cells)]
        return [self._bars(kind, [cell for cell in cells if cell.kind == kind]) for kind in kinds]

    def _bars(self, kind: Kind, cells: list[Cell]) -> go.Bar:
        left, top = (
            [self.x(cell.row, cell.slot) + GAP / 2 for cell in cells],
            [self.y(cell.row, cell.lane) for cell in cells],
        )
        bars = boxes(
            kind,
            LOOKS[kind],
            left,
            top,
            self.cell - GAP,
            [LOWER if cell.lane else LANE for cell in cells],
        )
        bars = write_into(
            bars,
            [self._text(cell) for cell in cells],
            self.theme.inked("%{text}"),
            SIZES[cells[0].lane],
        )
        hover = [self._hover(cell) for cell in cells]
        return bars.update(
            name=self.theme.inked(bars.name),
            hovertext=hover,
            hovertemplate="%{hovertext}<extra></extra>",
        )

    def _text(self, cell: Cell) -> str:
        if cell.token is None:
            return LOOKS[cell.kind].sign
        return (LOOKS[cell.kind].sign if cell.lane else "") + label(
            self.trace.text(cell.token), int(LETTERS[cell.lane] * self.cell / CELL)
        )

    def _hover(self, cell: Cell) -> str:
        where = f"row {cell.row}, slot {cell.slot}: {cell.kind.replace('_', ' ')}"
        if cell.token is None:
            return where
        text = escape(visible(self.trace.text(cell.token)))
        return f"<b>{text}</b> (token {cell.token})<br>{where}<br>index {cell.index}, position {cell.position}"

    def numbers(self, cells: Sequence[Cell]) -> go.Scatter:
        """Positions over the tokens, each with the sign of its kind."""
        shown = [cell for cell in cells if cell.lane == 0 and cell.position is not None]
        x = [self.x(cell.row, cell.slot) + self.cell / 2 for cell in shown]
        return texts(
            "positions",
            x,
            [self.y(cell.row, -1) + NUMBERS / 2 for cell in shown],
            [self._number(cell) for cell in shown],
            8.5,
        )

    def _number(self, cell: Cell) -> str:
        sign = LOOKS[cell.kind].sign
        if cell.kind in ("prompt", "accepted", "bonus"):
            return self.theme.faded(f"{cell.position} {sign}".strip())
        return self.theme.inked(f"{cell.position} <b>{sign}</b>")

    def margin(self) -> list[go.Scatter | go.Bar]:
        """Left of the slots: each row's name, its lengths, its gain, and how many slots are folded."""
        tops = [self.y(number, 0) for number in range(len(self.rows))]
        names = [self.theme.inked(f"<b>row {number}</b>") for number in range(len(self.rows))]
        folded = [
            self.theme.faded(f"{first} folded") if first > 0 else "" for first in self.window.firsts
        ]
        return [
            texts("rows", [8] * len(tops), [top + 7 for top in tops], names, 12.5, "right"),
            texts(
                "lengths",
                [8] * len(tops),
                [top + 24 for top in tops],
                [self._lengths(row) for row in self.rows],
                10.5,
                "right",
            ),
            texts(
                "folded",
                [LABELS + MINIATURE / 2] * len(tops),
                [top + LANE / 2 + 1 for top in tops],
                folded,
                10,
            ),
            *([self._gains(tops)] if self.judged else []),
        ]

    def _lengths(self, row: Row) -> str:
        text = f"n {row.length} → {row.length + row.gained}" if self.judged else f"n {row.length}"
        return self.theme.faded(text + (" · end" if self.judged and row.finished else ""))

    def _gains(self, tops: list[float]) -> go.Bar:
        most = self.trace.meta["num_draft_tokens"] + 1
        bars = boxes(
            "gained",
            Look("", CLEAR, corner_px=8),
            [66] * len(tops),
            [top - 1 for top in tops],
            30,
            17,
        )
        bars.marker.color = [tint(GREEN, 0.06 + 0.44 * row.gained / most) for row in self.rows]
        gains = [f"<b>+{row.gained}</b>" if row.gained else "idle" for row in self.rows]
        return write_into(bars, gains, self.theme.inked("%{text}"), 11.5, SANS)

    def miniatures(self) -> list[go.Bar]:
        """The whole cache in small: where each row lies, what it gained, and which slots are drawn in full."""
        starts, last = self.starts, max(row.stop for row in self.rows)
        stops = self.ends
        new = (
            [stop + row.gained for stop, row in zip(stops, self.rows, strict=True)]
            if self.judged
            else stops
        )
        drawn = [min(first + self.window.slots, last) for first in self.window.firsts]
        return [
            self._stripe(
                "cache",
                [0] * len(starts),
                [last] * len(starts),
                Look("", tint(GREY, 0.16), corner_px=0),
            ),
            self._stripe("held", starts, stops, Look("", tint(GREY, 0.7), corner_px=0)),
            self._stripe("new", stops, new, Look("", solid(GREEN), corner_px=0)),
            self._stripe(
                "drawn",
                [max(first, 0) for first in self.window.firsts],
                drawn,
                Look("", CLEAR, solid(BLUE), 1, corner_px=0),
                2,
            ),
        ]

    def _stripe(
        self, kind: str, firsts: Sequence[int], stops: Sequence[int], look: Look, margin: float = 0
    ) -> go.Bar:
        scale = MINIATURE / max(row.stop for row in self.rows)
        top = [self.y(number, -1) + 2 - margin for number in range(len(self.rows))]
        widths = [max(stop - first, 0) * scale for first, stop in zip(firsts, stops, strict=True)]
        return boxes(
            kind, look, [LABELS + first * scale for first in firsts], top, widths, 7 + 2 * margin
        )

    def motion(self) -> list[go.Scatter]:
        """Where the round began in each row; after synchronising, an arrow under each row that moved, to where it now ends."""
        bottom = self.y(0, 0) + LANE if self.phase == "synchronise" else self.y(0, 1) + LOWER
        height = bottom - self.y(0, -1)
        edges = [self.x(number, end) for number, end in enumerate(self.ends)]
        begins = [
            (x, self.y(number, -1), x, self.y(number, -1) + height)
            for number, x in enumerate(edges)
        ]
        traces = [lines("begins", self.theme.inked("here the round begins"), begins, solid(BLUE))]
        shifts = {
            number: row.start_after - row.start
            for number, row in enumerate(self.rows)
            if row.start_after != row.start
        }
        return traces + (self._arrows(shifts) if shifts and self.phase == "synchronise" else [])

    def _arrows(self, shifts: dict[int, int]) -> list[go.Scatter]:
        """shifts: slots to the right, by row number. An arrow from beyond the window begins at its edge."""
        ends = {
            number: self.x(number, self.ends[number] + self.rows[number].gained)
            for number in shifts
        }
        levels = {
            number: self.y(number, 1) + LOWER + ARROW for number in shifts
        }  # under the cells, not through them
        left, right = (
            LABELS + FOLD,
            LABELS + FOLD + self.window.slots * self.cell + RIGHT,
        )  # room for a head where a row fills its window
        tails = {
            number: min(max(ends[number] - shift * self.cell, left), right)
            for number, shift in shifts.items()
        }
        arrows = [
            (tails[number], levels[number], ends[number], levels[number]) for number in shifts
        ]
        words = [
            self.theme.inked(f"moved {count(abs(shift), 'slot')}") for shift in shifts.values()
        ]
        beside = [
            ends[number] - self.cell - 6 for number in shifts
        ]  # left of all KV that does not count, under the row's own tokens
        return [
            lines(
                "moves", self.theme.inked("moved by realignment"), arrows, solid(BLUE), arrow=True
            ),
            texts(
                "moved",
                beside,
                [self.y(number, 1) + LOWER / 2 for number in shifts],
                words,
                9.5,
                "left",
            ),
        ]

    def header(self, title: str, words: str) -> list[go.Scatter]:
        """Title, sentence, and the line that says what the columns are."""
        y = HEADER + AXIS / 2 - 3
        right = LABELS + FOLD + self.window.slots * self.cell
        above = "small figures over tokens: their positions"
        return [
            texts("title", [8], [18], [self.theme.inked(f"<b>{escape(title)}</b>")], 16, "right"),
            texts("sentence", [8], [42], [self.theme.inked(escape(words))], 13, "right"),
            texts("positions are", [right], [18], [self.theme.faded(above)], 10.5, "left"),
            texts(
                "whole cache", [LABELS + MINIATURE / 2], [y], [self.theme.faded("whole cache")], 10
            ),
            self._slots(y),
        ]

    def _slots(self, y: float) -> go.Scatter:
        """Numbers of slots over their columns, where all rows share these."""
        if not self.window.shared:
            words = self.theme.faded(
                "each row is folded by itself, so that all drafts begin in one column"
            )
            return texts("slots", [LABELS + FOLD], [y], [words], 10, "right")
        first = self.window.firsts[0]
        ticks = [slot for slot in range(first, first + self.window.slots) if slot % 5 == 0]
        return texts(
            "slots",
            [self.x(0, slot) + self.cell / 2 for slot in ticks],
            [y] * len(ticks),
            [self.theme.faded(f"slot {slot}") for slot in ticks],
            10,
        )
