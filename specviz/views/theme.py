"""Colours of the charts, and the colour of text on a light page, a dark page, or any page.

Contract: colour is never the only sign of a state. Fills are tints: they mix with the page, so they
serve light and dark ones. Outlines have a contrast of at least 3:1 against white and near-black,
text on a tint at least 4.5:1. A test computes all of these. Not known here: what is drawn.
"""

from dataclasses import dataclass
from typing import Literal

import plotly.graph_objects as go

from specviz.util.validate import is_one_of, short

ThemeName = Literal["auto", "light", "dark"]

GREEN = (0, 140, 95)
ORANGE = (205, 92, 12)
AMBER = (178, 122, 0)
BLUE = (60, 115, 215)
GREY = (120, 128, 140)

MONOSPACE = "DejaVu Sans Mono, Menlo, Consolas, Liberation Mono, monospace"
SANS = "Inter, Segoe UI, Helvetica Neue, Arial, DejaVu Sans, sans-serif"
CLEAR = "rgba(0,0,0,0)"


def tint(rgb: tuple[int, int, int], alpha: float) -> str:
    return f"rgba({rgb[0]},{rgb[1]},{rgb[2]},{alpha:g})"


def solid(rgb: tuple[int, int, int]) -> str:
    return tint(rgb, 1)


@dataclass(frozen=True)
class Theme:
    """CSS colours. ink: text; muted: secondary text, only on the bare page; paper: the page."""

    ink: str
    muted: str
    paper: str

    def inked(self, text: str) -> str:
        """Return `text` (chart markup) in ink."""
        return f'<span style="color:{self.ink}">{text}</span>'

    def faded(self, text: str) -> str:
        """Return `text` (chart markup) in the muted colour."""
        return f'<span style="color:{self.muted}">{text}</span>'


# "auto" takes the page's colour: JupyterLab and its HTML export, then VS Code; elsewhere a grey
# that can be read on any page.
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
    """Return the theme of that name. Raises ValueError for an unknown name."""
    if not is_one_of(theme, [*THEMES]):
        raise ValueError(
            f"theme must be one of {', '.join(THEMES)}, got {short(theme)}; choose one of them"
        )
    return THEMES[theme]


def repainted(chart_json: str) -> str:
    """Return a chart's JSON with the colours of theme "auto" replaced by those of "light".

    A static picture has no page around it that could set the colours.
    """
    auto = THEMES["auto"]
    light = THEMES["light"]
    return chart_json.replace(auto.ink, light.ink).replace(auto.muted, light.muted)


def blank_figure(theme: Theme, width_px: int, height_px: int) -> go.Figure:
    """Return a figure of fixed size without plotly's own template, which would add 7 KB to each."""
    return go.Figure().update_layout(
        template="none",
        width=width_px,
        height=height_px,
        paper_bgcolor=theme.paper,
        plot_bgcolor=CLEAR,
        dragmode=False,
        font={"family": SANS, "size": 12},
        hoverlabel={"font": {"family": MONOSPACE, "size": 12}},
        showlegend=False,
    )
