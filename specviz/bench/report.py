"""The report of a benchmark: one HTML page with charts, tables, conditions, and why cells failed.

The page loads nothing. Names, errors and devices are shown letter for letter, whatever they hold.
"""

import html
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from specviz.bench.charts import ratio_chart, speed_chart
from specviz.bench.equal_work import comparisons
from specviz.bench.marks import footnotes, marks
from specviz.bench.table import VERSIONS, failures, names, sections
from specviz.util.files import make_folder, write
from specviz.views.page import page

_DRAW = """
for (const block of document.querySelectorAll('script[type="application/json"]')) {
  const figure = JSON.parse(block.textContent);
  const place = document.getElementById(block.dataset.place);
  const config = {displayModeBar: false, displaylogo: false, staticPlot: false};
  Plotly.newPlot(place, figure.data, figure.layout, config);
}
"""
_COLUMNS = {
    "batch_size": "B",
    "name": "method",
    "num_draft_tokens": "K",
    "tokens_per_s": "tokens/s",
    "range": "lowest – highest",
    "ratio_to_autoregressive": "to autoregressive",
    "ratio_to_hf_assisted": "to HF assisted, B = 1",
    "exact_match": "exact match",
    "near_ties": "near ties",
    "mean_acceptance_length": "mean acceptance length",
    "rounds": "rounds",
    "round_ms": "ms a round",
    "draft_ms": "of that, drafting, ms",
    "sync_share": "of that, synchronise",
    "verified_a_round": "drafts verified a row and round",
    "in_flight": "requests in flight",
    "memory_mb": "peak memory, MB",
    "training_s": "training of the drafter, s",
    "recording": "recording takes",
    "created": "date",
}
_DIGITS = {
    "tokens_per_s": 1, "near_ties": 0, "rounds": 0, "in_flight": 0, "memory_mb": 1, "training_s": 0,
}  # fmt: skip
# The columns that compare methods.
PLACES = ("tokens_per_s", "ratio_to_autoregressive", "ratio_to_hf_assisted")


def save_report(table: pd.DataFrame, conditions: Mapping[str, object], path: Path) -> Path:
    """Write the report of a benchmark's table and conditions; return the path.

    Raises:
        WriteError: the file cannot be written.
    """
    make_folder(path.parent)
    return write(path, report(table, conditions).encode())


def report(table: pd.DataFrame, conditions: Mapping[str, object]) -> str:
    """Return the page."""
    charts: list[str] = []
    parts = [_section(heading, part, charts) for heading, part in sections(table)]
    blocks = []
    for i, chart in enumerate(charts):
        blocks.append(f'<script type="application/json" data-place="chart-{i}">{chart}</script>')
    body = f"{_about(conditions)}\n{''.join(parts)}\n{_failed(table)}"
    scripts = f"{''.join(blocks)}\n<script>{get_plotlyjs()}</script>\n<script>{_DRAW}</script>"
    return page("specviz bench", body, scripts)


def _about(conditions: Mapping[str, object]) -> str:
    shown = ", ".join(
        f"{name.replace('_', ' ')} {_plain(value)}" for name, value in conditions.items()
    )
    how = (
        "Speeds are medians of interleaved runs: new tokens over the seconds of the whole call, "
        "without recording, after a warm-up. Ratios are medians of the ratios within a repetition. "
        "A cell has a speed if every text equals what the target writes for that prompt alone, or "
        "differs at a near tie that rounding explains (exact match below 100 %). Cells without a "
        "speed are listed below with the reason. Mean acceptance length is 1 + accepted drafts a "
        "round. Letters in brackets mark a comparison that is not at equal work; the lines below "
        "the table say why."
    )
    return f'<p>{html.escape(how)}</p>\n<p class="quiet">{html.escape(shown)}</p>'


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items())
    return " / ".join(map(str, value)) if isinstance(value, list) else str(value)


def _section(heading: str, part: pd.DataFrame, charts: list[str]) -> str:
    places = []
    drawing: tuple[Callable[[pd.DataFrame], go.Figure], ...] = (speed_chart, ratio_chart)
    for draw in drawing:
        try:
            chart = draw(part)
        except ValueError:  # nothing to draw: no speeds, or only one batch size
            continue
        places.append(f'<div class="scroll"><div id="chart-{len(charts)}"></div></div>')
        charts.append(chart.to_json().replace("<", "\\u003c"))
    return f"<h2>{html.escape(heading)}</h2>\n{''.join(places)}\n{_table(part)}\n"


def _table(part: pd.DataFrame) -> str:
    found = comparisons(part)
    marked = {place: marks(found, place) for place in PLACES}
    shown = part.assign(name=names(part)).sort_values("batch_size", kind="stable")
    shown["range"] = [
        f"{e.tokens_per_s_low:.1f} – {e.tokens_per_s_high:.1f}" if e.repetitions else ""
        for e in shown.itertuples()
    ]
    if "recorded_tokens_per_s" in shown:
        shown["recording"] = 1 - shown["recorded_tokens_per_s"] / shown["tokens_per_s"]
    columns = {name: title for name, title in _COLUMNS.items() if name in shown}
    head = "".join(_cell("th", name, title) for name, title in columns.items())
    bodies = []
    for _, entries in shown.groupby("batch_size", sort=False):
        rows = []
        for index, entry in zip(entries.index, entries.to_dict("records"), strict=True):
            cells = []
            for name in columns:
                mark = marked.get(name, {}).get(index, "")
                cells.append(_cell("td", name, _written(name, entry[name]) + mark))
            rows.append(f"<tr>{''.join(cells)}</tr>")
        bodies.append("<tbody>" + "\n".join(rows) + "</tbody>")
    table = f"<table><thead><tr>{head}</tr></thead>\n{''.join(bodies)}</table>"
    said = []
    for name in ("prompts", "threads", *VERSIONS):
        said.append(f"{name} {_plain(list(dict.fromkeys(part[name])))}")
    conditions = html.escape(", ".join(said))
    notes = [f'<p class="quiet">{html.escape(note)}</p>' for note in footnotes(found, PLACES)]
    return f'<div class="scroll">{table}</div>{"".join(notes)}<p class="quiet">{conditions}</p>'


def _cell(tag: str, name: str, text: str) -> str:
    kind = ' class="text"' if name in ("name", "created") else ""
    return f"<{tag}{kind}>{html.escape(text)}</{tag}>"


def _written(name: str, value: object) -> str:
    if name in ("exact_match", "recording", "sync_share"):
        return "" if pd.isna(value) else f"{value:.1%}"
    if name == "created":
        return str(value)[:10]
    if isinstance(value, float):
        if pd.isna(value):
            return "failed" if name == "tokens_per_s" else ""
        digits = _DIGITS.get(name, 2)
        return f"{value:.{digits}f}"
    return str(value)


def _failed(table: pd.DataFrame) -> str:
    found = failures(table)
    if not found:
        return ""
    items = "".join(f"<li>{html.escape(text)}</li>" for text in found)
    return f"<h2>Cells without a speed</h2>\n<ul>{items}</ul>"
