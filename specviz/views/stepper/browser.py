"""A browser without a window, to turn a page into a picture.

Contract: `rendered` loads a page from a temporary file, in a profile of its own that is deleted
afterwards, and returns the text of one element. It waits for the page's load event, so the page
must be done by then. Not known here: what the page is.
"""

import html
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from plotly.optional_imports import get_module

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
    # The page as it is after its load event.
    browser, dom = _loaded(
        page, ["--dump-dom", f"--force-device-scale-factor={scale:g}"], timeout_s
    )
    found = re.search(f'<pre id="{re.escape(element)}"[^>]*>(.*?)</pre>', dom, re.DOTALL)
    if found is None:
        raise OSError(f"{browser} drew nothing; {_REMEDY}, of a newer version")
    return html.unescape(found[1])


def printed(page: str, *, timeout_s: float = 60) -> bytes:
    """Return `page` (HTML) as a PDF. Raises OSError as `rendered` does."""
    with tempfile.TemporaryDirectory(prefix="specviz-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "page.pdf"
        browser, _ = _loaded(page, ["--no-pdf-header-footer", f"--print-to-pdf={file}"], timeout_s)
        if not file.exists():
            raise OSError(f"{browser} printed nothing; {_REMEDY}, of a newer version")
        return file.read_bytes()


def _loaded(page: str, settings: list[str], timeout_s: float) -> tuple[str, str]:
    """Load a page; return the browser's path and what it writes."""
    browser = find_browser()
    if browser is None:
        raise OSError(f"a picture needs a browser, and none was found; {_REMEDY}")
    with tempfile.TemporaryDirectory(prefix="specviz-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "page.html"
        file.write_text(page, encoding="utf-8")
        # A profile of its own: one that another browser has open would not start.
        profile = f"--user-data-dir={folder}/profile"
        command = [browser, *_FLAGS, *_sandbox_flags(), profile, *settings, file.as_uri()]
        return browser, _run(command, timeout_s)


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
        raise OSError(f"{command[0]} did not answer within {timeout_s:g} s; {_REMEDY}") from error
    except (OSError, subprocess.CalledProcessError) as error:
        message = getattr(error, "stderr", "") or str(error)
        last_line = " ".join(message.strip().splitlines()[-1:])[:200]
        raise OSError(f"{command[0]} cannot be run ({last_line}); {_REMEDY}") from error
    return done.stdout


@cache
def browser_starts() -> bool:
    """Return whether pictures can be drawn here; tried once."""
    try:
        return rendered('<!DOCTYPE html><pre id="ready">yes</pre>', "ready") == "yes"
    except OSError:
        return False
