"""Draw the map of the course, figures/course-*.svg, and write its table into docs/course.md.

Run as `PYTHONPATH=tests python -m course_map`. The data is notebooks/course.csv, one line for each
notebook: its road (core or optional), minutes in all and of the core, the notebook that it comes
after, and its topic. A notebook whose file does not exist is left out, and so is what would lead
to it. Not known here: what a notebook contains.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
DATA = ROOT / "notebooks" / "course.csv"
PAGE = ROOT / "docs" / "course.md"
BEGIN, END = "<!-- written by tests/course_map.py -->\n", "<!-- end -->\n"
ROADS = ("core", "optional")
MOST_LETTERS = 28  # of a topic, so that it fits into its box

WIDTH, HEIGHT, GAP, STEP, MARGIN = 190, 62, 44, 84, 16  # of a box, and between boxes
FONT = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"


@dataclass(frozen=True)
class Look:
    """Colours of a page: its ground, text, quiet text, lines, and the fill of a core box."""

    paper: str
    ink: str
    muted: str
    line: str
    core: str


LOOKS = {
    "light": Look("#ffffff", "#1a2130", "#566074", "#8a93a3", "#d9efe6"),
    "dark": Look("#0f141c", "#e6eaf2", "#a7b0c0", "#6d7789", "#17402f"),
}


@dataclass(frozen=True)
class Notebook:
    """A line of the data. `minutes` and `core_minutes` are None where nothing is stated."""

    name: str
    road: str
    minutes: int | None
    core_minutes: int | None
    after: str
    topic: str

    @property
    def words(self) -> str:
        """Its minutes in words."""
        parts = [f"{self.minutes} min"]
        if self.core_minutes is not None:
            parts.append(f"core {self.core_minutes}")
        return ", ".join(parts)


def read(path: Path = DATA, folder: Path = DATA.parent) -> list[Notebook]:
    """Return the lines whose notebook exists in `folder`, in order."""
    found = []
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            if not (folder / f"{line['notebook']}.ipynb").exists():
                continue
            minutes, core = (
                int(line[key]) if line[key] else None for key in ("minutes", "core_minutes")
            )
            found.append(
                Notebook(
                    line["notebook"], line["road"], minutes, core, line["after"], line["topic"]
                )
            )
    return found


def places(notebooks: list[Notebook]) -> dict[str, tuple[int, int]]:
    """Return the column and line of each box.

    The core road is the first line. An optional notebook stands one column after what it needs, in
    the first line that is free there.
    """
    found: dict[str, tuple[int, int]] = {}
    core = [each for each in notebooks if each.road == "core"]
    for column, notebook in enumerate(core):
        found[notebook.name] = column, 0
    for notebook in notebooks:
        if notebook.name in found:
            continue
        column = found[notebook.after][0] + 1 if notebook.after in found else 0
        taken = {line for at, line in found.values() if at == column}
        line = 1
        while line in taken:
            line += 1
        found[notebook.name] = column, line
    return found


def draw(notebooks: list[Notebook], look: Look) -> str:
    """Return the map as SVG."""
    at = places(notebooks)
    corners = {
        name: (MARGIN + column * (WIDTH + GAP), MARGIN + 24 + line * STEP)
        for name, (column, line) in at.items()
    }
    width = max(x for x, _ in corners.values()) + WIDTH + MARGIN
    height = max(y for _, y in corners.values()) + HEIGHT + MARGIN
    parts = [
        f'<rect width="{width}" height="{height}" fill="{look.paper}"/>',
        _text(MARGIN, MARGIN + 6, _sum(notebooks), look.muted, 13),
    ]
    for notebook in notebooks:
        if notebook.after in corners:
            parts.append(_edge(corners[notebook.after], corners[notebook.name], notebook, look))
    for notebook in notebooks:
        parts += _box(corners[notebook.name], notebook, look)
    title = "The notebooks of the course; an arrow leads from what a notebook needs to it"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" role="img" font-family="{escape(FONT)}">'
        f"<title>{title}</title>{''.join(parts)}</svg>\n"
    )


def _sum(notebooks: list[Notebook]) -> str:
    core = [each.core_minutes or 0 for each in notebooks if each.road == "core"]
    return f"The core road: {len(core)} notebooks, {sum(core)} minutes without the exercises"


def _text(x: int, y: int, words: str, colour: str, size: int, weight: int = 400) -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}"'
        f' fill="{colour}">{escape(words)}</text>'
    )


def _box(corner: tuple[int, int], notebook: Notebook, look: Look) -> list[str]:
    x, y = corner
    is_core = notebook.road == "core"
    stroke = f'stroke="{look.ink}" stroke-width="2"'
    if not is_core:
        stroke = f'stroke="{look.line}" stroke-width="1.5" stroke-dasharray="5 4"'
    fill = look.core if is_core else look.paper
    rectangle = (
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="8" fill="{fill}" {stroke}/>'
    )
    return [
        rectangle,
        _text(x + 10, y + 20, notebook.name, look.ink, 14, 700),
        _text(x + 10, y + 37, notebook.topic, look.ink, 11),
        _text(x + 10, y + 53, notebook.words, look.ink if is_core else look.muted, 11),
    ]


def _edge(start: tuple[int, int], stop: tuple[int, int], notebook: Notebook, look: Look) -> str:
    """An arrow from the right side of one box to the left side of the other."""
    x, y = start[0] + WIDTH, start[1] + HEIGHT // 2
    to_x, to_y = stop[0], stop[1] + HEIGHT // 2
    if notebook.road != "core":
        y += 12  # leaves below the core road, and does not meet a line that arrives
    middle = x + 9 + 6 * ((start[1] - MARGIN) // STEP)  # lines from different boxes do not merge
    colour = look.ink if notebook.road == "core" else look.line
    path = f"M{x} {y}H{middle}V{to_y}H{to_x - 2}"
    head = f"M{to_x - 9} {to_y - 5}L{to_x - 2} {to_y}L{to_x - 9} {to_y + 5}"
    return f'<path d="{path}{head}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def table(notebooks: list[Notebook]) -> str:
    """Return the table of docs/course.md."""
    lines = ["| notebook | road | minutes | of them core | after |", "|---|---|---|---|---|"]
    names = {each.name for each in notebooks}
    for each in notebooks:
        core = "" if each.core_minutes is None else each.core_minutes
        after = each.after if each.after in names else ""
        link = f"[{each.name}](../notebooks/{each.name}.ipynb): {each.topic}"
        lines.append(f"| {link} | {each.road} | {each.minutes} | {core} | {after} |")
    return "\n".join(lines) + "\n"


def page(text: str, notebooks: list[Notebook]) -> str:
    """Return the page with its table renewed."""
    before, _, rest = text.partition(BEGIN)
    _, _, behind = rest.partition(END)
    return f"{before}{BEGIN}{table(notebooks)}{END}{behind}"


def drawings(notebooks: list[Notebook]) -> dict[Path, str]:
    """Return the files of the map and what they hold."""
    return {
        ROOT / "figures" / f"course-{name}.svg": draw(notebooks, look)
        for name, look in LOOKS.items()
    }


def main() -> None:
    """Write the drawings and the table."""
    notebooks = read()
    for path, text in drawings(notebooks).items():
        path.write_text(text, encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), notebooks), encoding="utf-8")


if __name__ == "__main__":
    main()
