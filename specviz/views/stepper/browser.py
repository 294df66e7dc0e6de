"""A browser without a window, to turn a page into a picture: where one is, and what a page becomes in it.

Contract: `rendered` loads a page from a temporary file, in a profile of its own that is thrown away, and returns the text of one element.
It waits for the page's load event, so what the page makes of itself has to be done by then. Not known here: what the page is.
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
    "--headless", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--dump-dom",
)  # fmt: skip
_REMEDY = "install Chromium, or set BROWSER_PATH to a Chromium, Chrome or Edge"


def find_browser() -> str | None:
    """Path of a Chromium, Chrome or Edge: BROWSER_PATH, one on PATH, or the one that kaleido would take; None if there is none.

    Raises OSError where BROWSER_PATH names no program.
    """
    named = os.environ.get("BROWSER_PATH")
    if named is not None:
        if shutil.which(named) is None:
            raise OSError(
                f"BROWSER_PATH={named!r} is no program; set it to a Chromium, Chrome or Edge, or unset it"
            )
        return shutil.which(named)
    return next((path for name in _NAMES if (path := shutil.which(name))), None) or _of_kaleido()


def _of_kaleido() -> str | None:
    finder = get_module(
        "choreographer.browsers.chromium"
    )  # kaleido's own, if it is installed: knows where systems keep browsers
    return None if finder is None else finder.Chromium.find_browser(skip_local=False)


def rendered(page: str, element: str, *, scale: float = 1, timeout_s: float = 60) -> str:
    """The text of the <pre> whose id is `element`, once `page` (HTML) has been loaded. scale: device pixels for a CSS pixel.

    Raises OSError: there is no browser, or it does not start, takes too long, or makes no such element; the message says what to do.
    """
    browser = find_browser()
    if browser is None:
        raise OSError(f"a picture needs a browser, and none was found; {_REMEDY}")
    with tempfile.TemporaryDirectory(prefix="specviz-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "page.html"
        file.write_text(page, encoding="utf-8")
        settings = [f"--user-data-dir={folder}/profile", f"--force-device-scale-factor={scale:g}"]
        dom = _run([browser, *_FLAGS, *_unboxed(), *settings, file.as_uri()], timeout_s)
    found = re.search(f'<pre id="{re.escape(element)}"[^>]*>(.*?)</pre>', dom, re.DOTALL)
    if found is None:
        raise OSError(f"{browser} drew nothing; {_REMEDY}, of a newer version")
    return html.unescape(found[1])


def _unboxed() -> list[str]:
    """Chromium's sandbox refuses to start as root, as in most containers."""
    return ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []


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
        said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1:]
        raise OSError(f"{command[0]} cannot be run ({' '.join(said)[:200]}); {_REMEDY}") from error
    return done.stdout


@cache
def browser_starts() -> bool:
    """Whether pictures can be had here; asked once."""
    try:
        return rendered('<!DOCTYPE html><pre id="ready">yes</pre>', "ready") == "yes"
    except OSError:
        return False
