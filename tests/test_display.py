"""Charts as a notebook stores them: their parts by MIME type, and the static picture."""

import base64
import io
import json
import struct

import numpy as np
import plotly.graph_objects as go
import pytest
from conftest import skip_without
from PIL import Image
from tiny_run import TRACE

from specviz.views import charts, display
from specviz.views.stepper.png import with_palette


@pytest.fixture
def browser():
    """Skips where no browser can draw; the one that it starts stays for the whole run."""
    if not display._renderer_starts():
        skip_without("a browser that kaleido finds")


@pytest.fixture
def no_browser(monkeypatch):
    monkeypatch.setattr(display, "_renderer_starts", lambda: False)


def test_bundle_without_a_browser(no_browser):
    bundle = display.mime_bundle(charts.acceptance_map(TRACE), "a map")
    assert set(bundle) == {"application/vnd.plotly.v1+json", "text/plain"}
    assert bundle["text/plain"] == "a map"
    assert bundle["application/vnd.plotly.v1+json"]["config"]["displayModeBar"] is False
    json.dumps(bundle, allow_nan=False)


@pytest.mark.parametrize("live", [True, False])
def test_pictures_are_made_where_notebooks_are_kept(monkeypatch, live):
    shown, asked = [], []
    monkeypatch.setattr(display, "get_ipython", object)
    monkeypatch.setattr(
        display, "display", lambda bundle, metadata, raw, **_: shown.append((bundle, metadata, raw))
    )
    monkeypatch.setattr(display, "to_png", lambda figure: asked.append(figure) or b"png")
    monkeypatch.setenv("JPY_SESSION_NAME", "x.ipynb") if live else monkeypatch.delenv(
        "JPY_SESSION_NAME", raising=False
    )
    charts.show(charts.acceptance_map(TRACE), alt="a map")
    ((bundle, metadata, raw),) = shown
    assert raw
    assert metadata["image/png"]["alt"] == bundle["text/plain"] == "a map"
    assert ("image/png" in bundle) is not live
    assert len(asked) == (not live)


def test_show_does_nothing_outside_ipython(monkeypatch, capsys):
    """Nor does it print the parts, as IPython's own `display` would in a script."""
    monkeypatch.setattr(display, "to_png", None)  # drawing would fail
    charts.show(go.Figure())
    assert capsys.readouterr() == ("", "")


@pytest.mark.programs
@pytest.mark.slow
def test_static_picture(browser):
    figure = charts.acceptance_map(TRACE)
    png = base64.b64decode(display.mime_bundle(figure)["image/png"])
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", png[16:24]) == (figure.layout.width, figure.layout.height)
    assert len(png) < 100_000


def png_of(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def with_palette_pixels(pixels: np.ndarray) -> np.ndarray:
    """The colours of the pixels after `with_palette`."""
    picture = Image.open(io.BytesIO(with_palette(png_of(pixels))))
    assert picture.mode == "P"
    return np.asarray(picture.convert("RGB"))


def test_palette_keeps_the_pixels():
    pixels = np.random.default_rng(0).integers(0, 5, (7, 9, 4))  # at most 64 colours
    pixels[..., 3] = 255
    assert np.array_equal(with_palette_pixels(pixels), pixels[..., :3])


def test_palette_takes_the_nearest_of_256_colours():
    """600 colours, the first 256 twice: they stay, the others move to a neighbour."""
    colours = np.array([(i // 2 % 256, i // 256 * 40, i % 2) for i in range(600)])
    kept = colours[:256]
    (found,) = with_palette_pixels(np.concatenate([colours, kept])[None])
    assert np.array_equal(found[:256], kept)
    distances = ((colours[:, None] - kept) ** 2).sum(-1)
    assert np.array_equal(((found[:600] - colours) ** 2).sum(-1), distances.min(1))


def test_a_transparent_picture_stays_as_it_is():
    png = png_of(np.zeros((1, 2, 4)))
    assert with_palette(png) == png
