"""The figures of the README, drawn from a real run of the embedded pair, with the numbers that they show.

Contract: `make_figures` writes PNG files for light and dark pages and one JSON file into a folder. It decodes and draws; how
either is done stands in `generation` and `views`.
"""

import json
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from specviz.analysis import metrics
from specviz.engine.pair import load_pair
from specviz.generation import generate
from specviz.prompts import load_prompts
from specviz.result import Result
from specviz.trace import Trace
from specviz.views import charts
from specviz.views.theme import ThemeName

STRATEGIES = ("autoregressive", "eqspec", "inplace")
SETTINGS: dict[str, Any] = {"num_draft_tokens": 5, "batch_size": 8, "max_new_tokens": 64}
PAGES: tuple[ThemeName, ...] = ("light", "dark")
SLOTS = 26  # of the first figure: as wide as a README page
SCALE = 2  # pixels of the file for one of the page


def make_figures(out: Path) -> list[Path]:
    """Decode eight bundled prompts on the best device and write hero-*.png, stages-*.png and data/quickstart.json below `out`.

    Returns the files. Raises RuntimeError when kaleido or its browser is missing.
    """
    runs = _run_all()
    trace = runs["eqspec"].trace
    assert trace is not None
    round = charts.pick_ragged_round(trace)
    files: list[Path] = []
    for page in PAGES:
        files.append(_write(charts.batch_picture(trace, round, slots=SLOTS, theme=page), out / f"hero-{page}.png"))
        files.append(_write(charts.stage_bars(runs, theme=page), out / f"stages-{page}.png"))
    numbers = out / "data" / "quickstart.json"
    numbers.parent.mkdir(parents=True, exist_ok=True)
    numbers.write_text(json.dumps(_numbers(runs, trace, round), indent=2) + "\n", encoding="utf-8")
    return [*files, numbers]


def _run_all() -> dict[str, Result]:
    """Each strategy on the same prompts, the paper's recorded; a short run before each warms the caches up."""
    pair, prompts = load_pair(), load_prompts(limit=SETTINGS["batch_size"])
    runs = {}
    for name in STRATEGIES:
        generate(pair, prompts, strategy=name, **SETTINGS | {"max_new_tokens": 8}, progress=False)
        runs[name] = generate(pair, prompts, strategy=name, **SETTINGS, record=name == "eqspec", progress=False)
    return runs


def _write(figure: go.Figure, path: Path) -> Path:
    picture = charts.to_png(figure, scale=SCALE)
    if picture is None:
        raise RuntimeError("no browser can draw figures; install kaleido and Chromium or Chrome")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(picture)
    return path


def _numbers(runs: dict[str, Result], trace: Trace, round: int) -> dict[str, Any]:
    """What the figures show, and where, when and with what it was measured."""
    rows = metrics.rows(trace).query("round == @round")[["row", "length", "drafted", "accepted", "gained"]]
    where = {key: trace.meta[key] for key in ("device", "dtype", "created", "target", "draft", "versions")}
    measured = {
        name: {"summary": _records(metrics.summary(run))[0], "phases": _records(metrics.stage_totals(run))} for name, run in runs.items()
    }
    return {**where, "settings": SETTINGS, "runs": measured, "hero": {"strategy": "eqspec", "round": round, "rows": _records(rows)}}


def _records(table: Any) -> list[dict[str, Any]]:
    """A data frame's rows as plain JSON values, numbers to four digits after the point, NaN as null."""
    return list(json.loads(table.to_json(orient="records", double_precision=4)))
