"""`Redrawn`: controls above a chart that is drawn again whenever one of them changes.

Contract: a subclass makes the controls and draws. A page without a kernel shows a picture: of the
first chart if the notebook was executed to be stored, of the last one if it was saved by hand. Not
known here: what is drawn.
"""

from functools import partial
from typing import Any

import ipywidgets as widgets
import plotly.graph_objects as go
from IPython.display import DisplayHandle, display

from specviz.views.display import as_output, picture_wanted, show, to_png
from specviz.views.live import later

_CLASS = "specviz-redrawn"
# Hides the picture that is kept below as long as the controls are there.
_STYLE = (
    f"<style>.jp-OutputArea-child:has(.{_CLASS}) + "
    ".jp-OutputArea-child:has(img.jp-needs-light-background) { display: none; }</style>"
)


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
        self._place: DisplayHandle | None = None
        self.figure: go.Figure | None = None
        style = widgets.HTML(_STYLE, layout={"display": "none"})
        super().__init__([*controls, self._out, style])
        self.add_class(_CLASS)
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
            show(self.figure, self._alt, keep=False)
        self._leave_picture()

    def _ipython_display_(self) -> None:
        """Display the controls in a live session, and under them a place for a picture.

        The picture is for readers who open the saved notebook without this kernel.
        """
        if picture_wanted():
            raise NotImplementedError  # IPython then takes what _repr_mimebundle_ returns
        display(self._repr_mimebundle_(), raw=True)
        self._place = display({"text/html": ""}, raw=True, display_id=True)
        self._leave_picture()

    def _leave_picture(self) -> None:
        place, figure = self._place, self.figure
        if place is None or figure is None:
            return
        metadata = {"image/png": {"alt": self._alt}, "needs_background": "light"}

        def keep(png: bytes | None) -> None:
            if png is not None and figure is self.figure:
                data = {"text/plain": self._alt} | as_output(png)
                place.update(data, metadata=metadata, raw=True)

        later(partial(to_png, figure), keep)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """Return the controls, and a picture under the same rule as for charts (see `display`)."""
        data = super()._repr_mimebundle_(**kwargs)
        png = to_png(self.figure) if self.figure is not None and picture_wanted() else None
        if png is None:
            return data
        return data | as_output(png), {"image/png": {"alt": self._alt}}
