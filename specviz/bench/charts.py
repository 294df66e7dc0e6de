"""Charts of a benchmark's table: speeds of every method at every B, and ratios against B."""

import pandas as pd
import plotly.graph_objects as go

from specviz.bench.baselines import BASELINES
from specviz.bench.table import names
from specviz.util.text import escape, shorten
from specviz.views.charts.canvas import canvas, lines, texts
from specviz.views.charts.plot import line_chart
from specviz.views.theme import BLUE, GREEN, GREY, ThemeName, solid, themed

RATIO = "ratio_to_autoregressive"
# Pixels. _NAMES is the width of the methods' names on the left.
_WIDTH = 960
_ROW = 26
_TOP = 96
_NAMES = 190
_LETTERS = 27  # of a name
LINES = 7  # more lines make a chart of ratios unreadable


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
