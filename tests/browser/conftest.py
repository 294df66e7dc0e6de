"""Fixtures for the tests in this folder: a browser, a JupyterLab and pages.

The browser and JupyterLab start when the first test needs them.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

import specviz as sv
from browser.chromium import Log, open_page, start_browser
from browser.jupyter import Lab, start_lab
from browser.stepper import Stepper
from specviz.record.trace import Trace
from specviz.views.stepper.browser import find_browser

REQUIRED = ("CI", "SPECVIZ_REQUIRE_BROWSER")


def browser_path() -> str:
    """Return the path of the browser to use.

    Without a browser, skip the test; fail it instead if one of the variables REQUIRED is set.
    """
    path = find_browser()
    if path is None:
        asked = [name for name in REQUIRED if os.environ.get(name)]
        reason = "no Chromium, Chrome or Edge was found; install Chromium or set BROWSER_PATH"
        pytest.fail(f"{reason} ({asked[0]} is set)") if asked else pytest.skip(reason)
    return path


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with start_browser(browser_path()) as browser:
        yield browser


@pytest.fixture(scope="package")
def lab(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with start_lab(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


OpenPage = Callable[..., AbstractContextManager[Page]]


@pytest.fixture(scope="package")
def offline_page(browser: Browser) -> OpenPage:
    """Open a page in a fresh profile.

    Once it is closed, no script may have failed, and no request may have gone to another machine.
    """

    @contextmanager
    def opened(**options: object) -> Iterator[Page]:
        with open_page(browser, **options) as (page, log):
            yield page
            assert log == Log()

    return opened


@pytest.fixture
def saved_page(offline_page: OpenPage, tmp_path: Path) -> Iterator[Callable[..., Stepper]]:
    """Export one or two runs and open the file.

    Call it as `saved_page(trace, other=None, judge=True, **options of the profile)`. The page opens
    at the first step.
    """
    with ExitStack() as pages:

        def go(
            trace: Trace, other: Trace | None = None, *, judge: bool = True, **options: object
        ) -> Stepper:
            path = tmp_path / "run.html"
            sv.step_through(trace, other=other, judge=judge, round=0).export_html(path)
            page = pages.enter_context(offline_page(**options))
            page.goto(path.as_uri())
            return Stepper(page.locator(".specviz")).wait()

        yield go
