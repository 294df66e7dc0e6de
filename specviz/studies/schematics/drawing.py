"""An SVG of few elements, with a light and a dark colour scheme in it.

Contract: every method that draws adds one element, so that `len(drawing.elements)` counts them.
Colour is never the only sign: kinds differ in outline or in a stroke through the cell as well.
Lengths are in pixels. Not known here: what is drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from specviz.views.theme import SHADES

CELL = 34
FONT = "DejaVu Sans, Inter, Segoe UI, Helvetica Neue, Arial, sans-serif"
Cell = tuple[str, str]  # text, kind
Point = tuple[float, float]

# By the variables of the drawing, the names of their colours.
_COLOURS = {
    "page": "page",
    "ink": "ink",
    "muted": "muted",
    "line": "grey",
    "text": "blue-soft",
    "text-line": "blue",
    "accepted": "green-soft",
    "accepted-line": "green",
    "rejected": "orange-soft",
    "rejected-line": "orange",
    "bonus": "amber-soft",
    "bonus-line": "amber",
    "wrong": "red",
    "model": "grey-soft",
}


_STYLE = """
LIGHT
@media (prefers-color-scheme: dark) { DARK }
text { font: 13px FONT; fill: var(--ink) }
.small { font-size: 11px; fill: var(--muted) } .wrong { fill: var(--wrong); font-weight: 600 }
.title { font-size: 15px; font-weight: 600 }
.page { fill: var(--page) } .line { stroke: var(--line); fill: none; stroke-width: 1.5 }
.head { fill: var(--line) } rect, circle { stroke-width: 1.5 }
.text { fill: var(--text); stroke: var(--text-line) }
.pending { fill: var(--text); stroke: var(--text-line); stroke-width: 3 }
.accepted { fill: var(--accepted); stroke: var(--accepted-line) }
.draft { fill: var(--text); stroke: var(--text-line); stroke-dasharray: 5 3 }
.rejected { fill: var(--rejected); stroke: var(--rejected-line) }
.bonus { fill: var(--bonus); stroke: var(--bonus-line); stroke-width: 3 }
.empty { fill: none; stroke: var(--line); stroke-dasharray: 2 3 }
.model { fill: var(--model); stroke: var(--line) } .strike { stroke: var(--rejected-line) }
.none { fill: none; stroke: none }
"""


def _style() -> str:
    style = _STYLE.replace("LIGHT", _variables(dark=False)).replace("DARK", _variables(dark=True))
    return style.replace("FONT", FONT)


def _variables(*, dark: bool) -> str:
    lines = [f"--{name}: {SHADES[shade][dark]}" for name, shade in _COLOURS.items()]
    return f"svg {{ {'; '.join(lines)} }}"


@dataclass
class Drawing:
    """An SVG.

    Attributes:
        name: of its file.
        title: what the idea is, in a few words.
        alt: the drawing in words, for those who do not see it.
        width, height: in pixels.
        elements: SVG code, an item for each element.
    """

    name: str
    title: str
    alt: str
    width: int
    height: int
    elements: list[str] = field(default_factory=list)

    def cells(self, x: float, y: float, row: Sequence[Cell], label: str = "") -> None:
        """Draw a row of cells, with a label before it."""
        parts = [_text(x - 10, y + 22, label, "end")] if label else []
        for column, (text, kind) in enumerate(row):
            parts.append(_cell(x + CELL * column, y, text, kind))
        self.elements.append(_group(parts))

    def box(self, x: float, y: float, width: float, lines: Sequence[str], height: int = 52) -> None:
        """Draw a box with a bold first line and smaller ones below it."""
        parts = [f'<rect class="model" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>']
        middle = x + width / 2
        top = y + height / 2 - 8 * (len(lines) - 1) + 5
        for number, line in enumerate(lines):
            style = "small" if number else ""
            parts.append(_text(middle, top + 17 * number, line, "middle", style))
        self.elements.append(_group(parts))

    def flow(self, x: float, y: float, width: float, boxes: Sequence[Sequence[str]]) -> None:
        """Draw boxes of one width, with an arrow from each to the next."""
        before = len(self.elements)
        for number, lines in enumerate(boxes):
            left = x + number * (width + 32)
            self.box(left, y, width, lines)
            if number:
                self.arrow((left - 31, y + 26), (left - 2, y + 26))
        self.elements[before:] = [_group(self.elements[before:])]

    def arrow(self, *points: Point, text: str = "", at: Point | None = None) -> None:
        """Draw an arrow through points, and a text in the middle of its first part."""
        path = " ".join(f"{x},{y}" for x, y in points)
        parts = [f'<polyline class="line" points="{path}" marker-end="url(#head)"/>']
        if text:
            (x1, y1), (x2, y2) = points[:2]
            x, y = at or ((x1 + x2) / 2, (y1 + y2) / 2 - 7)
            parts.append(_text(x, y, text, "middle", "small"))
        self.elements.append(_group(parts))

    def span(self, x1: float, x2: float, y: float, text: str, below: bool = False) -> None:
        """Draw a length from x1 to x2, with its name."""
        name = _text((x1 + x2) / 2, y + (17 if below else -7), text, "middle")
        ends = f"M{x1} {y - 4}v8M{x1} {y}H{x2}M{x2} {y - 4}v8"
        self.elements.append(_group([f'<path class="line" d="{ends}"/>', name]))

    def path(self, points: Sequence[Point], text: str = "", at: Point = (0, 0)) -> None:
        """Draw a line through points."""
        path = " ".join(f"{x},{y}" for x, y in points)
        parts = [f'<polyline class="line" points="{path}"/>']
        self.elements.append(_group([*parts, _text(*at, text, "start", "small")]))

    def dot(self, x: float, y: float, text: str, kind: str = "pending", dx: int = 12) -> None:
        """Draw a point with a name beside it."""
        anchor = "start" if dx > 0 else "end"
        circle = f'<circle class="{kind}" cx="{x}" cy="{y}" r="7"/>'
        self.elements.append(_group([circle, _text(x + dx, y + 5, text, anchor)]))

    def nodes(self, nodes: Sequence[tuple[float, float, str, str]], edges: Sequence[Point]) -> None:
        """Draw a tree: nodes as (x, y, text, kind), and edges as pairs of their numbers."""
        parts = []
        for first, second in edges:
            x1, y1 = nodes[int(first)][:2]
            x2, y2 = nodes[int(second)][:2]
            middle = CELL / 2
            parts.append(
                f'<line class="line" x1="{x1 + middle}" y1="{y1 + middle}" x2="{x2 + middle}" '
                f'y2="{y2 + middle}"/>'
            )
        parts += [_cell(*node) for node in nodes]
        self.elements.append(_group(parts))

    def note(self, x: float, y: float, text: str, style: str = "", anchor: str = "start") -> None:
        """Draw a text."""
        self.elements.append(_group([_text(x, y, text, anchor, style)]))

    def svg(self) -> str:
        """Return the file."""
        body = "\n".join(self.elements)
        marker = (
            '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto"><path class="head" d="M0 0L8 4L0 8z"/></marker>'
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" '
            'aria-labelledby="name words">\n'
            f'<title id="name">{escape(self.title)}</title>\n'
            f'<desc id="words">{escape(self.alt)}</desc>\n'
            f"<style>{_style()}</style>\n<defs>{marker}</defs>\n"
            f'<rect class="page" width="{self.width}" height="{self.height}" rx="8"/>\n'
            f"{_text(20, 28, self.title, 'start', 'title')}\n{body}\n</svg>\n"
        )


def _group(parts: Sequence[str]) -> str:
    return f"<g>{''.join(parts)}</g>"


def _text(x: float, y: float, text: str, anchor: str = "start", style: str = "") -> str:
    kind = f' class="{style}"' if style else ""
    return f'<text{kind} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def _cell(x: float, y: float, text: str, kind: str) -> str:
    rect = (
        f'<rect class="{kind}" x="{x + 1:g}" y="{y + 1:g}" width="{CELL - 2}" '
        f'height="{CELL - 2}" rx="3"/>'
    )
    through = ""
    if kind == "rejected":
        through = f'<path class="strike" d="M{x + 4:g} {y + 30:g}L{x + 30:g} {y + 4:g}"/>'
    style = "wrong" if kind == "none" and text.endswith("!") else ""
    return rect + through + _text(x + CELL / 2, y + 22, text.rstrip("!"), "middle", style)
