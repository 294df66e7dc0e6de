"""The report of a benchmark: one HTML page with charts, tables, conditions, and why cells failed.

The page loads nothing. Names, errors and devices are shown letter for letter, whatever they hold.
"""

import html
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from specviz.bench.equal_work import BROKEN, by_line, comparisons, summary
from specviz.bench.sources import BASELINES
from specviz.bench.table import VERSIONS, failures, names, sections
from specviz.util.files import make_folder, write
from specviz.util.text import escape, shorten
from specviz.views.charts.canvas import canvas, lines, texts
from specviz.views.charts.plot import line_chart
from specviz.views.page import page
from specviz.views.theme import BLUE, GREEN, GREY, ThemeName, solid, themed

RATIO = "ratio_to_autoregressive"
# Pixels. _NAMES is the width of the methods' names on the left.
_WIDTH = 960
_ROW = 26
_TOP = 96
_NAMES = 190
_LETTERS = 27  # of a name
LINES = 7  # more lines make a chart of ratios unreadable
_DRAW = """
for (const block of document.querySelectorAll('script[type="application/json"]')) {
  const figure = JSON.parse(block.textContent);
  const place = document.getElementById(block.dataset.place);
  const config = {displayModeBar: false, displaylogo: false, staticPlot: false};
  Plotly.newPlot(place, figure.data, figure.layout, config);
}
"""
# Column: its title, and how a value is written.
_COLUMNS = {
    "batch_size": ("B", ""),
    "name": ("method", ""),
    "num_draft_tokens": ("K", ""),
    "tokens_per_s": ("tokens/s", ".1f"),
    "range": ("lowest – highest", ""),
    "ratio_to_autoregressive": ("to autoregressive", ".2f"),
    "ratio_to_hf_assisted": ("to HF assisted, B = 1", ".2f"),
    "exact_match": ("exact match", ".1%"),
    "near_ties": ("near ties", ".0f"),
    "mean_acceptance_length": ("mean acceptance length", ".2f"),
    "rounds": ("rounds", ".0f"),
    "round_ms": ("ms a round", ".2f"),
    "draft_ms": ("of that, drafting, ms", ".2f"),
    "sync_share": ("of that, synchronise", ".1%"),
    "verified_a_round": ("drafts verified a row and round", ".2f"),
    "in_flight": ("requests in flight", ".0f"),
    "memory_mb": ("peak memory, MB", ".1f"),
    "training_s": ("training of the drafter, s", ".0f"),
    "recording": ("recording takes", ".1%"),
    "created": ("date", ".10"),
}
_HOW = (
    "Speeds are medians of interleaved runs: new tokens over the seconds of the whole call, "
    "without recording, after a warm-up. Ratios are medians of the ratios within a repetition. "
    "A cell has a speed if every text equals what the target writes for that prompt alone, or "
    "differs at a near tie that rounding explains (exact match below 100 %). Cells without a "
    "speed are listed below with the reason. Mean acceptance length is 1 + accepted drafts a "
    "round."
)


def save_report(table: pd.DataFrame, conditions: Mapping[str, object], path: Path) -> Path:
    """Write the report of a benchmark's table and conditions; return the path.

    Raises:
        WriteError: the file cannot be written.
    """
    make_folder(path.parent)
    return write(path, report(table, conditions).encode())


def report(table: pd.DataFrame, conditions: Mapping[str, object]) -> str:
    """Return the page."""
    shown = [f"{name.replace('_', ' ')} {_plain(value)}" for name, value in conditions.items()]
    body = [f"<p>{_HOW}</p>", _quiet(", ".join(shown))]
    blocks: list[str] = []
    for heading, part in sections(table):
        body.append(f"<h2>{html.escape(heading)}</h2>")
        for draw in (speed_chart, ratio_chart):
            try:
                chart = draw(part).to_json().replace("<", "\\u003c")
            except ValueError:  # nothing to draw: no speeds, or only one batch size
                continue
            place = f"chart-{len(blocks)}"
            kind = f'type="application/json" data-place="{place}"'
            blocks.append(f"<script {kind}>{chart}</script>")
            body.append(f'<div class="scroll"><div id="{place}"></div></div>')
        body += [_table(part), *_equal_work(part)]
        versions = [
            f"{name} {_plain(part[name].unique().tolist())}"
            for name in ("prompts", "threads", *VERSIONS)
        ]
        body.append(_quiet(", ".join(versions)))
    failed = failures(table)
    if failed:
        items = "".join(f"<li>{html.escape(text)}</li>" for text in failed)
        body.append(f"<h2>Cells without a speed</h2>\n<ul>{items}</ul>")
    scripts = f"{''.join(blocks)}\n<script>{get_plotlyjs()}</script>\n<script>{_DRAW}</script>"
    return page("specviz bench", "\n".join(body), scripts)


