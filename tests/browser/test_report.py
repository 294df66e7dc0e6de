"""The report of a benchmark, opened from disk in both themes.

Its charts are drawn, and the page loads and runs nothing but its own content.
"""

from pathlib import Path

import pytest
from bench_rows import HOSTILE, sample
from playwright.sync_api import expect

from specviz.bench import make_table
from specviz.bench.report import save_report
from specviz.bench.table import conditions

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
