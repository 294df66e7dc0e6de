"""The Chromium of this machine, with no way to the network but loopback."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

WINDOW = {"width": 1400, "height": 1000}
FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
ELSEWHERE = re.compile(r"^(?!(https?|wss?)://127\.0\.0\.1:|data:|blob:|file:)")


@contextmanager
def start_browser(path: str) -> Iterator[Browser]:
    """Start a headless browser and close it at the end.

    It has no sandbox, because root and containers cannot have one. It opens only the project's
    own pages.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@dataclass(frozen=True)
class Log:
    """What a page did that it should not.

    That is: addresses on other machines that it requested, errors of its scripts, and dialogs
    that it opened.
    """

    asked: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)


@contextmanager
def open_page(browser: Browser, **options: Any) -> Iterator[tuple[Page, Log]]:
    """Open a page in a fresh profile; `options` are those of a Playwright context.

    Requests to any other machine fail.
    """
    log = Log()
    context = browser.new_context(service_workers="block", **{"viewport": WINDOW, **options})
    context.set_default_timeout(60_000)
    expect.set_options(timeout=60_000)  # a limit for what hangs; a busy machine is only slow
    context.route(ELSEWHERE, lambda route: (log.asked.append(route.request.url), route.abort()))
    page = context.new_page()
    page.on("pageerror", lambda error: log.errors.append(error.stack or str(error)))
    page.on("dialog", lambda dialog: (log.dialogs.append(dialog.message), dialog.dismiss()))
    page.on(
        "websocket",
        lambda opened: log.asked.append(opened.url) if ELSEWHERE.match(opened.url) else None,
    )
    yield page, log
    context.close()
