"""A browser without a window, to turn a page into a picture.

Contract: `rendered` loads a page from a temporary file and returns the text of one element. It
waits for the page's load event, so the page must be done by then. The browser has a profile of its
own. It stays open until the process ends, because starting one takes seconds on a busy machine.
Where it cannot be kept (Windows, other browsers), one is started for each picture. Not known here:
what the page is.
"""

import atexit
import html
import os
import re
import shutil
import subprocess
import tempfile
import threading
from functools import cache
from pathlib import Path

from plotly.optional_imports import get_module

from specviz.views.stepper.pipe import BrowserGoneError, Chromium

_NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "msedge",
    "microsoft-edge",
)
_FLAGS = (
    "--headless",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-extensions",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
)
_DUMP = "--dump-dom"  # prints the page as it is after its load event
_REMEDY = "install Chromium, or set BROWSER_PATH to a Chromium, Chrome or Edge"


def find_browser() -> str | None:
    """Return the path of a Chromium, Chrome or Edge, None if there is none.

    Taken is BROWSER_PATH, else a browser on PATH, else the one that kaleido would take.

    Raises:
        OSError: BROWSER_PATH names no program.
    """
    given = os.environ.get("BROWSER_PATH")
    if given is not None:
        if shutil.which(given) is None:
            raise OSError(
                f"BROWSER_PATH must be the path of a program, got {given!r}; "
                "set it to a Chromium, Chrome or Edge, or unset it"
            )
        return shutil.which(given)
    for name in _NAMES:
        path = shutil.which(name)
        if path is not None:
            return path
    return _browser_of_kaleido()


def _browser_of_kaleido() -> str | None:
    # Kaleido's own finder, if it is installed, knows where systems keep browsers.
    finder = get_module("choreographer.browsers.chromium")
    return None if finder is None else finder.Chromium.find_browser(skip_local=False)


def check_browser() -> None:
    """Raise OSError if there is no browser to draw with."""
    if find_browser() is None:
        raise OSError(f"no Chromium, Chrome or Edge was found to draw with; {_REMEDY}")


def rendered(page: str, element: str, *, scale: float = 1, timeout_s: float = 60) -> str:
    """Return the text of the <pre> whose id is `element`, once `page` (HTML) has been loaded.

    Args:
        page: HTML.
        element: id of the <pre>.
        scale: device pixels for a CSS pixel.
        timeout_s: after how many seconds to give up.

    Raises:
        OSError: there is no browser, or it does not start, takes too long, or makes no such
            element; the message says what to do.
    """
    browser = _found_browser()
    with tempfile.TemporaryDirectory(prefix="specviz-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "page.html"
        file.write_text(page, encoding="utf-8")
        command = (browser, *_FLAGS, *_sandbox_flags())
        try:
            text = _KEPT.text_of(command, file.as_uri(), element, scale, timeout_s)
        except TimeoutError as error:
            raise _too_slow(browser, timeout_s) from error
        if text is not None:
            return text
        settings = [f"--user-data-dir={folder}/profile", f"--force-device-scale-factor={scale:g}"]
        # A profile of its own: one that another browser has open would not start.
        dom = _run([*command, _DUMP, *settings, file.as_uri()], timeout_s)
    found = re.search(f'<pre id="{re.escape(element)}"[^>]*>(.*?)</pre>', dom, re.DOTALL)
    if found is None:
        raise OSError(f"{browser} drew nothing; {_REMEDY}, of a newer version")
    return html.unescape(found[1])


def printed(page: str, *, timeout_s: float = 60) -> bytes:
    """Return `page` (HTML) as a PDF. Raises OSError as `rendered` does."""
    browser = _found_browser()
    with tempfile.TemporaryDirectory(prefix="specviz-", ignore_cleanup_errors=True) as folder:
        source, file = Path(folder) / "page.html", Path(folder) / "page.pdf"
        source.write_text(page, encoding="utf-8")
        settings = ["--no-pdf-header-footer", f"--print-to-pdf={file}"]
        settings.append(f"--user-data-dir={folder}/profile")
        _run([browser, *_FLAGS, *_sandbox_flags(), *settings, source.as_uri()], timeout_s)
        if not file.exists():
            raise OSError(f"{browser} printed nothing; {_REMEDY}, of a newer version")
        return file.read_bytes()


def _found_browser() -> str:
    browser = find_browser()
    if browser is None:
        raise OSError(f"a picture needs a browser, and none was found; {_REMEDY}")
    return browser


def _sandbox_flags() -> list[str]:
    # Chromium's sandbox refuses to start as root, as in most containers.
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    return ["--no-sandbox"] if is_root else []


def _run(command: list[str], timeout_s: float) -> str:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            check=True,
        )
    except subprocess.TimeoutExpired as error:
        raise _too_slow(command[0], timeout_s) from error
    except (OSError, subprocess.CalledProcessError) as error:
        message = getattr(error, "stderr", "") or str(error)
        last_line = " ".join(message.strip().splitlines()[-1:])[:200]
        raise OSError(f"{command[0]} cannot be run ({last_line}); {_REMEDY}") from error
    return done.stdout


def _too_slow(browser: str, timeout_s: float) -> OSError:
    return OSError(f"{browser} did not answer within {timeout_s:g} s; {_REMEDY}")


class _Kept:
    """The browser that stays open, if there is one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._command: tuple[str, ...] = ()
        self._chromium: Chromium | None = None
        self._refused: set[tuple[str, ...]] = set()

    def text_of(
        self, command: tuple[str, ...], address: str, element: str, scale: float, timeout_s: float
    ) -> str | None:
        """Return the text of an element of a page; None if no browser can be kept or it has none.

        Raises TimeoutError if the browser does not answer in time.
        """
        with self._lock:
            for _ in range(2):  # again if the browser was ended since the last picture
                if command in self._refused:
                    return None
                kept = self._chromium is not None
                try:
                    return self._started(command).text_of(address, element, scale, timeout_s)
                except BrowserGoneError:
                    self.close()
                    if not kept:
                        self._refused.add(command)
                except BaseException:  # a page that hangs, or an interrupt
                    self.close(at_once=True)
                    raise
            return None

    def _started(self, command: tuple[str, ...]) -> Chromium:
        if self._chromium is not None and (command != self._command or not self._chromium.usable):
            self.close()
        if self._chromium is None:
            self._chromium = Chromium(command)
            self._command = command
        return self._chromium

    def close(self, *, at_once: bool = False) -> None:
        if self._chromium is not None:
            self._chromium.close(at_once=at_once)
        self._chromium = None


_KEPT = _Kept()
atexit.register(_KEPT.close)


@cache
def browser_starts() -> bool:
    """Return whether pictures can be drawn here; tried once."""
    try:
        return rendered('<!DOCTYPE html><pre id="ready">yes</pre>', "ready") == "yes"
    except OSError:
        return False
