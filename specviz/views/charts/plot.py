"""`line_chart`: measured series over one axis, in the look of the other charts.

Contract: series of numbers in, a plotly Figure of fixed size out; every line has a colour and a mark of its own. Not known here: records.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from specviz.util.text import escape
from specviz.views.theme import (
    AMBER,
    BLUE,
    CLEAR,
    GREEN,
    GREY,
    ORANGE,
    Theme,
    ThemeName,
    blank_figure,
    solid,
    themed,
    tint,
)

Series = Mapping[str, tuple[Sequence[float], Sequence[float]]]

_COLOURS = (BLUE, ORANGE, GREEN, AMBER, GREY)
_MARKS = ("circle", "square", "diamond", "triangle-up", "x", "star")
_WIDTH, _HEIGHT = 760, 400  # px


def line_chart(
    series: Series,
    *,
    title: str,
    x: str,
    y: str,
    words: str = "",
    log: str = "",
    dashed: Collection[str] = (),
    theme: ThemeName = "auto",
) -> go.Figure:
    """A line with a mark at each point for each series.

    Args:
        series: by name, the values along x and y; equally many.
        title, words: above the chart, the second in smaller letters.
        x, y: what the axes show, units included.
        log: axes that are logarithmic: "", "x", "y" or "xy". A logarithmic x axis is ticked at the measured values.
        dashed: names of series that are drawn dashed: quoted from elsewhere, say, or computed.

    Raises:
        ValueError: there is no series, or one with unequal sides.
    """
    if not series:
        raise ValueError("series is empty; pass at least one line")
    if uneven := [name for name, (along, up) in series.items() if len(along) != len(up)]:
        raise ValueError(
            f"series {uneven[0]!r} has unequally many x and y values; pass a y for each x"
        )
    painted = themed(theme)
    figure = blank_figure(painted, _WIDTH, _HEIGHT)
    for number, (name, (along, up)) in enumerate(series.items()):
        colour = solid(_COLOURS[number % len(_COLOURS)])
        figure.add_trace(
            go.Scatter(
                x=list(map(float, along)), y=list(map(float, up)), name=painted.inked(escape(name)), mode="lines+markers",
                line={"color": colour, "width": 2, "dash": "dash" if name in dashed else "solid"},
                marker={"symbol": _MARKS[number % len(_MARKS)], "size": 8, "color": colour},
                hovertemplate="%{x:.4g}: %{y:.4g}<extra></extra>",
            )
        )  # fmt: skip
    legend = {
        "orientation": "h",
        "x": 0,
        "y": -0.2,
        "yanchor": "top",
        "bgcolor": CLEAR,
        "font": {"size": 12},
    }
    above = f"<b>{escape(title)}</b>" + (
        f"<br><span style='font-size:13px'>{escape(words)}</span>" if words else ""
    )
    return figure.update_layout(
        title={"text": painted.inked(above), "x": 0.01, "xanchor": "left", "font": {"size": 16}},
        margin={"l": 70, "r": 20, "t": 78, "b": 92}, showlegend=True, legend=legend,
        xaxis=_axis(painted, x, [value for along, _ in series.values() for value in along], "x" in log, measured=True),
        yaxis=_axis(painted, y, [value for _, up in series.values() for value in up], "y" in log),
    )  # fmt: skip


def _axis(
    theme: Theme, title: str, values: Sequence[float], log: bool, measured: bool = False
) -> dict[str, Any]:
    """Ticks are written as text, because only text takes its colour from the page."""
    shown = np.asarray(values, float)
    ticks = _ticks(shown[np.isfinite(shown) & (not log or shown > 0)], log, measured)
    return {
        "title": {"text": theme.faded(escape(title)), "standoff": 8}, "type": "log" if log else "linear", "tickvals": ticks,
        "ticktext": [theme.faded(f"{tick:g}") for tick in ticks],
        "zeroline": False, "gridcolor": tint(GREY, 0.2), "linecolor": tint(GREY, 0.6),
    } | ({} if log or measured else {"rangemode": "tozero"})  # fmt: skip


def _ticks(values: np.ndarray, log: bool, measured: bool) -> list[float]:
    """The values themselves where they are few, else round numbers: powers of ten on a logarithmic axis, about five steps on the other."""
    own: list[float] = np.unique(values).tolist()
    if measured and len(own) <= 8:
        return own
    if log:
        low, high = np.floor(np.log10(values.min())), np.ceil(np.log10(values.max()))
        steps = (1.0,) if high - low > 3 else (1.0, 2.0, 5.0)
        return [step * 10**power for power in np.arange(low, high + 1) for step in steps]
    top, bottom = (
        max(values.max(initial=0), 1e-9),
        min(values.min(initial=0), 0) if not measured else values.min(),
    )
    rough = (top - bottom) / 5
    step = next(
        factor
        for factor in 10.0 ** np.floor(np.log10(rough)) * np.array([1, 2, 5, 10])
        if factor >= rough
    )
    return [
        round(float(tick), 10)
        for tick in np.arange(np.floor(bottom / step), np.ceil(top / step) + 1) * step
    ]
