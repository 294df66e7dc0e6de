"""`show`: a chart in a notebook, interactive where the page can run it, else as a static picture.

Contract: one output holds both parts, so that a code host draws the picture and JupyterLab the
chart. The picture is made when a notebook is executed to be stored (nbconvert, nbval). In a live
JupyterLab session it comes later, because the page would show it, without its theme, in place of
the chart. It replaces the one that JupyterLab takes of a chart by itself, which knows neither the
page's colours nor the chart's size. The picture needs kaleido and a browser; where one is
missing, it is left out silently. Outside a notebook or an IPython shell `show` does nothing.
"""

import base64
import json
import logging
import os
from functools import cache, partial
from typing import Any

import plotly.graph_objects as go
from IPython import get_ipython
from IPython.display import display
from plotly.optional_imports import get_module

from specviz.views.live import later
from specviz.views.stepper.png import with_palette
from specviz.views.theme import CLEAR, THEMES, repainted

_CONFIG = {"displayModeBar": False, "displaylogo": False, "showTips": False}
_LIVE = "JPY_SESSION_NAME"  # set by Jupyter's server for the kernels of open notebooks
_NO_FORMULAS = {"mathjax": False}  # kaleido would fetch MathJax from the network


def show(figure: go.Figure, alt: str = "chart", *, keep: bool = True) -> None:
    """Display a figure as the cell's output.

    alt: what it shows, for readers who cannot see it; keep: whether a live notebook gets a picture.
    """
    if get_ipython() is None:
        return
    metadata = {"image/png": {"alt": alt}}
    bundle = mime_bundle(figure, alt, picture=picture_wanted())
    if picture_wanted() or not keep:
        display(bundle, metadata=metadata, raw=True)
        return
    place = display(bundle, metadata=metadata, raw=True, display_id=True)
    later(
        partial(to_png, figure),
        lambda png: place.update(bundle | as_output(png), metadata=metadata, raw=True),
    )


def as_output(png: bytes | None) -> dict[str, str]:
    """Return a picture as a part of an output; no part for None."""
    return {} if png is None else {"image/png": base64.b64encode(png).decode()}


def picture_wanted() -> bool:
    """Return whether the notebook is executed to be stored, not in a live JupyterLab session."""
    return _LIVE not in os.environ


def mime_bundle(figure: go.Figure, alt: str = "chart", *, picture: bool = True) -> dict[str, Any]:
    """Return the output's parts by MIME type.

    These are the chart, for JupyterLab and VS Code, the alt text, and the picture if it is wanted
    and can be drawn.
    """
    chart = json.loads(figure.to_json())
    bundle = {"application/vnd.plotly.v1+json": {**chart, "config": _CONFIG}, "text/plain": alt}
    return bundle | as_output(to_png(figure) if picture else None)


def to_png(figure: go.Figure, scale: float = 1) -> bytes | None:
    """Return the figure as PNG, or None where no browser can draw it.

    A figure without a background of its own gets a white one.
    """
    if not _renderer_starts():
        return None
    layout = figure.layout
    chart = json.loads(repainted(figure.to_json()))
    if layout.paper_bgcolor == CLEAR:
        chart["layout"]["paper_bgcolor"] = THEMES["light"].paper
    size = {"width": layout.width or 700, "height": layout.height or 450}
    picture = get_module("kaleido").calc_fig_sync(
        chart, opts={"format": "png", "scale": scale, **size}
    )
    return with_palette(bytes(picture))


@cache
def _renderer_starts() -> bool:
    """Try once to draw with the browser; if it works, keep one open until the process ends.

    Starting a browser for each picture would take ten times as long.
    """
    kaleido = get_module("kaleido")
    if kaleido is None:
        return False
    logger = logging.getLogger("choreographer")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        kaleido.calc_fig_sync(
            {"data": [], "layout": {}},
            opts={"format": "png", "width": 10, "height": 10},
            kopts={**_NO_FORMULAS},
        )
    except Exception:
        # no browser, one that may not run here, or one that this kaleido does not understand
        return False
    finally:
        logger.setLevel(level)
    kaleido.start_sync_server(n=1, silence_warnings=True, **_NO_FORMULAS)
    return True
