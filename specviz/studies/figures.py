"""`specviz study figures`: the pictures and pages of figures/, from real runs of the embedded pair.

Each shows one step of one way to handle raggedness, as `step_through` exports it.
"""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from specviz.engine.models.pair import Pair, load_pair
from specviz.engine.strategies import strategy
from specviz.generation.generate import generate
from specviz.prompts import load_prompts
from specviz.record.schema import PHASES
from specviz.record.trace import Trace
from specviz.util.files import check_writable, make_folder, write
from specviz.util.validate import require_path
from specviz.views.charts import pick_ragged_round
from specviz.views.stepper.browser import check_browser
from specviz.views.stepper.widget import StepThrough, step_through

PROMPTS = 8
NEW_TOKENS = 64
THEMES = ("light", "dark")
WIDTH = 1200
SCALE = 1.5
_STYLE = (
    ":root { color-scheme: light dark } "  # of the page, not of the text alone
    "body { font: 16px/1.6 system-ui, sans-serif; max-width: 44em; margin: 3em auto; "
    "padding: 0 1em }"
)


@dataclass(frozen=True)
class Picture:
    """One run, and the step of it to show. name: of the files; caption: what to look at."""

    name: str
    strategy: str
    options: dict[str, Any]
    phase: str
    caption: str
    batch_size: int = PROMPTS


PICTURES = (
    Picture(
        "naive",
        "masking",
        {"positions": "column"},
        "verify",
        "Positions counted in columns drift away from the indices: wrong text.",
    ),
    Picture(
        "repadding",
        "repadding",
        {},
        "verify",
        "Padding that is never removed, a mask of ones, a bonus from the draft: wrong text.",
    ),
    Picture(
        "eqspec",
        "eqspec",
        {},
        "synchronise",
        "After a ragged acceptance, rows move until they end in one column again.",
    ),
    Picture(
        "exspec",
        "exspec",
        {},
        "schedule",
        "A pool of sequences, from which rounds take groups of equal length if there are any.",
        batch_size=4,
    ),
    Picture(
        "inplace",
        "inplace",
        {},
        "accept",
        "Every row's K/V is written at its own positions: nothing has to move.",
    ),
)
SIDE_BY_SIDE = ("naive", "eqspec")  # on a page of their own


def make_figures(out: str | Path) -> list[Path]:
    """Decode eight bundled prompts with each strategy, draw one step of each, and link the pages.

    Each run gives NAME-light.png, NAME-dark.png, NAME.svg and the page replays/NAME.html below
    `out`; replays/index.html links the pages.

    Returns:
        The files.

    Raises:
        OSError: there is no browser to draw with, or a file cannot be written.
    """
    out = require_path("out", out)
    check_writable(out, folder=True)
    check_browser()
    make_folder(out / "replays")
    pair = load_pair()
    files = []
    traces = {}
    for picture in PICTURES:
        trace = _record(pair, picture)
        traces[picture.name] = trace
        files += _write(picture, step_through(trace), trace, out)
    first, second = SIDE_BY_SIDE
    page = out / "replays" / f"{first}-{second}.html"
    step_through(traces[first], traces[second]).export_html(page)
    index = out / "replays" / "index.html"
    write(index, _index().encode())
    return [*files, page, index]


def _record(pair: Pair, picture: Picture) -> Trace:
    result = generate(
        pair,
        load_prompts(limit=PROMPTS),
        strategy=strategy(picture.strategy, **picture.options),
        batch_size=picture.batch_size,
        max_new_tokens=NEW_TOKENS,
        record=True,
        progress=False,
    )
    assert result.trace is not None
    return result.trace


def _write(picture: Picture, view: StepThrough, trace: Trace, out: Path) -> list[Path]:
    view.step = pick_ragged_round(trace) * len(PHASES) + PHASES.index(picture.phase)
    pngs = [out / f"{picture.name}-{theme}.png" for theme in THEMES]
    for theme, path in zip(THEMES, pngs, strict=True):
        view.export_png(path, theme=theme, width=WIDTH, scale=SCALE)
    drawing = out / f"{picture.name}.svg"
    page = out / "replays" / f"{picture.name}.html"
    view.export_svg(drawing, width=WIDTH)
    view.export_html(page)
    return [*pngs, drawing, page]


def _index() -> str:
    """Return a page that links the others."""
    links = [(picture.name, picture.caption) for picture in PICTURES]
    both = "The first and the third side by side: press d for the first difference."
    links.append(("-".join(SIDE_BY_SIDE), both))
    items = []
    for name, caption in links:
        items.append(f'<li><a href="{name}.html">{escape(name)}</a>: {escape(caption)}</li>')
    lines = "\n".join(items)
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Recorded runs</title><style>{_STYLE}</style></head>
<body>
<h1>Recorded runs, step by step</h1>
<p>{PROMPTS} prompts, {NEW_TOKENS} new tokens each, of the embedded pair. \
Arrow keys step, ? lists the keys.</p>
<ul>
{lines}
</ul>
</body>
</html>
"""
