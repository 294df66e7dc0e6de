"""One browser draws all pictures of a process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import skip_without

from specviz.views.stepper import browser
from specviz.views.stepper.pipe import BrowserGoneError, Chromium

PAGE = '<!DOCTYPE html><meta charset="utf-8"><pre id="here">{}</pre>'

pytestmark = pytest.mark.skipif(os.name != "posix", reason="browsers are kept on POSIX only")


@pytest.fixture(scope="module")
def kept():
    if not browser.browser_starts():
        skip_without("a browser")
    if browser._KEPT._chromium is None:
        pytest.skip("this browser takes no pipes, so that one is started for each picture")
    return browser._KEPT


def draw(text: str) -> str:
    return browser.rendered(PAGE.format(text), "here")


def process_of(kept) -> int:
    return kept._chromium._process.pid


@pytest.mark.programs
def test_pictures_share_a_browser(kept):
    assert draw("one") == "one"
    process = process_of(kept)
    assert draw("zwölf ✓") == "zwölf ✓"
    assert process_of(kept) == process


@pytest.mark.programs
def test_a_browser_that_was_ended_is_started_again(kept):
    draw("one")
    process = process_of(kept)
    os.killpg(process, signal.SIGKILL)
    assert draw("two") == "two"
    assert process_of(kept) != process


@pytest.mark.programs
def test_pages_have_the_pixels_that_were_asked_for(kept):
    page = PAGE.format("") + "<script>here.textContent = devicePixelRatio</script>"
    for scale in ("2", "1.5", "1"):
        assert browser.rendered(page, "here", scale=float(scale)) == scale


@pytest.mark.programs
def test_a_page_that_takes_too_long_is_given_up(kept):
    page = PAGE.format("") + "<script>for (;;);</script>"
    with pytest.raises(OSError, match=r"did not answer within 0\.5 s"):
        browser.rendered(page, "here", timeout_s=0.5)
    assert draw("next") == "next"


def test_a_program_that_is_no_browser_is_gone():
    chromium = Chromium(["/bin/false"])
    with pytest.raises(BrowserGoneError):
        chromium.text_of("about:blank", "here", 1, 10)
    chromium.close()


@pytest.mark.programs
def test_the_browser_ends_with_the_process(kept):
    """Also where the process is killed, and no code of it runs any more."""
    code = (
        "from specviz.views.stepper import browser\n"
        "assert browser.browser_starts()\n"
        "print(browser._KEPT._chromium._process.pid, flush=True)\n"
        "input()\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True
    ) as child:
        process = int(child.stdout.readline())
        assert is_alive(process)
        child.kill()
    for _ in range(100):
        if not is_alive(process):
            return
        time.sleep(0.1)
    pytest.fail("the browser outlives the process that started it")


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{process}/stat")  # of a process that has ended, but was not waited for
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
