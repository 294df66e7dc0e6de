"""Charts of a benchmark's table: speeds of every method at every B, and ratios against B."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from specviz.bench.baselines import BASELINES
from specviz.bench.table import names
from specviz.util.text import escape, shorten
from specviz.views.charts.canvas import canvas, lines, texts
from specviz.views.charts.plot import line_chart
from specviz.views.theme import BLUE, GREEN, GREY, ThemeName, solid, themed

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
    relative = part["ratio_to_autoregressive"].notna().all()
    measure = "ratio_to_autoregressive" if relative else "tokens_per_s"
    rows = list(dict.fromkeys(part["name"]))
    sizes = sorted(part["batch_size"].unique())
    painted = themed(theme)
    width = (_WIDTH - _NAMES) / len(sizes)
    bottom = _TOP + _ROW * len(rows)
    figure = canvas(painted, _WIDTH, bottom + 24).update_layout(showlegend=False)
    middles = [_TOP + _ROW * (i + 0.5) for i in range(len(rows))]
    labels = [painted.inked(escape(shorten(row, _LETTERS))) for row in rows]
    figure.add_trace(texts("methods", [8] * len(rows), middles, labels, 12, "right"))
    for column, size in enumerate(sizes):
        left = _NAMES + width * column
        entries = part[part["batch_size"] == size]
        figure.add_traces(_column(entries, rows, left, width - 78, bottom, painted, measure))
        title = painted.inked(f"<b>B = {size}</b>")
        figure.add_trace(texts("sizes", [left], [_TOP - 14], [title], 12, "right"))
    unit = "ratio to autoregressive decoding at the same B" if relative else "tokens/s"
    words = f"{unit}: median and range of the repetitions; green: the fastest, squares: baselines"
    heading = [painted.inked("<b>Speed by method and batch size</b>"), painted.faded(escape(words))]
    return figure.add_trace(texts("title", [8, 8], [20, 46], heading, 14, "right"))


def _column(
    part: pd.DataFrame,
    rows: Sequence[str],
    left: float,
    width: float,
    bottom: float,
    theme: Any,
    measure: str,
) -> list[go.Scatter]:
    """Draw the marks of one B with their ranges and values, and for ratios a line at 1."""
    relative = measure == "ratio_to_autoregressive"
    value = part[measure]
    low = part[f"{measure}_low"]
    high = part[f"{measure}_high"]
    scale = width / max(high.max(), 1.0 if relative else 0.0)  # pixels a unit
    y = [_TOP + _ROW * (rows.index(name) + 0.5) for name in part["name"]]
    edges = [(left, _TOP - 2, left, bottom)]
    if relative:
        edges.append((left + scale, _TOP - 2, left + scale, bottom))
    ranges = []
    for start, end, at in zip(low, high, y, strict=True):
        ranges.append((left + start * scale, at, left + end * scale, at))
    shown = []
    for number in value:
        text = f"{number:.2f}" if relative else f"{number:.0f}"
        shown.append(theme.inked(f"<b>{text}</b>" if number == value.max() else text))
    at_edge = [left + width + 10] * len(y)  # clear of the line at 1
    thin = {"width": 1, "color": solid(GREY)}
    thick = {"width": 3}
    return [
        lines("edges", "", edges, solid(GREY)).update(line=thin, showlegend=False, opacity=0.5),
        lines("ranges", "", ranges, solid(GREY)).update(line=thick, showlegend=False, opacity=0.6),
        _marks(part, left + value * scale, y, value == value.max()),
        texts("values", at_edge, y, shown, 11.5, "right"),
    ]


def _marks(part: pd.DataFrame, x: pd.Series, y: list[float], best: pd.Series) -> go.Scatter:
    """Draw a mark for each entry: green for the fastest, a grey square for a baseline."""
    colours = []
    symbols = []
    hover = []
    for entry, fastest in zip(part.itertuples(), best, strict=True):
        baseline = str(entry.strategy).partition(":")[0] in BASELINES
        colours.append(solid(GREEN if fastest else GREY if baseline else BLUE))
        symbols.append("square" if baseline else "circle")
        spread = f"({entry.tokens_per_s_low:.1f} to {entry.tokens_per_s_high:.1f})"
        hover.append(f"{escape(entry.name)}: {entry.tokens_per_s:.1f} tokens/s {spread}")
    return go.Scatter(
        x=x.tolist(),
        y=y,
        mode="markers",
        meta={"kind": "speeds"},
        hoverinfo="text",
        hovertext=hover,
        showlegend=False,
        marker={"size": 10, "color": colours, "symbol": symbols},
    )


def ratio_chart(part: pd.DataFrame, *, theme: ThemeName = "auto") -> go.Figure:
    """Draw the ratio to autoregressive decoding against B.

    There is a line for each method without options that was measured at more than one B. If these
    are more than LINES, only methods with the usual K and drafter are drawn.

    Raises:
        ValueError: there is no line.
    """
    part = part[part["ratio_to_autoregressive"].notna()].assign(name=names)
    part = part[~part["strategy"].str.contains(":")]
    series = {}
    for name, group in part.sort_values("batch_size", kind="stable").groupby("name", sort=False):
        if len(group) > 1:
            ratios = group["ratio_to_autoregressive"]
            series[str(name)] = (group["batch_size"].tolist(), ratios.tolist())
    if len(series) > LINES:
        usual = set(part["strategy"])
        series = {name: line for name, line in series.items() if name in usual}
    dashed = [name for name in series if name in (*BASELINES, "autoregressive")]
    return line_chart(
        series,
        title="Speed relative to autoregressive decoding",
        words="above 1 speculation pays; dashed: no speculation, or a baseline",
        x="B, rows",
        y="ratio",
        log="x",
        dashed=dashed,
        theme=theme,
    )
