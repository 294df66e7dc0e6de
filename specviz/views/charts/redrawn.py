"""`Redrawn`: controls above a chart that is drawn again whenever one of them changes.

Contract: a subclass makes the controls and draws. A page without a kernel shows the first chart as
a picture. Not known here: what is drawn.
"""

import base64
from typing import Any

import ipywidgets as widgets
import plotly.graph_objects as go

from specviz.views.display import picture_wanted, show, to_png


class Redrawn(widgets.VBox):
    """Controls above a chart. A subclass overrides `draw`.

    Attributes:
        figure: the chart that was drawn last.
    """

    def __init__(self, controls: list[widgets.Widget], alt: str) -> None:
        """Draw for the first time.

        alt: what the chart shows, for readers who cannot see it.
        """
        self._alt = alt
        self._out = widgets.Output()
        self.figure: go.Figure | None = None
        super().__init__([*controls, self._out])
        self._update()

    def __repr__(self) -> str:
        return self._alt

    def draw(self) -> go.Figure:
        """Return the chart for what the controls say now."""
        raise NotImplementedError

    def _update(self, _change: Any = None) -> None:
        if picture_wanted():
            # no page is live: an Output would have nowhere to put what is shown in it
            self.figure = self.draw()
            return
        self._out.clear_output(wait=True)
        with self._out:
            self.figure = self.draw()
            show(self.figure, self._alt)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """Return the controls, and a picture under the same rule as for charts (see `display`)."""
        data = super()._repr_mimebundle_(**kwargs)
        png = to_png(self.figure) if self.figure is not None and picture_wanted() else None
        if png is None:
            return data
        picture = {"image/png": base64.b64encode(png).decode()}
        return {**data, **picture}, {"image/png": {"alt": self._alt}}
