"""Charts of a benchmark's table: every method at every B as a mark with its range, and ratios against B as lines. Runs nothing."""

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

_WIDTH, _ROW, _TOP, _NAMES = (
    960,
    26,
    96,
    190,
)  # px; _NAMES: what the names of the methods take on the left
_LETTERS = 27  # of a name
LINES = 7  # that a chart of ratios can hold and be read


def speed_chart(part: pd.DataFrame, *, theme: ThemeName = "auto") -> go.Figure:
    """Ratio to autoregressive decoding (tokens/s where there is none) of every method, a column for each B, with its range.

    Each column has its own scale, from 0. The fastest of a column is green, what is not ours is a square. part: a section of the table.

    Raises:
        ValueError: no entry has a speed.
    """
    part = part[part["tokens_per_s"].notna()].assign(name=names)
    if part.empty:
        raise ValueError(
            "no entry has a speed, so there is nothing to draw; pass a section in which a cell could be measured"
        )
    relative = part["ratio_to_autoregressive"].notna().all()
    rows, sizes = list(dict.fromkeys(part["name"])), sorted(part["batch_size"].unique())
    painted, width = themed(theme), (_WIDTH - _NAMES) / len(sizes)
    bottom = _TOP + _ROW * len(rows)
    figure = canvas(painted, _WIDTH, bottom + 24).update_layout(showlegend=False)
    middles = [_TOP + _ROW * (i + 0.5) for i in range(len(rows))]
    labels = [painted.inked(escape(shorten(row, _LETTERS))) for row in rows]
    figure.add_trace(texts("methods", [8] * len(rows), middles, labels, 12, "right"))
    for column, size in enumerate(sizes):
        left = _NAMES + width * column
        figure.add_traces(
            _column(
                part[part["batch_size"] == size],
                rows,
                left,
                width - 78,
                bottom,
                painted,
                bool(relative),
            )
        )
        figure.add_trace(
            texts("sizes", [left], [_TOP - 14], [painted.inked(f"<b>B = {size}</b>")], 12, "right")
        )
    unit = "ratio to autoregressive decoding at the same B" if relative else "tokens/s"
    words = f"{unit}: median and range of the repetitions; green: the fastest, squares: not ours"
    heading = [painted.inked("<b>Speed by method and batch size</b>"), painted.faded(escape(words))]
    return figure.add_trace(texts("title", [8, 8], [20, 46], heading, 14, "right"))


def _column(
    part: pd.DataFrame,
    rows: Sequence[str],
    left: float,
    width: float,
    bottom: float,
    theme: Any,
    relative: bool,
) -> list[go.Scatter]:
    """The marks of one B with their ranges and values, and a line at 1."""
    measure = "ratio_to_autoregressive" if relative else "tokens_per_s"
    value, low, high = part[measure], part[f"{measure}_low"], part[f"{measure}_high"]
    scale = width / max(high.max(), 1.0 if relative else 0.0)
    y = [_TOP + _ROW * (rows.index(name) + 0.5) for name in part["name"]]
    best = value == value.max()
    foreign = part["strategy"].map(lambda text: text.partition(":")[0] in BASELINES)
    colours = [
        solid(GREEN if fastest else GREY if other else BLUE)
        for fastest, other in zip(best, foreign, strict=True)
    ]
    ranges = [
        (left + a * scale, at, left + b * scale, at) for a, b, at in zip(low, high, y, strict=True)
    ]
    marks = go.Scatter(
        x=(left + value * scale).tolist(), y=y, mode="markers", meta={"kind": "speeds"}, hoverinfo="text", showlegend=False,
        marker={"size": 10, "color": colours, "symbol": ["square" if other else "circle" for other in foreign]},
        hovertext=[
            f"{escape(entry.name)}: {entry.tokens_per_s:.1f} tokens/s ({entry.tokens_per_s_low:.1f} to {entry.tokens_per_s_high:.1f})"
            for entry in part.itertuples()
        ],
    )  # fmt: skip
    written = [f"{number:.2f}" if relative else f"{number:.0f}" for number in value]
    shown = [
        theme.inked(f"<b>{text}</b>") if fastest else theme.inked(text)
        for text, fastest in zip(written, best, strict=True)
    ]
    values = texts(
        "values", [left + width + 10] * len(y), y, shown, 11.5, "right"
    )  # clear of the line at 1
    edge = [(left, _TOP - 2, left, bottom)] + (
        [(left + scale, _TOP - 2, left + scale, bottom)] if relative else []
    )
    return [
        lines("edges", "", edge, solid(GREY)).update(
            line={"width": 1, "color": solid(GREY)}, showlegend=False, opacity=0.5
        ),
        lines("ranges", "", ranges, solid(GREY)).update(
            showlegend=False, line={"width": 3}, opacity=0.6
        ),
        marks,
        values,
    ]


def ratio_chart(part: pd.DataFrame, *, theme: ThemeName = "auto") -> go.Figure:
    """Ratio to autoregressive decoding against B, a line for each method without options that was measured at more than one B; where that
    would be more than LINES, for those alone that have the usual K and drafter.

    Raises:
        ValueError: there is none.
    """
    part = part[part["ratio_to_autoregressive"].notna()].assign(name=names)
    part = part[~part["strategy"].str.contains(":")]
    grouped = {
        str(name): group.sort_values("batch_size")
        for name, group in part.groupby("name", sort=False)
    }
    series = {
        name: (group["batch_size"].tolist(), group["ratio_to_autoregressive"].tolist())
        for name, group in grouped.items()
        if len(group) > 1
    }
    if len(series) > LINES:
        series = {name: line for name, line in series.items() if name in set(part["strategy"])}
    dashed = [
        name for name in series if name.partition(":")[0] in BASELINES or name == "autoregressive"
    ]
    words = "above 1 speculation pays; dashed: what does not speculate, or is not ours"
    return line_chart(
        series, title="Speed relative to autoregressive decoding", words=words, x="B, rows", y="ratio", log="x", dashed=dashed, theme=theme
    )  # fmt: skip
