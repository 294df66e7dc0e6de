"""Charts as a notebook stores them: their parts by MIME type, and the static picture."""

import base64
import io
import json
import struct
import zlib

import numpy as np
import plotly.graph_objects as go
import pytest
from PIL import Image
from tiny_run import TRACE

from specviz.views import charts, display
from specviz.views.stepper.png import with_palette


@pytest.fixture
def browser():
    """Skips where no browser can draw; the one that it starts stays for the whole run."""
    if not display._renderer_starts():
        pytest.skip("kaleido finds no browser")


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
        display, "display", lambda bundle, metadata, raw: shown.append((bundle, metadata, raw))
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


def test_static_picture(browser):
    figure = charts.acceptance_map(TRACE)
    png = base64.b64decode(display.mime_bundle(figure)["image/png"])
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", png[16:24]) == (figure.layout.width, figure.layout.height)
    assert len(png) < 100_000


def make_png(rows: list[tuple[int, bytes]], width: int, channels: int) -> bytes:
    """A file with these (filter, bytes) rows."""

    def chunk(name, data):
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = struct.pack(">IIBBBBB", width, len(rows), 8, {3: 2, 4: 6}[channels], 0, 0, 0)
    data = zlib.compress(b"".join(bytes([kind]) + values for kind, values in rows))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


def read_palette_png(png: bytes) -> list[list[tuple[int, ...]]]:
    """Colours of the pixels of a file that `with_palette` wrote."""
    picture = Image.open(io.BytesIO(png))
    assert picture.mode == "P"
    rows: list[list[tuple[int, ...]]] = np.asarray(picture.convert("RGB")).tolist()
    return [[tuple(pixel) for pixel in row] for row in rows]


def test_palette_keeps_the_pixels():
    """Rows filtered by none, sub and up, as browsers write them; each spelled out by hand."""
    rows = [
        (0, bytes([1, 2, 3, 255, 4, 5, 6, 255])),
        (1, bytes([9, 9, 9, 255, 250, 0, 1, 0])),
        (2, bytes([1, 0, 0, 0, 0, 0, 1, 0])),
    ]
    expected = [[(1, 2, 3), (4, 5, 6)], [(9, 9, 9), (3, 9, 10)], [(10, 9, 9), (3, 9, 11)]]
    assert read_palette_png(with_palette(make_png(rows, 2, 4))) == expected


def test_palette_takes_the_nearest_of_256_colours():
    """600 colours, the first 256 twice: they stay, the others move to a neighbour."""
    colours = np.array([(i // 2 % 256, i // 256 * 40, i % 2) for i in range(600)], np.uint8)
    line = np.concatenate([colours, colours[:256]])
    ((*pixels,),) = read_palette_png(with_palette(make_png([(0, line.tobytes())], len(line), 3)))
    assert pixels[:256] == [tuple(colour) for colour in colours[:256].tolist()]
    assert len(set(pixels)) == 256


def test_a_transparent_picture_stays_as_it_is():
    png = make_png([(0, bytes(8))], 2, 4)
    assert with_palette(png) == png
