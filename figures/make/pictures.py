"""The pictures and pages of figures/, from runs of the embedded pair.

Each shows one step of one way to handle raggedness, as `sv.step_through` exports it:
NAME-light.png, NAME-dark.png, NAME.svg and the page replays/NAME.html. Needs Chromium or Chrome.
"""

from html import escape

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


BOTH = "The first and the third side by side: press d for the first difference."
# The name of the files, the run, the phase to show, and what to look at.
PICTURES = (
    (
        "naive", {"strategy": sv.strategy("masking", positions="column")}, "verify",
        "Positions counted in columns drift away from the indices: wrong text.",
    ),
    (
        "repadding", {"strategy": "repadding"}, "verify",
        "Padding that is never removed, a mask of ones, a bonus from the draft: wrong text.",
    ),
    (
        "eqspec", {"strategy": "eqspec"}, "synchronise",
        "After a ragged acceptance, rows move until they end in one column again.",
    ),
    (
        "exspec", {"strategy": "exspec", "batch_size": 4}, "schedule",
        "A pool of sequences, from which rounds take groups of equal length if there are any.",
    ),
    (
        "inplace", {"strategy": "inplace"}, "accept",
        "Every row's K/V is written at its own positions: nothing has to move.",
    ),
)  # fmt: skip


def draw() -> None:
    """Write all pictures and pages, and replays/index.html, which links the pages."""
    pair, prompts = sv.load_pair(), sv.load_prompts(limit=PROMPTS)
    replays = FIGURES / "replays"
    traces = {}
    for name, options, phase, _ in PICTURES:
        run = {"batch_size": PROMPTS, "max_new_tokens": NEW_TOKENS, "record": True, **options}
        trace = traces[name] = sv.generate(pair, prompts, **run).trace
        view = sv.step_through(trace)
        view.step = pick_ragged_round(trace) * len(PHASES) + PHASES.index(phase)
        for theme in ("light", "dark"):
            path = FIGURES / f"{name}-{theme}.png"
            view.export_png(path, theme=theme, width=WIDTH, scale=SCALE)
        view.export_svg(FIGURES / f"{name}.svg", width=WIDTH)
        view.export_html(replays / f"{name}.html")
    both = sv.step_through(traces["naive"], traces["eqspec"])
    both.export_html(replays / "naive-eqspec.html")
    (replays / "index.html").write_text(index(), encoding="utf-8")


def index() -> str:
    """Return a page that links the others."""
    links = [(name, caption) for name, _, _, caption in PICTURES] + [("naive-eqspec", BOTH)]
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
