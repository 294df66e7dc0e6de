"""A plotly Figure as a canvas: one unit is one pixel, y runs downwards, placed by hand.

Contract: `boxes`, `lines` and `texts` make traces, `canvas` the figure that takes them. Each trace
carries its name as `meta["kind"]`. Texts are chart markup: the caller escapes and colours them. Not
known here: records.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from specviz.util.text import escape
from specviz.views.theme import CLEAR, MONOSPACE, Theme, blank_figure, solid, tint

WIDTH = 900  # px of a chart over the full width


@dataclass(frozen=True)
class Look:
    """How boxes look: a tint of a colour, outlined in it.

    legend: their name in the legend; colour: RGB; opacity: of the tint; hatched: with diagonal
    lines.
    """

    legend: str
    colour: tuple[int, int, int]
    opacity: float
    hatched: bool = False

    @property
    def fill(self) -> str:
        return tint(self.colour, self.opacity)

    @property
    def hatch(self) -> str:
        """The colour of the diagonal lines."""
        return tint(self.colour, 0.6) if self.hatched else ""

    def marker(self, corner_px: int) -> dict[str, Any]:
        """Return the look as plotly's `marker`."""
        marker: dict[str, Any] = {
            "color": self.fill,
            "cornerradius": corner_px,
            "line": {"color": solid(self.colour), "width": 1},
        }
        if self.hatched:
            marker["pattern"] = {
                "shape": "/",
                "fgcolor": self.hatch,
                "size": 6,
                "solidity": 0.2,
                "fillmode": "overlay",
            }
        return marker


def canvas(theme: Theme, width_px: float, height_px: float) -> go.Figure:
    """Return an empty figure with axes in pixels and the legend along its lower edge."""
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
        "itemclick": False,
        "itemdoubleclick": False,
    }
    figure.update_layout(
        barmode="overlay",
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
        showlegend=True,
        xaxis={"range": [0, width_px], **hidden},
        yaxis={"range": [height_px, 0], **hidden},  # downwards, as on a page
        legend=legend,
    )
    return figure


def title(theme: Theme, heading: str, subtitle: str) -> list[go.Scatter]:
    """Write two lines at the top left. heading, subtitle: plain text."""
    bold = theme.inked(f"<b>{escape(heading)}</b>")
    return [
        texts("title", 8, 18, [bold], 16, "right"),
        texts("subtitle", 8, 42, [theme.inked(escape(subtitle))], 13, "right"),
    ]


def boxes(
    kind: str,
    look: Look,
    left: float | Sequence[float],
    top: Sequence[float],
    width: float | Sequence[float],
    height: float | Sequence[float],
    corner_px: int = 4,
) -> go.Bar:
    """Return rectangles. They are in the legend if their look has a name there.

    Add text with `write_into`.
    """
    widths = np.broadcast_to(width, len(top))
    heights = np.broadcast_to(height, len(top))
    # Bars rather than layout shapes, because shapes have no place in the legend.
    return go.Bar(
        meta={"kind": kind},
        name=look.legend or kind,
        showlegend=bool(look.legend),
        hoverinfo="skip",
        marker=look.marker(corner_px),
        x=(np.array(left) + widths / 2).tolist(),
        width=widths.tolist(),
        base=list(top),
        y=heights.tolist(),
    )


def write_into(
    bars: go.Bar, text: Sequence[str], template: str, size: float, font: str = MONOSPACE
) -> go.Bar:
    """Centre a text in each of the boxes, in place. template: markup around %{text}."""
    return bars.update(
        text=list(text),
        texttemplate=template,
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        constraintext="none",
        textfont={"family": font, "size": size},
    )


def texts(
    name: str,
    x: float | Sequence[float],
    y: float | Sequence[float],
    text: Sequence[str],
    size: float,
    side: str = "center",
) -> go.Scatter:
    """Return texts at points. x, y: of each, or of all; side: "center", "left" or "right" of it."""
    return go.Scatter(
        x=np.broadcast_to(x, len(text)).tolist(),
        y=np.broadcast_to(y, len(text)).tolist(),
        text=list(text),
        mode="text",
        textposition=f"middle {side}",
        textfont={"size": size},
        name=name,
        meta={"kind": name},
        hoverinfo="skip",
        showlegend=False,
        cliponaxis=False,
    )


def lines(
    name: str, legend: str, segments: Sequence[tuple[float, float, float, float]], color: str
) -> go.Scatter:
    """Return segments (x0, y0, x1, y1)."""
    x: list[float | None] = []
    y: list[float | None] = []
    for x0, y0, x1, y1 in segments:
        # None breaks the line, so that all segments are one trace.
        x += [x0, x1, None]
        y += [y0, y1, None]
    return go.Scatter(
        x=x,
        y=y,
        mode="lines",
        line={"color": color, "width": 2},
        name=legend,
        meta={"kind": name},
        hoverinfo="skip",
        showlegend=True,
    )
