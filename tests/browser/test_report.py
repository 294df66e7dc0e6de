"""The reports of a benchmark and of an audit, opened from disk in both themes.

Charts are drawn, and the pages load and run nothing but their own content.
"""

from pathlib import Path

import pytest
from bench_rows import HOSTILE, sample
from playwright.sync_api import expect

import specviz as sv
from specviz.bench import make_table
from specviz.bench.report import save_report
from specviz.bench.table import conditions
from specviz.views.audit_page import save_audit

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_report_opens_and_draws(offline_page, tmp_path: Path, theme: str) -> None:
    path = save_report(
        make_table(sample()), conditions(sample(), note=HOSTILE), tmp_path / "bench.html"
    )
    with offline_page(color_scheme=theme) as page:
        page.goto(path.as_uri())
        expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()
        assert page.locator(".js-plotly-plot").count() == 3
        expect(page.get_by_text(HOSTILE).first).to_be_visible()
        ink = page.locator(".js-plotly-plot text tspan").first.evaluate(
            "text => getComputedStyle(text).fill"
        )
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness = [
            sum(map(int, colour.removeprefix("rgb(").removesuffix(")").split(", ")))
            for colour in (ink, paper)
        ]
        assert (brightness[0] < brightness[1]) == (theme == "light")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_of_an_audit_opens_and_draws(offline_page, tmp_path: Path, theme: str) -> None:
    places = [[[3, -0.1], [4, -3.0]]] * 40
    reference = {"prompt": HOSTILE, "token_ids": [3] * 41, "top_logprobs": [*places, [[3, -0.1]]]}
    candidate = {"prompt": HOSTILE, "token_ids": [3] * 40 + [4], "top_logprobs": [*places, []]}
    path = save_audit(sv.audit([reference], [candidate]), tmp_path / "audit.html")
    with offline_page(color_scheme=theme) as page:
        page.goto(path.as_uri())
        expect(page.get_by_text("1 unexplained divergence in 1 text,").first).to_be_visible()
        mark = page.locator("svg path").first
        expect(mark).to_be_visible()
        label = page.locator("svg text").first
        ink = label.evaluate("text => getComputedStyle(text).fill")
        assert ink == page.evaluate("getComputedStyle(document.body).color")
