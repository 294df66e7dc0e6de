"""The pictures and pages of figures/: one telling step of each way to handle raggedness, from real runs of the embedded pair.

Contract: `make_figures` decodes, and writes what `step_through` exports. What a step looks like stands in `views`.
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
from specviz.util.files import make_folder, write
from specviz.views.charts import pick_ragged_round
from specviz.views.stepper.widget import StepThrough, step_through

PROMPTS, NEW_TOKENS = 8, 64
THEMES = ("light", "dark")
WIDTH, SCALE = 1200, 1.5


@dataclass(frozen=True)
class Scene:
    """One run, and the step of it that tells most. name: of the files; caption: what there is to see."""

    name: str
    strategy: str
    options: dict[str, Any]
    phase: str
    caption: str
    batch_size: int = PROMPTS


SCENES = (
    Scene("naive", "masking", {"positions": "column"}, "verify", "Positions counted in columns drift away from the indices: wrong text."),
    Scene("repadding", "repadding", {}, "verify", "Padding that is never taken off, a mask of ones, a bonus from the draft: wrong text."),
    Scene("eqspec", "eqspec", {}, "synchronise", "After a ragged acceptance, rows move until they end in one column again."),
    Scene("exspec", "exspec", {}, "schedule", "A pool of sequences, from which rounds take groups of equal length if there are any.", 4),
    Scene("inplace", "inplace", {}, "accept", "Every row's K/V is written at its own positions: nothing has to move."),
)  # fmt: skip
BESIDE = ("naive", "eqspec")  # shown side by side on a page of their own


def make_figures(out: Path) -> list[Path]:
    """Decode eight bundled prompts with each strategy and write below `out`, for each, NAME-light.png, NAME-dark.png, NAME.svg and the page
    replays/NAME.html; replays/index.html links the pages. Returns the files.

    Raises OSError when there is no browser to draw with.
    """
    make_folder(out / "replays")
    pair, files, traces = load_pair(), [], {}
    for scene in SCENES:
        traces[scene.name] = _record(pair, scene)
        files += _write(scene, step_through(traces[scene.name]), traces[scene.name], out)
    beside = out / "replays" / ("-".join(BESIDE) + ".html")
    step_through(*(traces[name] for name in BESIDE)).export_html(beside)
    index = out / "replays" / "index.html"
    write(index, _index().encode())
    return [*files, beside, index]


def _record(pair: Pair, scene: Scene) -> Trace:
    result = generate(
        pair, load_prompts(limit=PROMPTS), strategy=strategy(scene.strategy, **scene.options), batch_size=scene.batch_size,
        max_new_tokens=NEW_TOKENS, record=True, progress=False,
    )  # fmt: skip
    assert result.trace is not None
    return result.trace


def _write(scene: Scene, view: StepThrough, trace: Trace, out: Path) -> list[Path]:
    view.step = pick_ragged_round(trace) * len(PHASES) + PHASES.index(scene.phase)
    pictures = [out / f"{scene.name}-{theme}.png" for theme in THEMES]
    for theme, path in zip(THEMES, pictures, strict=True):
        view.export_png(path, theme=theme, width=WIDTH, scale=SCALE)
    drawing, page = out / f"{scene.name}.svg", out / "replays" / f"{scene.name}.html"
    view.export_svg(drawing, width=WIDTH)
    view.export_html(page)
    return [*pictures, drawing, page]


def _index() -> str:
    """A page that links the others."""
    entries = [(scene.name, scene.caption) for scene in SCENES]
    entries.append(
        (
            "-".join(BESIDE),
            "The first and the third side by side: press d for the first difference.",
        )
    )
    items = "\n".join(
        f'<li><a href="{name}.html">{escape(name)}</a>: {escape(caption)}</li>'
        for name, caption in entries
    )
    style = "body { font: 16px/1.6 system-ui, sans-serif; max-width: 44em; margin: 3em auto; padding: 0 1em; color-scheme: light dark }"
    words = f"{PROMPTS} prompts, {NEW_TOKENS} new tokens each, of the pair that comes with specviz. Arrow keys step, ? lists the keys."
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><meta name="viewport" content="width=device-width">\n'
        f"<title>Recorded runs</title><style>{style}</style></head>\n<body>\n<h1>Recorded runs, step by step</h1>\n<p>{words}</p>\n"
        f"<ul>\n{items}\n</ul>\n</body>\n</html>\n"
    )