def _quiet(text: str) -> str:
    return f'<p class="quiet">{html.escape(text)}</p>'


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items())
    return " / ".join(map(str, value)) if isinstance(value, list) else str(value)


def _equal_work(part: pd.DataFrame) -> list[str]:
    """Say which comparisons are not at equal work, with an example of each line."""
    found = comparisons(part)
    if BROKEN not in set(found["state"]):
        return []
    broken = by_line(found).query("broken > 0")
    examples = [f"{each.line}, {each.example}" for each in broken.itertuples()]
    return [_quiet(text) for text in (f"{summary(found)}. For example:", *examples)]


def _table(part: pd.DataFrame) -> str:
    shown = part.assign(name=names(part)).sort_values("batch_size", kind="stable")
    shown["range"] = [
        f"{e.tokens_per_s_low:.1f} – {e.tokens_per_s_high:.1f}" if e.repetitions else ""
        for e in shown.itertuples()
    ]
    if "recorded_tokens_per_s" in shown:
        shown["recording"] = 1 - shown["recorded_tokens_per_s"] / shown["tokens_per_s"]
    columns = [name for name in _COLUMNS if name in shown]
    head = "".join(_cell("th", name, _COLUMNS[name][0]) for name in columns)
    bodies = []
    for _, entries in shown.groupby("batch_size", sort=False):
        rows = []
        for entry in entries.to_dict("records"):
            cells = [_cell("td", name, _written(name, entry[name])) for name in columns]
            rows.append(f"<tr>{''.join(cells)}</tr>")
        bodies.append("<tbody>" + "\n".join(rows) + "</tbody>")
    table = f"<table><thead><tr>{head}</tr></thead>\n{''.join(bodies)}</table>"
    return f'<div class="scroll">{table}</div>'


def _cell(tag: str, name: str, text: str) -> str:
    kind = ' class="text"' if name in ("name", "created") else ""
    return f"<{tag}{kind}>{html.escape(text)}</{tag}>"


def _written(name: str, value: object) -> str:
    if pd.isna(value):
        return "failed" if name == "tokens_per_s" else ""
    return format(value, _COLUMNS[name][1])


