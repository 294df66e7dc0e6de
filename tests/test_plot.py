"""Line charts, and sliders that redraw them."""

import base64

import numpy as np
import plotly.graph_objects as go
import pytest
import traitlets

from specviz.views.charts import redrawn
from specviz.views.charts.plot import line_chart
from specviz.views.charts.sliders import explore

TITLES = {"title": "a < b", "x": "B, rows", "y": "ms"}


def test_every_line_has_a_colour_and_a_mark_of_its_own():
    figure = line_chart({name: ([1, 2], [3, 4]) for name in "abcde"}, **TITLES, dashed=["b"])
    assert len({line.line.color for line in figure.data}) == 5
    assert len({line.marker.symbol for line in figure.data}) == 5
    assert [line.line.dash for line in figure.data] == ["solid", "dash", "solid", "solid", "solid"]
    assert "a &lt; b" in figure.layout.title.text


def test_lines_beyond_the_colours_still_look_different():
    names = [f"line {number}" for number in range(12)]
    figure = line_chart({name: ([1, 2], [3, 4]) for name in names}, **TITLES)
    looks = {(line.line.color, line.marker.symbol) for line in figure.data}
    assert len(looks) == len(names)
    assert len({line.line.color for line in figure.data[:6]}) == 6


def test_few_measured_values_are_the_ticks():
    figure = line_chart({"a": ([1, 4, 32], [0, 1, 2])}, **TITLES, log="x")
    assert list(figure.layout.xaxis.tickvals) == [1, 4, 32]


@pytest.mark.parametrize("log", ["", "y"])
@pytest.mark.parametrize(
    "values", [[0.0031, 0.2, 7], [5, 5, 5], [120, 40000, float("nan")], [0, 1, 2]]
)
def test_ticks_of_the_other_axis_are_few_and_enclose_the_values(values, log):
    figure = line_chart({"a": ([1, 2, 3], values)}, **TITLES, log=log)
    ticks = np.array(figure.layout.yaxis.tickvals)
    shown = np.array([value for value in values if value == value and (value > 0 or not log)])
    assert 2 <= len(ticks) <= 16
    assert ticks.min() <= shown.min()
    assert ticks.max() >= shown.max()


@pytest.mark.parametrize(
    ("series", "message"),
    [
        ({}, "series must have at least one line"),
        ({"a": ([1], [1, 2])}, "must have as many x as y"),
    ],
)
def test_line_chart_refuses(series, message):
    with pytest.raises(ValueError, match=message):
        line_chart(series, **TITLES)


@pytest.fixture
def drawn(monkeypatch):
    """The values that `draw` was called with, and an explorer whose pictures need no browser."""
    asked = []
    monkeypatch.setattr(redrawn, "to_png", lambda figure: b"png")

    def draw(b: int, w: int) -> go.Figure:
        asked.append((b, w))
        return line_chart({"a": ([1], [b * w])}, **TITLES)

    return asked, explore(draw, "rounds by batch", b=[4, 2, 8], w=[1])


def test_sliders_start_at_the_first_value_and_draw_when_moved(drawn):
    asked, explorer = drawn
    explorer.sliders["b"].value = 8
    assert asked == [(4, 1), (8, 1)]
    assert explorer.figure.data[0].y == (8.0,)
    assert explorer.sliders["b"].options == (2, 4, 8)


def test_a_slider_says_its_name_and_values_to_the_page_and_hears_it(drawn):
    asked, explorer = drawn
    slider = explorer.sliders["b"]
    state = slider.get_state()
    assert (state["name"], state["words"], state["index"]) == ("b", ["2", "4", "8"], 1)
    slider.set_state({"index": 0})  # what the page sends
    assert slider.value == 2
    assert asked == [(4, 1), (2, 1)]
    slider.set_state({"index": 99})
    assert slider.value == 8
    with pytest.raises(traitlets.TraitError, match="value must be one of 2, 4, 8, got 3"):
        slider.value = 3
    assert slider.value == 8


def test_a_saved_notebook_shows_the_picture_and_a_stable_text(drawn, monkeypatch):
    _, explorer = drawn
    monkeypatch.setattr(redrawn, "picture_wanted", lambda: True)
    data, metadata = explorer._repr_mimebundle_()
    assert base64.b64decode(data["image/png"]) == b"png"
    assert data["text/plain"] == metadata["image/png"]["alt"] == "rounds by batch"
    monkeypatch.setattr(redrawn, "picture_wanted", lambda: False)
    assert "image/png" not in explorer._repr_mimebundle_()


@pytest.mark.parametrize("values", [{}, {"b": []}])
def test_sliders_need_values(values):
    with pytest.raises(ValueError, match="values must have at least one argument"):
        explore(lambda: None, "nothing", **values)
