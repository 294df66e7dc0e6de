"""`explore`: sliders that draw a chart anew, and for pages without a kernel the chart that their first values give.

Contract: runs the caller's function, which may run a model; what goes wrong in it is shown below the sliders. Not known here: what it
draws.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as widgets
import plotly.graph_objects as go

from specviz.views.display import picture_wanted, show, to_png


def explore(draw: Callable[..., go.Figure], alt: str, /, **values: Sequence[Any]) -> "Explore":
    """Sliders, one for each argument of `draw`, and what it draws for them.

    Args:
        draw: is called with a value for each slider when one of them has come to rest; returns a chart.
        alt: what the chart shows, for readers who see neither part.
        values: by argument, the values to choose from, the first one being where the slider starts.

    Raises:
        ValueError: there are no sliders, or one has no values.
    """
    if not values or not all(len(each) for each in values.values()):
        raise ValueError(
            f"values={values!r} leaves nothing to choose; pass at least one argument of draw, with at least one value"
        )
    return Explore(draw, alt, values)


class Explore(widgets.VBox):
    """Made by `explore`.

    Attributes:
        sliders: by argument.
        figure: drawn last.
    """

    def __init__(
        self, draw: Callable[..., go.Figure], alt: str, values: Mapping[str, Sequence[Any]]
    ) -> None:
        self._draw, self._alt, self._out = draw, alt, widgets.Output()
        self.figure: go.Figure | None = None
        self.sliders = {
            name: widgets.SelectionSlider(
                options=sorted(each),
                value=each[0],
                description=name,
                continuous_update=False,
                layout={"width": "420px"},
            )
            for name, each in values.items()
        }
        super().__init__([*self.sliders.values(), self._out])
        for slider in self.sliders.values():
            slider.observe(lambda _: self._update(), "value")
        self._update()

    def __repr__(self) -> str:
        return self._alt

    def _update(self) -> None:
        if (
            picture_wanted()
        ):  # nothing is live, and an Output has nowhere to put what is shown in it
            self.figure = self._drawn()
            return
        self._out.clear_output(wait=True)
        with self._out:
            self.figure = self._drawn()
            show(self.figure, self._alt)

    def _drawn(self) -> go.Figure:
        return self._draw(**{name: slider.value for name, slider in self.sliders.items()})

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The sliders, and for pages that run none the picture, under the same rule as charts (see `display`)."""
        data = super()._repr_mimebundle_(**kwargs)
        png = to_png(self.figure) if self.figure is not None and picture_wanted() else None
        return (
            data
            if png is None
            else (
                {**data, "image/png": base64.b64encode(png).decode()},
                {"image/png": {"alt": self._alt}},
            )
        )
