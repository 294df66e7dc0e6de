"""Pictures that a live notebook keeps for the day when its kernel is gone."""

import base64
from types import SimpleNamespace

import plotly.graph_objects as go
import pytest

from specviz.views import display, live
from specviz.views.charts import redrawn
from specviz.views.charts.sliders import explore


class Loop:
    """Of a kernel: what it is to do, done on request."""

    def __init__(self) -> None:
        self.work: list = []
        self.delays: list[float] = []

    def add_callback(self, work, *arguments) -> None:
        self.work.append(lambda: work(*arguments))

    def call_later(self, delay, work) -> None:
        self.delays.append(delay)
        self.work.append(work)

    def run(self) -> None:
        while self.work:
            self.work.pop(0)()
            live._worker().submit(int).result()  # until the thread has done what came before


class Places:
    """The outputs of a cell."""

    def __init__(self) -> None:
        self.outputs: list[dict] = []
        self.metadata: list[dict] = []

    def display(self, data, metadata=None, raw=True, display_id=None):
        number = len(self.outputs)
        self.outputs.append(data)
        self.metadata.append(metadata)

        def update(data, metadata, raw) -> None:
            self.outputs[number], self.metadata[number] = data, metadata

        return SimpleNamespace(update=update) if display_id else None


@pytest.fixture
def loop(monkeypatch) -> Loop:
    made = Loop()
    shell = SimpleNamespace(kernel=SimpleNamespace(io_loop=made))
    for module in (live, display):
        monkeypatch.setattr(module, "get_ipython", lambda: shell)
    monkeypatch.setenv("JPY_SESSION_NAME", "live.ipynb")
    return made


@pytest.fixture
def places(monkeypatch) -> Places:
    made = Places()
    for module in (display, redrawn):
        monkeypatch.setattr(module, "display", made.display)
        monkeypatch.setattr(module, "to_png", lambda figure: figure.layout.title.text.encode())
    return made


def titled(text: object) -> go.Figure:
    return go.Figure(layout={"title": {"text": f"chart {text}"}})


def picture(output: dict) -> bytes:
    return base64.b64decode(output["image/png"])


def test_a_live_chart_gets_its_picture_after_the_page_took_its_own(loop, places):
    display.show(titled(1), "a chart")
    (first,) = places.outputs
    assert set(first) == {"application/vnd.plotly.v1+json", "text/plain"}
    loop.run()
    (kept,) = places.outputs
    assert loop.delays == [live.REST_S]
    assert {**first, "image/png": kept["image/png"]} == kept
    assert picture(kept) == b"chart 1"
    assert places.metadata == [{"image/png": {"alt": "a chart"}}]


def test_what_cannot_be_drawn_leaves_the_chart_alone(loop, places, monkeypatch):
    """And not the page's own picture of it, which is grey."""

    def fails(figure):
        raise OSError("the browser is gone")

    monkeypatch.setattr(display, "to_png", fails)
    display.show(titled(1), "a chart")
    loop.run()
    assert set(places.outputs[0]) == {"application/vnd.plotly.v1+json", "text/plain"}


def test_sliders_leave_a_picture_of_their_last_chart(loop, places):
    view = explore(titled, "charts", text=[1, 2, 3])
    view._ipython_display_()
    *_, place = places.outputs
    assert place == {"text/html": ""}
    number = len(places.outputs) - 1
    loop.run()
    assert picture(places.outputs[number]) == b"chart 1"
    assert len(loop.delays) == 1, "the chart among the controls needs no picture of its own"
    view.sliders["text"].value = 3
    loop.run()
    assert picture(places.outputs[number]) == b"chart 3"
    assert places.metadata[number]["image/png"] == {"alt": "charts"}
    assert ".specviz-redrawn" in view.children[-1].value
    assert "specviz-redrawn" in view._dom_classes


def test_without_a_kernel_nothing_is_planned(monkeypatch):
    monkeypatch.setattr(live, "get_ipython", lambda: None)
    assert not live.later(lambda: b"", pytest.fail)