def speed_chart(part: pd.DataFrame, *, theme: ThemeName = "auto") -> go.Figure:
    """Draw every method's ratio to autoregressive decoding with its range, a column for each B.

    Without autoregressive decoding it draws tokens/s. Each column has its own scale, from 0. The
    fastest of a column is green, a baseline is a square.

    Args:
        part: a section of the table.

    Raises:
        ValueError: no entry has a speed.
    """
    part = part[part["tokens_per_s"].notna()].assign(name=names)
    if part.empty:
        raise ValueError(
            "part must have an entry with a speed, got none; "
            "pass a section in which a cell was measured"
        )
    measure = RATIO if part[RATIO].notna().all() else "tokens_per_s"
    rows = list(dict.fromkeys(part["name"]))
    places = {name: _TOP + _ROW * (i + 0.5) for i, name in enumerate(rows)}
    sizes = sorted(part["batch_size"].unique())
    width = (_WIDTH - _NAMES) / len(sizes)
    bottom = _TOP + _ROW * len(rows)
    painted = themed(theme)
    figure = canvas(painted, _WIDTH, bottom + 24).update_layout(showlegend=False)
    labels = [painted.inked(escape(shorten(row, _LETTERS))) for row in rows]
    figure.add_trace(texts("methods", 8, list(places.values()), labels, 12, "right"))
    for column, size in enumerate(sizes):
        left = _NAMES + width * column
        entries = part[part["batch_size"] == size]
        y = entries["name"].map(places)
        scale = (width - 78) / max(entries[f"{measure}_high"].max(), float(measure == RATIO))
        edges = [(left, _TOP - 2, left, bottom)]
        if measure == RATIO:
            edges.append((left + scale, _TOP - 2, left + scale, bottom))
        axes = lines("edges", "", edges, solid(GREY)).update(showlegend=False, opacity=0.5)
        figure.add_trace(axes.update(line={"width": 1}))
        figure.add_trace(_speeds(entries, measure, left, scale, y))
        shown = []
        for value in entries[measure]:
            text = f"{value:.2f}" if measure == RATIO else f"{value:.0f}"
            is_best = value == entries[measure].max()
            shown.append(painted.inked(f"<b>{text}</b>" if is_best else text))
        # Clear of the line at 1.
        figure.add_trace(texts("values", left + width - 68, y, shown, 11.5, "right"))
        title = painted.inked(f"<b>B = {size}</b>")
        figure.add_trace(texts("sizes", left, _TOP - 14, [title], 12, "right"))
    unit = "ratio to autoregressive decoding at the same B" if measure == RATIO else "tokens/s"
    words = f"{unit}: median and range of the repetitions; green: the fastest, squares: baselines"
    heading = [painted.inked("<b>Speed by method and batch size</b>"), painted.faded(escape(words))]
    return figure.add_trace(texts("title", 8, [20, 46], heading, 14, "right"))


def _speeds(
    part: pd.DataFrame, measure: str, left: float, scale: float, y: pd.Series
) -> go.Scatter:
    """Draw a mark and a range for each entry: green for the fastest, a square for a baseline."""
    value = part[measure]
    baseline = part["strategy"].str.partition(":")[0].isin(BASELINES)
    colours = baseline.map({True: solid(GREY), False: solid(BLUE)})
    colours[value == value.max()] = solid(GREEN)
    hover = [
        f"{escape(e.name)}: {e.tokens_per_s:.1f} tokens/s "
        f"({e.tokens_per_s_low:.1f} to {e.tokens_per_s_high:.1f})"
        for e in part.itertuples()
    ]
    return go.Scatter(
        x=(left + value * scale).tolist(),
        y=y.tolist(),
        mode="markers",
        meta={"kind": "speeds"},
        hoverinfo="text",
        hovertext=hover,
        showlegend=False,
        marker={
            "size": 10,
            "color": colours.tolist(),
            "symbol": baseline.map({True: "square", False: "circle"}).tolist(),
        },
        error_x={
            "symmetric": False,
            "array": ((part[f"{measure}_high"] - value) * scale).tolist(),
            "arrayminus": ((value - part[f"{measure}_low"]) * scale).tolist(),
            "color": solid(GREY),
            "thickness": 3,
            "width": 0,
        },
    )


def ratio_chart(part: pd.DataFrame, *, theme: ThemeName = "auto") -> go.Figure:
    """Draw the ratio to autoregressive decoding against B.

    There is a line for each method without options that was measured at more than one B. If these
    are more than LINES, only methods with the usual K and drafter are drawn.

    Raises:
        ValueError: there is no line.
    """
    part = part[part[RATIO].notna()].assign(name=names)
    part = part[~part["strategy"].str.contains(":")]
    series = {}
    for name, group in part.sort_values("batch_size", kind="stable").groupby("name", sort=False):
        if len(group) > 1:
            series[str(name)] = (group["batch_size"].tolist(), group[RATIO].tolist())
    if len(series) > LINES:
        usual = set(part["strategy"])
        series = {name: line for name, line in series.items() if name in usual}
    return line_chart(
        series,
        title="Speed relative to autoregressive decoding",
        words="above 1 speculation pays; dashed: no speculation, or a baseline",
        x="B, rows",
        y="ratio",
        log="x",
        dashed=[name for name in series if name in (*BASELINES, "autoregressive")],
        theme=theme,
    )
