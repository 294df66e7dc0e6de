"""`explore`: sliders that redraw a chart. A page without a kernel shows the first values' chart.

Contract: calls the caller's function, which may run a model. An error in it is shown below the
sliders. Not known here: what the function draws.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as widgets
import plotly.graph_objects as go

from specviz.util.validate import require_function, require_str
from specviz.views.charts.redrawn import Redrawn


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


class Explore(Redrawn):
    """Made by `explore`.

    Attributes:
        sliders: by argument.
        figure: the chart that was drawn last.
    """

    def __init__(
        self, draw: Callable[..., go.Figure], alt: str, values: Mapping[str, Sequence[Any]]
    ) -> None:
        self._draw = draw
        self.sliders = {name: _slider(name, choices) for name, choices in values.items()}
        super().__init__([*self.sliders.values()], alt)
        for slider in self.sliders.values():
            slider.observe(self._update, "value")

    def draw(self) -> go.Figure:
        return self._draw(**{name: slider.value for name, slider in self.sliders.items()})


def _slider(name: str, choices: Sequence[Any]) -> widgets.SelectionSlider:
    return widgets.SelectionSlider(
        options=sorted(choices),
        value=choices[0],
        description=name,
        continuous_update=False,
        layout={"width": "420px"},
    )
