"""The report of a benchmark: one HTML page with charts, tables, conditions, and why cells failed.

The page loads nothing. Names, errors and devices are shown letter for letter, whatever they hold.
"""

import html
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from specviz.bench.equal_work import BROKEN, by_line, comparisons, summary
from specviz.bench.sources import BASELINES
from specviz.bench.table import VERSIONS, failures, names, sections
from specviz.util.files import make_folder, write
from specviz.util.text import escape, shorten
from specviz.views.charts.canvas import texts
from specviz.views.charts.plot import line_chart
from specviz.views.page import page
from specviz.views.theme import BLUE, GREEN, GREY, ThemeName, blank_figure, solid, themed, tint

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
        body.append(_table(part))
        found = comparisons(part)
        if BROKEN in set(found["state"]):
            body.append(_quiet(f"{summary(found)}. For example:"))
            broken = by_line(found).query("broken > 0")
            body += [_quiet(f"{each.line}, {each.example}") for each in broken.itertuples()]
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


def _table(part: pd.DataFrame) -> str:
    shown = part.assign(name=names(part)).sort_values("batch_size", kind="stable")
    speeds = shown[["tokens_per_s_low", "tokens_per_s_high"]].map("{:.1f}".format)
    shown["range"] = speeds.agg(" – ".join, axis=1).where(shown["tokens_per_s"].notna())
    if "recorded_tokens_per_s" in shown:
        shown["recording"] = 1 - shown["recorded_tokens_per_s"] / shown["tokens_per_s"]
    rows = {
        0: [_row("th", {name: title for name, (title, _) in _COLUMNS.items() if name in shown})]
    }
    for entry in shown.to_dict("records"):
        cells = {}
        for name, (_, form) in _COLUMNS.items():
            if name in shown:
                missing = "failed" if name == "tokens_per_s" else ""
                cells[name] = missing if pd.isna(entry[name]) else format(entry[name], form)
        rows.setdefault(entry["batch_size"], []).append(_row("td", cells))
    head, *bodies = ["\n".join(each) for each in rows.values()]
    body = "".join(f"<tbody>{each}</tbody>" for each in bodies)
    return f'<div class="scroll"><table><thead>{head}</thead>\n{body}</table></div>'


def _row(tag: str, cells: Mapping[str, str]) -> str:
    kinds = {name: ' class="text"' if name in ("name", "created") else "" for name in cells}
    shown = [f"<{tag}{kinds[name]}>{html.escape(text)}</{tag}>" for name, text in cells.items()]
    return f"<tr>{''.join(shown)}</tr>"


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
    is_ratio = bool(part[RATIO].notna().all())
    measure = RATIO if is_ratio else "tokens_per_s"
    unit = "ratio to autoregressive decoding at the same B" if is_ratio else "tokens/s"
    words = f"{unit}: median and range of the repetitions; green: the fastest, squares: baselines"
    painted = themed(theme)
    rows = list(dict.fromkeys(part["name"]))
    sizes = sorted(part["batch_size"].unique())
    blank = blank_figure(painted, _WIDTH, _TOP + _ROW * len(rows) + 24)
    figure = make_subplots(1, len(sizes), shared_yaxes=True, horizontal_spacing=0, figure=blank)
    for column, size in enumerate(sizes, 1):
        entries = part[part["batch_size"] == size]
        farthest = max(entries[f"{measure}_high"].max(), float(is_ratio))
        marks = _speeds(entries, measure, entries["name"].map(rows.index))
        shown = entries[measure].map(("{:.2f}" if is_ratio else "{:.0f}").format)
        best = entries[measure] == entries[measure].max()
        shown = shown.mask(best, "<b>" + shown + "</b>").map(painted.inked)
        values = texts("values", 1.08 * farthest, marks.y, shown, 11.5, "right")
        figure.add_traces([marks, values], 1, column)
        title = {"text": painted.inked(f"<b>B = {size}</b>"), "standoff": 0}
        figure.update_xaxes(range=[0, 1.6 * farthest], title=title, col=column)
        for x in (0, 1) if is_ratio else (0,):
            figure.add_vline(x, line={"width": 1, "color": tint(GREY, 0.5)}, col=column)
    figure.update_xaxes(side="top", showticklabels=False, showgrid=False, zeroline=False)
    labels = [painted.inked(escape(shorten(name, _LETTERS))) for name in rows]
    figure.update_yaxes(range=[len(rows) - 0.5, -0.5], showgrid=False, zeroline=False)
    figure.update_yaxes(tickvals=[*range(len(rows))], ticktext=labels, ticklabelstandoff=6, col=1)
    heading = painted.inked("<b>Speed by method and batch size</b>")
    heading += f"<br><span style='font-size:13px'>{painted.faded(escape(words))}</span>"
    return figure.update_layout(
        title={"text": heading, "x": 0.01, "xanchor": "left", "font": {"size": 16}},
        margin={"l": _NAMES, "r": 0, "t": _TOP, "b": 24},
    )


def _speeds(part: pd.DataFrame, measure: str, y: pd.Series) -> go.Scatter:
    """Draw a mark and a range for each entry: green for the fastest, a square for a baseline."""
    value = part[measure]
    baseline = part["strategy"].str.partition(":")[0].isin(BASELINES)
    colours = baseline.map({True: solid(GREY), False: solid(BLUE)})
    hover = [
        f"{escape(e.name)}: {e.tokens_per_s:.1f} tokens/s "
        f"({e.tokens_per_s_low:.1f} to {e.tokens_per_s_high:.1f})"
        for e in part.itertuples()
    ]
    return go.Scatter(
        x=value.tolist(),
        y=y.tolist(),
        mode="markers",
        meta={"kind": "speeds"},
        hoverinfo="text",
        hovertext=hover,
        marker={
            "size": 10,
            "color": colours.mask(value == value.max(), solid(GREEN)).tolist(),
            "symbol": baseline.map({True: "square", False: "circle"}).tolist(),
        },
        error_x={
            "symmetric": False,
            "array": (part[f"{measure}_high"] - value).tolist(),
            "arrayminus": (value - part[f"{measure}_low"]).tolist(),
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
