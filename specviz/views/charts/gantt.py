"""`gantt`: the phases of one lane or several on one clock, with the pauses between them.

Contract: reads a table of times, as `result.timeline` or one that was computed; returns a plotly
Figure of fixed size. Not known here: runs and records.
"""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from specviz.metrics import bubble_share, bubbles
from specviz.record.schema import PHASES
from specviz.util.text import SECONDS_FROM, time_words
from specviz.util.validate import is_finite, require_kind, require_str, short
from specviz.views.charts.canvas import WIDTH, Look, boxes, canvas, texts, title, write_into
from specviz.views.charts.stages import PHASE_LOOKS
from specviz.views.theme import AMBER, GREY, SANS, Theme, ThemeName, themed, tint

_COLUMNS = ("lane", "round", "phase", "start_ms", "stop_ms")
BUBBLE = Look("bubble: the lane waits", AMBER, 0.18)

# all in px
_TOP = 84  # of the first lane
_ROW = 54  # from one lane to the next
_BAR = 30  # height of a phase
_BUBBLE = 12  # height of a pause
_LEFT = 74
_RIGHT = WIDTH - 34
_LETTER = 7.0  # width of a label's letter
_TICKS = 8  # about so many


def gantt(
    table: pd.DataFrame,
    *,
    start_ms: float | None = None,
    stop_ms: float | None = None,
    heading: str = "Two lanes on one clock",
    theme: ThemeName = "auto",
) -> go.Figure:
    """Draw a lane as a row of boxes, one for each phase, and its pauses as thin boxes.

    Args:
        table: `result.timeline`, or any table with the columns lane, round, phase, start_ms and
            stop_ms. Numbers in the boxes of "verify" are rounds.
        start_ms, stop_ms: the part to draw; None for the first or the last moment.
        heading: above the chart.
        theme: see the package.

    Raises ValueError when the table lacks a column, or has no phase between the two moments.
    """
    require_str("heading", heading)
    shown = _checked(table, start_ms, stop_ms)
    painted = themed(theme)
    begin = float(shown["start_ms"].min()) if start_ms is None else float(start_ms)
    end = float(shown["stop_ms"].max()) if stop_ms is None else float(stop_ms)
    scale = (_RIGHT - _LEFT) / (end - begin)  # px per ms
    lanes = sorted(shown["lane"].unique())
    figure = canvas(painted, WIDTH, _TOP + len(lanes) * _ROW + 62)
    tops: dict[int, float] = {lane: _TOP + _ROW * number for number, lane in enumerate(lanes)}
    names = [painted.inked(f"<b>lane {lane}</b>") for lane in lanes]
    middles = [tops[lane] + _BAR / 2 for lane in lanes]
    figure.add_trace(texts("lanes", 8, middles, names, 12.5, "right"))
    figure.add_traces(_ticks(painted, begin, end, scale, _TOP + len(lanes) * _ROW))
    pauses = _cut(bubbles(_cut(table, begin, end)), begin, end)
    spaces = (_BAR - _BUBBLE) / 2
    figure.add_trace(_drawn("bubble", BUBBLE, pauses, begin, scale, tops, spaces, _BUBBLE))
    for phase in PHASES:
        part = shown[shown["phase"] == phase]
        bars = _drawn(phase, PHASE_LOOKS[phase], part, begin, scale, tops, 0, _BAR)
        if phase == "verify":
            widths = (part["stop_ms"] - part["start_ms"]) * scale
            labels = [
                f"{number}" if width > _LETTER * (len(f"{number}") + 1) else ""
                for number, width in zip(part["round"], widths, strict=True)
            ]
            write_into(bars, labels, painted.inked("%{text}"), 11, SANS)
        figure.add_trace(bars.update(name=painted.inked(phase)))
    figure.data[-len(PHASES) - 1].update(name=painted.inked(BUBBLE.legend))
    # Of the part that is drawn, so that the words fit the picture.
    share = bubble_share(_cut(table, begin, end))
    lasts = time_words(end - begin, digits=0)
    words = f"{lasts}; the lanes wait in {share:.0%} of their time; numbers are rounds"
    return figure.add_traces(title(painted, heading, words))


def _checked(table: pd.DataFrame, start_ms: float | None, stop_ms: float | None) -> pd.DataFrame:
    """Return the phases between the two moments, cut to them."""
    require_kind("table", table, pd.DataFrame, "pass result.timeline")
    missing = [name for name in _COLUMNS if name not in table]
    if missing:
        raise ValueError(f"table lacks {', '.join(missing)}; pass result.timeline")
    for name, value in (("start_ms", start_ms), ("stop_ms", stop_ms)):
        if value is not None and not (is_finite(value) and value >= 0):
            raise ValueError(f"{name} must be a number >= 0 or None, got {short(value)}; pass ms")
    begin = table["start_ms"].min() if start_ms is None else start_ms
    end = table["stop_ms"].max() if stop_ms is None else stop_ms
    shown = _cut(table, begin, end)
    if not len(shown):
        raise ValueError(
            f"table must have a phase from start_ms to stop_ms, got none from {short(begin)} to "
            f"{short(end)}; pass moments between {table['start_ms'].min():.0f} and "
            f"{table['stop_ms'].max():.0f}"
        )
    return shown


def _cut(table: pd.DataFrame, begin: float, end: float) -> pd.DataFrame:
    """Return what lies between the two moments."""
    inside = table[(table["stop_ms"] > begin) & (table["start_ms"] < end)]
    return inside.assign(
        start_ms=inside["start_ms"].clip(lower=begin), stop_ms=inside["stop_ms"].clip(upper=end)
    )


def _drawn(
    kind: str,
    look: Look,
    part: pd.DataFrame,
    begin: float,
    scale: float,
    tops: dict[int, float],
    lower: float,
    height: float,
) -> go.Bar:
    left = (_LEFT + (part["start_ms"] - begin) * scale).tolist()
    width = ((part["stop_ms"] - part["start_ms"]) * scale).tolist()
    top = [tops[lane] + lower for lane in part["lane"]]
    return boxes(kind, look, left, top, width, height, corner_px=2)


def _ticks(theme: Theme, begin: float, end: float, scale: float, y: float) -> list[go.Scatter]:
    """Draw the axis below the lanes, in ms or s from the first moment that is drawn."""
    rough = (end - begin) / _TICKS
    power = 10.0 ** np.floor(np.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough)
    # A little beyond the end, so that rounding does not drop the last mark.
    marks = np.arange(0, end - begin + step / 1e6, step)
    places = [_LEFT + mark * scale for mark in marks]
    axis = go.Scatter(
        x=[x for place in places for x in (place, place, None)],
        y=[at for _ in places for at in (_TOP - 6, y - 8, None)],
        mode="lines",
        line={"color": tint(GREY, 0.35), "width": 1},
        meta={"kind": "ticks"},
        hoverinfo="skip",
        showlegend=False,
    )
    unit_ms, unit = (1000, "s") if end - begin >= SECONDS_FROM else (1, "ms")
    words = [theme.faded(f"{mark / unit_ms:g} {unit}") for mark in marks]
    return [axis, texts("tick labels", places, y + 2, words, 10.5)]
