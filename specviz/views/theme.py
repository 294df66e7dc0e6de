"""Colours of the charts, and what gives text its colour on a light page, a dark page, or whichever page it lands on.

Contract: colour marks a state, never the only sign of it. Fills are tints, so they mix with the page and serve both kinds;
outlines have at least 3:1 against white and against near-black; text is ink on a tint, at least 4.5:1. A test computes all of
these. Not known here: what is drawn.
"""

from dataclasses import dataclass
from typing import Literal

import plotly.graph_objects as go

ThemeName = Literal["auto", "light", "dark"]

GREEN, ORANGE, AMBER, BLUE, GREY = (
    (0, 140, 95),
    (205, 92, 12),
    (178, 122, 0),
    (60, 115, 215),
    (120, 128, 140),
)
BRIGHT_AMBER = (240, 170, 0)

MONOSPACE = "DejaVu Sans Mono, Menlo, Consolas, Liberation Mono, monospace"
SANS = "Inter, Segoe UI, Helvetica Neue, Arial, DejaVu Sans, sans-serif"
CLEAR = "rgba(0,0,0,0)"


def tint(rgb: tuple[int, int, int], alpha: float) -> str:
    return f"rgba({rgb[0]},{rgb[1]},{rgb[2]},{alpha:g})"


def solid(rgb: tuple[int, int, int]) -> str:
    return tint(rgb, 1)


@dataclass(frozen=True)
class Theme:
    """ink: text; muted: text of less weight, on the page alone; paper: the page. All are CSS colours."""

    ink: str
    muted: str
    paper: str

    def inked(self, text: str) -> str:
        """`text` (chart markup) in ink."""
        return f'<span style="color:{self.ink}">{text}</span>'

    def faded(self, text: str) -> str:
        """`text` (chart markup) in the muted colour."""
        return f'<span style="color:{self.muted}">{text}</span>'


# "auto" asks the page: JupyterLab and its HTML export, then VS Code; elsewhere grey, which can be read on any page.
THEMES: dict[ThemeName, Theme] = {
    "auto": Theme(
        "var(--jp-content-font-color1,var(--vscode-editor-foreground,#7a7a7a))",
        "var(--jp-content-font-color2,var(--vscode-descriptionForeground,#7a7a7a))",
        CLEAR,
    ),
    "light": Theme("#1d2430", "#5a6372", "#ffffff"),
    "dark": Theme("#e8ecf3", "#9aa4b5", "#0d1117"),
}


def themed(theme: ThemeName) -> Theme:
    """Raises ValueError for an unknown name."""
    if theme not in THEMES:
        raise ValueError(f"theme={theme!r} is unknown; choose one of {', '.join(THEMES)}")
    return THEMES[theme]


def repainted(chart_json: str) -> str:
    """A chart's JSON, drawn with theme "auto", as it has to be for a picture that no page will colour: the light theme."""
    for name in ("ink", "muted"):
        chart_json = chart_json.replace(
            getattr(THEMES["auto"], name), getattr(THEMES["light"], name)
        )
    return chart_json


def blank_figure(theme: Theme, width_px: int, height_px: int) -> go.Figure:
    """A figure of fixed size without plotly's own template, which would add 7 KB to each."""
    figure = go.Figure()
    figure.update_layout(
        template="none", width=width_px, height=height_px, paper_bgcolor=theme.paper, plot_bgcolor=CLEAR, dragmode=False,
        font={"family": SANS, "size": 12}, hoverlabel={"font": {"family": MONOSPACE, "size": 12}}, showlegend=False,
    )  # fmt: skip
    return figure
