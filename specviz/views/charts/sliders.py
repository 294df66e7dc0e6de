"""`explore`: sliders that redraw a chart. A page without a kernel shows the first values' chart.

Contract: calls the caller's function, which may run a model. An error in it is shown below the
sliders. Not known here: what the function draws.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import anywidget
import plotly.graph_objects as go
import traitlets

from specviz.util.validate import require_function, require_str, short
from specviz.views.charts.redrawn import Redrawn


def explore(
    draw: Callable[..., go.Figure], alt: str, /, **values: "Sequence[Any] | Slider"
) -> "Explore":
    """Return a slider for each argument of `draw`, above the chart that `draw` returns for them.

    Args:
        draw: called with a value for each slider whenever one of them has come to rest; returns a
            chart.
        alt: what the chart shows, for readers who cannot see it.
        values: by argument, the values to choose from. The slider starts at the first one. Or a
            control that looks otherwise, such as one of `capacity_line`.

    Raises:
        ValueError: there are no sliders, or one has no values.
    """
    require_function("draw", draw, "pass one that draws a chart")
    require_str("alt", alt)
    lists = [choices for choices in values.values() if not isinstance(choices, Slider)]
    if not values or not all(map(len, lists)):
        raise ValueError(
            f"values must have at least one argument of draw, each with at least one value, "
            f"got {values!r}; pass for example batch_size=[4, 8]"
        )
    return Explore(draw, alt, values)


class Slider(anywidget.AnyWidget):
    """A slider over a few values. Its page is `slider.js`.

    It is the browser's own slider, because those of ipywidgets have no name for screen readers.

    Attributes:
        options: the values, sorted.
        value: the chosen one.
    """

    _esm = (files("specviz.views.charts") / "slider.js").read_text(encoding="utf-8")

    name = traitlets.Unicode().tag(sync=True)
    words = traitlets.List(traitlets.Unicode()).tag(sync=True)
    index = traitlets.Int().tag(sync=True)
    value = traitlets.Any()

    def __init__(self, name: str, choices: Sequence[Any]) -> None:
        self.options = tuple(sorted(choices))
        words = [str(option) for option in self.options]
        index = self.options.index(choices[0])
        super().__init__(name=name, words=words, index=index, value=choices[0])

    @traitlets.validate("index")
    def _known_index(self, proposal: Any) -> int:
        return min(max(int(proposal["value"]), 0), len(self.options) - 1)

    @traitlets.validate("value")
    def _known_value(self, proposal: Any) -> Any:
        value = proposal["value"]
        if value not in self.options:
            known = ", ".join(self.words)
            raise traitlets.TraitError(
                f"value must be one of {known}, got {short(value)}; choose one of them"
            )
        return value

    @traitlets.observe("index")
    def _index_changed(self, _change: Any) -> None:
        self.value = self.options[self.index]

    @traitlets.observe("value")
    def _value_changed(self, _change: Any) -> None:
        self.index = self.options.index(self.value)


class Explore(Redrawn):
    """Made by `explore`.

    Attributes:
        sliders: by argument.
        figure: the chart that was drawn last.
    """

    def __init__(
        self,
        draw: Callable[..., go.Figure],
        alt: str,
        values: Mapping[str, Sequence[Any] | Slider],
    ) -> None:
        self._draw = draw
        self.sliders = {
            name: choices if isinstance(choices, Slider) else Slider(name, choices)
            for name, choices in values.items()
        }
        super().__init__([*self.sliders.values()], alt)
        for slider in self.sliders.values():
            slider.observe(self._update, "value")

    def draw(self) -> go.Figure:
        return self._draw(**{name: slider.value for name, slider in self.sliders.items()})
