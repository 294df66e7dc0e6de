"""Colours of step-through, charts and schematics; colour of text on a light, a dark or any page.

Contract: one thing has one hue everywhere: accepted is green, the bonus amber, what is thrown away
orange, drafts and the target's K/V blue. `SHADES` is the palette of the step-through and the
schematics, light and dark. A chart does not know its page, so its colours lie in between. Colour is
never the only sign of a state. Fills are tints: they mix with the page, so they serve light and
dark ones. Outlines have a contrast of at least 3:1 against white and near-black, text on a tint at
least 4.5:1. A test computes all of these. Not known here: what is drawn.
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
VIOLET = (146, 84, 190)

# By the names of stepper.css (--sv-green): light, dark. "-soft" is a fill, the other an outline.
SHADES = {
    "ink": ("#1a2130", "#e7ebf3"),
    "muted": ("#566074", "#9ca7ba"),
    "page": ("#ffffff", "#0f141b"),
    "grey": ("#7a8496", "#77839a"),
    "grey-soft": ("#eef1f6", "#212936"),
    "blue": ("#2a5fcf", "#8aacff"),  # drafts, pending, what is chosen
    "blue-soft": ("#e4ecfb", "#1a2a45"),
    "green": ("#0b7a54", "#5ed1a1"),  # accepted
    "green-soft": ("#cfeedf", "#113c2c"),
    "orange": ("#b04a07", "#ffa061"),  # rejected, stale
    "orange-soft": ("#fde8d7", "#462811"),
    "amber": ("#8f5f00", "#efc254"),  # the target's own token
    "amber-soft": ("#fbe6ad", "#453609"),
    "red": ("#c3122f", "#ff8089"),  # wrong
    "target": ("#3569b4", "#6ba0e8"),  # its K/V, and the time to verify
    "draft": ("#86a9da", "#47709f"),  # its K/V, and the time to draft
}

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
    # Colours also stand inside HTML labels, which only the text as a whole reaches.
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
