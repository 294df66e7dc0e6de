"""`line_chart`: measured series over one axis, in the look of the other charts.

Contract: series of numbers in, a plotly Figure of fixed size out; every line has its own colour and
mark. Not known here: records.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from specviz.util.text import escape
from specviz.util.validate import require_mapping, require_names, require_str, short
from specviz.views.theme import (
    AMBER,
    BLUE,
    CLEAR,
    GREEN,
    GREY,
    ORANGE,
    VIOLET,
    Theme,
    ThemeName,
    blank_figure,
    solid,
    themed,
    tint,
)

Series = Mapping[str, tuple[Sequence[float], Sequence[float]]]

_COLOURS = (BLUE, ORANGE, GREEN, AMBER, GREY, VIOLET)
_MARKS = ("circle", "square", "diamond", "triangle-up", "x", "star")
_WIDTH = 760  # px
_HEIGHT = 400  # px
_LEGEND = {
    "orientation": "h",
    "x": 0,
    "y": -0.2,
    "yanchor": "top",
    "bgcolor": CLEAR,
    "font": {"size": 12},
}
_FEW = 8  # so many measured values, or fewer, are the ticks themselves


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
    """Draw a line with a mark at each point for each series.

    Args:
        series: by name, the values along x and y; equally many.
        title, words: above the chart, `words` in smaller letters.
        x, y: labels of the axes, units included.
        log: axes that are logarithmic: "", "x", "y" or "xy". A logarithmic x axis has its ticks
            at the measured values.
        dashed: names of series to draw dashed, for example computed or quoted ones.
        theme: "auto" takes its text colour from the page; "light", "dark".

    Raises:
        ValueError: there is no series, or one has a different number of x and y values.
    """
    _check(series)
    for name, text in (("title", title), ("x", x), ("y", y), ("words", words)):
        require_str(name, text)
    if require_str("log", log) not in ("", "x", "y", "xy"):
        raise ValueError(f'log must be "", "x", "y" or "xy", got {short(log)}; choose one of them')
    require_names("dashed", dashed)
    painted = themed(theme)
    figure = blank_figure(painted, _WIDTH, _HEIGHT)
    for number, name in enumerate(series):
        figure.add_trace(_line(painted, name, *series[name], number, dashed=name in dashed))
    heading = f"<b>{escape(title)}</b>"
    if words:
        heading += f"<br><span style='font-size:13px'>{escape(words)}</span>"
    x_values = _joined(along for along, _ in series.values())
    y_values = _joined(up for _, up in series.values())
    return figure.update_layout(
        title={"text": painted.inked(heading), "x": 0.01, "xanchor": "left", "font": {"size": 16}},
        margin={"l": 70, "r": 20, "t": 78, "b": 92},
        showlegend=True,
        legend=_LEGEND,
        xaxis=_axis(painted, x, x_values, log="x" in log, measured=True),
        yaxis=_axis(painted, y, y_values, log="y" in log, measured=False),
    )


def _check(series: Series) -> None:
    require_mapping("series", series, "pass {name: (x, y)}")
    if not series:
        raise ValueError("series must have at least one line, got none, {}; pass {name: (x, y)}")
    for name, (along, up) in series.items():
        if len(along) != len(up):
            raise ValueError(
                f"series[{name!r}] must have as many x as y values, "
                f"got {len(along)} and {len(up)}; pass one y for each x"
            )


def _line(
    theme: Theme,
    name: str,
    along: Sequence[float],
    up: Sequence[float],
    number: int,
    *,
    dashed: bool,
) -> go.Scatter:
    colour = solid(_COLOURS[number % len(_COLOURS)])
    # The seventh line has the first colour again, so it takes the next mark.
    symbol = _MARKS[(number + number // len(_COLOURS)) % len(_MARKS)]
    return go.Scatter(
        x=[float(value) for value in along],
        y=[float(value) for value in up],
        name=theme.inked(escape(name)),
        mode="lines+markers",
        line={"color": colour, "width": 2, "dash": "dash" if dashed else "solid"},
        marker={"symbol": symbol, "size": 8, "color": colour},
        hovertemplate="%{x:.4g}: %{y:.4g}<extra></extra>",
    )


def _joined(parts: Iterable[Sequence[float]]) -> np.ndarray:
    return np.concatenate([np.asarray(part, float) for part in parts])


def _axis(
    theme: Theme, title: str, values: np.ndarray, *, log: bool, measured: bool
) -> dict[str, Any]:
    """Describe an axis. Ticks are text, because only text takes its colour from the page."""
    drawable = np.isfinite(values)
    if log:
        drawable &= values > 0
    ticks = _ticks(values[drawable], log=log, measured=measured)
    axis: dict[str, Any] = {
        "title": {"text": theme.faded(escape(title)), "standoff": 8},
        "type": "log" if log else "linear",
        "tickvals": ticks,
        "ticktext": [theme.faded(f"{tick:g}") for tick in ticks],
        "zeroline": False,
        "gridcolor": tint(GREY, 0.2),
        "linecolor": tint(GREY, 0.6),
    }
    # A quantity on an axis that does not begin at 0 looks steeper than it is.
    if not log and not measured:
        axis["rangemode"] = "tozero"
    return axis


def _ticks(values: np.ndarray, *, log: bool, measured: bool) -> list[float]:
    """Return the measured values where they are few, else round numbers that enclose them."""
    distinct: list[float] = np.unique(values).tolist()
    if measured and len(distinct) <= _FEW:
        return distinct
    if log:
        return _log_ticks(values)
    low = values.min() if measured else min(values.min(initial=0), 0)
    return _linear_ticks(float(low), max(float(values.max(initial=0)), 1e-9))


def _log_ticks(values: np.ndarray) -> list[float]:
    """Return powers of ten; 1, 2 and 5 times each where they span three decades or fewer."""
    low = np.floor(np.log10(values.min()))
    high = np.ceil(np.log10(values.max()))
    factors = (1.0,) if high - low > 3 else (1.0, 2.0, 5.0)
    return [factor * 10**power for power in np.arange(low, high + 1) for factor in factors]


def _linear_ticks(low: float, high: float) -> list[float]:
    """Return about five steps of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / 5
    candidates = 10.0 ** np.floor(np.log10(rough)) * np.array([1, 2, 5, 10])
    step = candidates[candidates >= rough][0]
    first = np.floor(low / step)
    last = np.ceil(high / step)
    return [round(float(number * step), 10) for number in np.arange(first, last + 1)]
