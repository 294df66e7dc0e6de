"""Hostile text in pages, pictures and tables that the library writes.

None of it may run as code, and no page may request anything.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import pytest
from bench_rows import row, sample
from playwright.sync_api import Page, expect
from plotly.offline import get_plotlyjs

import specviz as sv
from browser.runs import record
from browser.stepper import Stepper
from browser.test_page import HOSTILE, check_policy, disguised
from specviz.bench import make_table
from specviz.bench.report import save_report
from specviz.bench.table import conditions
from specviz.views import charts
from specviz.views.stepper import browser as drawing

pytestmark = pytest.mark.browser
ACTIVE_TAGS = (
    "img, iframe, object, embed, form, a, link, base, svg script, svg foreignObject, [onerror]"
)


@pytest.fixture
def watched(offline_page) -> Callable[..., Iterator[Page]]:
    """Open a file.

    Once it is closed, it must have requested only itself and have run no foreign code. With
    `policy=True` it must also refuse to request anything.
    """

    @contextmanager
    def opened(path: Path, *, policy: bool = False) -> Iterator[Page]:
        with offline_page() as page:
            asked: list[str] = []
            page.on("request", lambda request: asked.append(request.url))
            page.goto(path.as_uri())
            yield page
            page.wait_for_timeout(200)
            loaded = [url for url in asked if not url.startswith(("data:", "blob:"))]
            assert loaded == [path.as_uri()]
            assert page.evaluate("window.__pwned") is None
            if policy:
                check_policy(page)

    return opened


@pytest.mark.parametrize("two", [False, True], ids=["step-through", "comparison"])
def test_a_page_of_hostile_runs(watched, tmp_path, two):
    path = tmp_path / "run.html"
    sv.step_through(disguised(), other=disguised() if two else None).export_html(path)
    with watched(path, policy=True) as page:
        stepper = Stepper(page.locator(".specviz").first).wait()
        for step in (0, 8, 23):
            stepper.go(step)
        stepper.press("t", "?")
        assert page.locator(ACTIVE_TAGS).count() == 0


def test_a_report_with_hostile_names(watched, tmp_path):
    rows = sample()
    texts = [each for each in HOSTILE if each.strip() and "\ud800" not in each]
    for number, text in enumerate(texts):
        names = {"drafter": f"{number}", "device_name": text, "failure": text, "target": text}
        rows.append(row(f"exspec:{number}", 100.0, 4, drafter=text, pair="p"))
        rows.append(row("inplace", None, 4, **names))
    stated = conditions(rows, note=" ".join(HOSTILE[:5]))
    path = save_report(make_table(rows), stated, tmp_path / "bench.html")
    with watched(path, policy=True) as page:
        expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()
        expect(page.get_by_text(HOSTILE[0]).first).to_be_visible()
        active = "img, iframe, object, embed, form, a[href^=javascript]"
        assert page.locator(active).count() == 0


def bare(tmp_path: Path, body: str, script: str = "") -> Path:
    """A page without any policy: what is safe here is safe anywhere."""
    path = tmp_path / "bare.html"
    head = '<!DOCTYPE html><meta charset="utf-8"><title>x</title>'
    text = f'{head}<body>{body}<p id="end">end</p>{script}</body>'
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    return path


def test_tables_as_a_notebook_shows_them(watched, tmp_path):
    """What pandas and a comparison give to a notebook, in which no policy helps."""
    trace = disguised()
    found = sv.check_invariants(trace).frame()
    texts = pd.DataFrame(
        {
            "text": [each for each in HOSTILE if "\ud800" not in each],
            "strategy": "<script>window.__pwned = 1</script>",
        }
    )
    with watched(bare(tmp_path, found.to_html() + texts._repr_html_())) as page:
        expect(page.locator("#end")).to_be_visible()
        assert page.locator(ACTIVE_TAGS).count() == 0


def test_a_comparison_as_a_notebook_shows_it(watched, tmp_path):
    pair = sv.load_pair(device="cpu")
    hostile = "<script>window.__pwned = 1</script><img src=x onerror='window.__pwned = 1'>"
    given = {"max_new_tokens": 8, "batch_size": 2, "record": True, "progress": False}
    results = [
        sv.generate(pair, ["def add(a, b):", hostile], strategy=name, **given)
        for name in ("repadding", "autoregressive")
    ]
    with watched(bare(tmp_path, sv.compare(*results)._repr_html_())) as page:
        expect(page.locator("#end")).to_be_visible()
        assert page.locator(ACTIVE_TAGS).count() == 0


def test_charts_of_hostile_text(watched, tmp_path):
    trace = disguised()
    figures: list[go.Figure] = [
        charts.stage_bars({HOSTILE[0]: trace, HOSTILE[1]: trace}),
        charts.acceptance_map(trace),
    ]
    draw = ""
    for n, figure in enumerate(figures):
        data = figure.to_json().replace("<", chr(92) + "u003c")
        draw += f'<div id="c{n}"></div><script>Plotly.newPlot("c{n}", {data})</script>'
    with watched(bare(tmp_path, f"<script>{get_plotlyjs()}</script>", draw)) as page:
        expect(page.locator(".js-plotly-plot .main-svg").last).to_be_visible()
        assert page.locator(".js-plotly-plot").count() == len(figures)
        active = ".main-svg a, .main-svg script, .main-svg foreignObject, img"
        assert page.locator(active).count() == 0


def test_a_picture_of_hostile_text(watched, tmp_path):
    """The SVG, opened alone, as a document that may run scripts."""
    if not drawing.browser_starts():
        pytest.skip("no browser that starts without a driver, to draw the picture with")
    path = tmp_path / "run.svg"
    sv.step_through(disguised()).export_svg(path, step=8)
    with watched(path) as page:
        assert page.evaluate("document.documentElement.localName") == "svg"
        assert page.locator("script, foreignObject, image, a, use").count() == 0
        attributes = page.evaluate(
            "[...document.querySelectorAll('*')].flatMap((each) => each.getAttributeNames())"
        )
        assert [name for name in attributes if name.startswith("on") or "href" in name] == []


def test_the_control_would_be_noticed(offline_page, tmp_path):
    """The same text where it is not escaped does run: so the checks above can fail."""
    with offline_page() as page:
        page.goto(bare(tmp_path, "<script>window.__pwned = 1</script>").as_uri())
        assert page.evaluate("window.__pwned") == 1
    assert record("eqspec").num_rounds > 1
