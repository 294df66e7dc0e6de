"""The pictures and pages of figures/, from runs of the embedded pair.

Each shows one step of one way to handle raggedness, as `sv.step_through` exports it:
NAME-light.png, NAME-dark.png, NAME.svg and the page replays/NAME.html. Needs Chromium or Chrome.
"""

from dataclasses import dataclass, field
from html import escape
from typing import Any

from measure import FIGURES

import specviz as sv
from specviz.record.schema import PHASES
from specviz.views.charts import pick_ragged_round

PROMPTS, NEW_TOKENS, WIDTH, SCALE = 8, 64, 1200, 1.5
STYLE = (
    ":root { color-scheme: light dark } "  # of the page, not of the text alone
    "body { font: 16px/1.6 system-ui, sans-serif; max-width: 44em; margin: 3em auto; "
    "padding: 0 1em }"
)


@dataclass(frozen=True)
class Picture:
    """One run, and the step of it to show. name: of the files; caption: what to look at."""

    name: str
    strategy: str
    phase: str
    caption: str
    options: dict[str, Any] = field(default_factory=dict)
    batch_size: int = PROMPTS


PICTURES = (
    Picture(
        "naive",
        "masking",
        "verify",
        "Positions counted in columns drift away from the indices: wrong text.",
        {"positions": "column"},
    ),
    Picture(
        "repadding",
        "repadding",
        "verify",
        "Padding that is never removed, a mask of ones, a bonus from the draft: wrong text.",
    ),
    Picture(
        "eqspec",
        "eqspec",
        "synchronise",
        "After a ragged acceptance, rows move until they end in one column again.",
    ),
    Picture(
        "exspec",
        "exspec",
        "schedule",
        "A pool of sequences, from which rounds take groups of equal length if there are any.",
        batch_size=4,
    ),
    Picture(
        "inplace",
        "inplace",
        "accept",
        "Every row's K/V is written at its own positions: nothing has to move.",
    ),
)


def draw() -> None:
    """Write all pictures and pages, and replays/index.html, which links the pages."""
    pair = sv.load_pair()
    replays = FIGURES / "replays"
    traces = {}
    for picture in PICTURES:
        result = sv.generate(
            pair,
            sv.load_prompts(limit=PROMPTS),
            strategy=sv.strategy(picture.strategy, **picture.options),
            batch_size=picture.batch_size,
            max_new_tokens=NEW_TOKENS,
            record=True,
        )
        trace = traces[picture.name] = result.trace
        view = sv.step_through(trace)
        view.step = pick_ragged_round(trace) * len(PHASES) + PHASES.index(picture.phase)
        for theme in ("light", "dark"):
            path = FIGURES / f"{picture.name}-{theme}.png"
            view.export_png(path, theme=theme, width=WIDTH, scale=SCALE)
        view.export_svg(FIGURES / f"{picture.name}.svg", width=WIDTH)
        view.export_html(replays / f"{picture.name}.html")
    both = sv.step_through(traces["naive"], traces["eqspec"])
    both.export_html(replays / "naive-eqspec.html")
    (replays / "index.html").write_text(index(), encoding="utf-8")


def index() -> str:
    """Return a page that links the others."""
    links = [(picture.name, picture.caption) for picture in PICTURES]
    both = "The first and the third side by side: press d for the first difference."
    links.append(("naive-eqspec", both))
    lines = "\n".join(
        f'<li><a href="{name}.html">{escape(name)}</a>: {escape(caption)}</li>'
        for name, caption in links
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Recorded runs</title><style>{STYLE}</style></head>
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


if __name__ == "__main__":
    draw()
