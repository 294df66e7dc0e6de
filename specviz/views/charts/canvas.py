"""A plotly Figure as a canvas: one unit is one pixel, y runs downwards, everything stands where it is put.

Contract: `boxes` and `texts` make traces, `canvas` the figure that takes them. Text that goes in is chart markup: escaped and
inked by the caller. Not known here: records, rows and slots.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from specviz.views.theme import CLEAR, MONOSPACE, Theme, blank_figure


@dataclass(frozen=True)
class Look:
    """How boxes look. legend: their name there; sign: what marks them beside their colour; hatch: colour of diagonal lines."""

    legend: str
    fill: str
    outline: str = CLEAR
    outline_px: float = 0
    sign: str = ""
    hatch: str = ""
    corner_px: int = 4

    @property
    def marker(self) -> dict[str, Any]:
        """As plotly wants it."""
        line = {"color": self.outline, "width": self.outline_px}
        pattern = (
            {"shape": "/", "fgcolor": self.hatch, "size": 6, "solidity": 0.2, "fillmode": "overlay"}
            if self.hatch
            else {}
        )
        return {
            "color": self.fill,
            "cornerradius": self.corner_px,
            "line": line,
            "pattern": pattern,
        }


def canvas(theme: Theme, width_px: float, height_px: float) -> go.Figure:
    """An empty figure with axes in pixels and the legend along its lower edge."""
    figure = blank_figure(theme, round(width_px), round(height_px))
    hidden = {"visible": False, "fixedrange": True}
    legend = {
        "orientation": "h",
        "x": 0,
        "y": 0,
        "xanchor": "left",
        "yanchor": "bottom",
        "font": {"size": 11},
        "bgcolor": CLEAR,
    }
    figure.update_layout(
        barmode="overlay", margin={"l": 0, "r": 0, "t": 0, "b": 0}, showlegend=True,
        xaxis={"range": [0, width_px], **hidden}, yaxis={"range": [height_px, 0], **hidden},
        legend={**legend, "itemclick": False, "itemdoubleclick": False},
    )  # fmt: skip
    return figure


def boxes(
    kind: str,
    look: Look,
    left: Sequence[float],
    top: Sequence[float],
    width: float | Sequence[float],
    height: float | Sequence[float],
) -> go.Bar:
    """Rectangles, named `kind` in the trace's meta; in the legend if their look has a name there. Add text with `write_into`."""
    widths = [width] * len(left) if isinstance(width, int | float) else list(width)
    heights = [height] * len(left) if isinstance(height, int | float) else list(height)
    return go.Bar(
        meta={"kind": kind}, name=look.legend or kind, showlegend=bool(look.legend), hoverinfo="skip", marker=look.marker,
        x=[a + w / 2 for a, w in zip(left, widths, strict=True)], width=widths, base=list(top), y=heights,
    )  # fmt: skip


def write_into(
    bars: go.Bar, text: Sequence[str], template: str, size: float, font: str = MONOSPACE
) -> go.Bar:
    """Centre a text in each of the boxes. template: markup around %{text}."""
    return bars.update(
        text=list(text), texttemplate=template, textposition="inside", insidetextanchor="middle", textangle=0, constraintext="none",
        textfont={"family": font, "size": size},
    )  # fmt: skip


def texts(
    name: str,
    x: Sequence[float],
    y: Sequence[float],
    text: Sequence[str],
    size: float,
    side: str = "center",
) -> go.Scatter:
    """Texts at points. side: where each lies from its point: "center", "left" or "right"."""
    return go.Scatter(
        x=list(x), y=list(y), text=list(text), mode="text", textposition=f"middle {side}", textfont={"size": size},
        name=name, meta={"kind": name}, hoverinfo="skip", showlegend=False, cliponaxis=False,
    )  # fmt: skip


def lines(
    name: str,
    legend: str,
    segments: Sequence[tuple[float, float, float, float]],
    color: str,
    arrow: bool = False,
) -> go.Scatter:
    """Segments (x0, y0, x1, y1), with a head at their end if they are arrows."""
    x: list[float | None] = []
    y: list[float | None] = []
    for x0, y0, x1, y1 in segments:
        x += [x0, x1, None]
        y += [y0, y1, None]
    head = {
        "symbol": "arrow",
        "angleref": "previous",
        "size": [0, 11, 0] * len(segments),
        "color": color,
        "opacity": 1,
        "line": {"width": 0},
    }
    return go.Scatter(
        x=x, y=y, mode="lines+markers" if arrow else "lines", line={"color": color, "width": 2}, marker=head if arrow else None,
        name=legend, meta={"kind": name}, hoverinfo="skip", showlegend=True,
    )  # fmt: skip
