"""`explore`: sliders that redraw a chart. A page without a kernel shows the first values' chart.

Contract: calls the caller's function, which may run a model. An error in it is shown below the
sliders. Not known here: what the function draws.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as widgets
import plotly.graph_objects as go

from specviz.util.validate import require_function, require_str
from specviz.views.display import picture_wanted, show, to_png


def explore(draw: Callable[..., go.Figure], alt: str, /, **values: Sequence[Any]) -> "Explore":
    """Return a slider for each argument of `draw`, above the chart that `draw` returns for them.

    Args:
        draw: called with a value for each slider whenever one of them has come to rest; returns a
            chart.
        alt: what the chart shows, for readers who cannot see it.
        values: by argument, the values to choose from. The slider starts at the first one.

    Raises:
        ValueError: there are no sliders, or one has no values.
    """
    require_function("draw", draw, "pass one that draws a chart")
    require_str("alt", alt)
    if not values or not all(len(choices) for choices in values.values()):
        raise ValueError(
            f"values must have at least one argument of draw, each with at least one value, "
            f"got {values!r}; pass for example batch_size=[4, 8]"
        )
    return Explore(draw, alt, values)


class Explore(widgets.VBox):
    """Made by `explore`.

    Attributes:
        sliders: by argument.
        figure: the chart that was drawn last.
    """

    def __init__(
        self, draw: Callable[..., go.Figure], alt: str, values: Mapping[str, Sequence[Any]]
    ) -> None:
        self._draw = draw
        self._alt = alt
        self._out = widgets.Output()
        self.figure: go.Figure | None = None
        self.sliders = {name: _slider(name, choices) for name, choices in values.items()}
        super().__init__([*self.sliders.values(), self._out])
        for slider in self.sliders.values():
            slider.observe(self._update, "value")
        self._update()

    def __repr__(self) -> str:
        return self._alt

    def _update(self, _change: Any = None) -> None:
        if picture_wanted():
            # no page is live: an Output would have nowhere to put what is shown in it
            self.figure = self._drawn()
            return
        self._out.clear_output(wait=True)
        with self._out:
            self.figure = self._drawn()
            show(self.figure, self._alt)

    def _drawn(self) -> go.Figure:
        return self._draw(**{name: slider.value for name, slider in self.sliders.items()})

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The sliders, and a picture under the same rule as for charts (see `display`)."""
        data = super()._repr_mimebundle_(**kwargs)
        png = to_png(self.figure) if self.figure is not None and picture_wanted() else None
        if png is None:
            return data
        picture = {"image/png": base64.b64encode(png).decode()}
        return {**data, **picture}, {"image/png": {"alt": self._alt}}


def _slider(name: str, choices: Sequence[Any]) -> widgets.SelectionSlider:
    return widgets.SelectionSlider(
        options=sorted(choices),
        value=choices[0],
        description=name,
        continuous_update=False,
        layout={"width": "420px"},
    )
