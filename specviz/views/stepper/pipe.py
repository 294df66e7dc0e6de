"""One Chromium for all pictures of a process, spoken to through a pair of pipes.

Contract: `Chromium` starts a browser without a window and loads pages in it, one at a time. The
browser ends when the pipes close, so also when this process is killed. Messages are those of the
DevTools protocol, JSON between NUL bytes. Not known here: what the pages are.
"""

import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]
_CHUNK = 1 << 16
_END_S = 5  # that a browser may take to end by itself
# The browser reads from descriptor 3 and writes to 4. The numbers of our pipes are others; a
# program in between gives them those, before it becomes the browser.
_STARTER = """
import os, sys
there, back = int(sys.argv[1]), int(sys.argv[2])
high = [os.dup(there), os.dup(back)]
while min(high) < 5:
    high = [os.dup(each) for each in high]
os.dup2(high[0], 3)
os.dup2(high[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class BrowserGoneError(Exception):
    """The browser has ended, or did not start."""


class Chromium:
    """A running browser. One thread may use it at a time."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start it. command: the program and its flags.

        Raises BrowserGoneError where there are no pipes of this kind.
        """
        if os.name != "posix" or not sys.executable:
            raise BrowserGoneError("a running browser needs POSIX pipes and a Python executable")
        self._owner = os.getpid()
        self._folder = tempfile.mkdtemp(prefix="specviz-")
        self._number = 0
        self._rest = b""
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        flags = ["--remote-debugging-pipe", f"--user-data-dir={self._folder}/profile"]
        starter = [sys.executable, "-I", "-S", "-c", _STARTER, str(to_read), str(to_write)]
        try:
            self._process = subprocess.Popen(
                [*starter, *command, *flags, "about:blank"],
                pass_fds=(to_read, to_write),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt is meant for us
            )
        finally:
            os.close(to_read)
            os.close(to_write)
        os.set_blocking(self._read, False)

    def text_of(self, address: str, element: str, scale: float, timeout_s: float) -> str | None:
        """Load a page and return the text of an element, None where there is none.

        Args:
            address: of the page.
            element: its id.
            scale: device pixels for a CSS pixel.
            timeout_s: after how many seconds to give up.

        Raises:
            TimeoutError: the page takes longer.
            BrowserGoneError: the browser has ended.
        """
        deadline = time.monotonic() + timeout_s
        target = self._ask("Target.createTarget", {"url": "about:blank"}, deadline)["targetId"]
        attached = {"targetId": target, "flatten": True}
        session = self._ask("Target.attachToTarget", attached, deadline)["sessionId"]
        pixels = {"width": 0, "height": 0, "deviceScaleFactor": scale, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", pixels, deadline, session)
        self._ask("Page.enable", {}, deadline, session)
        self._ask("Page.navigate", {"url": address}, deadline, session)
        self._await(deadline, lambda each: _is_loaded(each, session))
        wanted = f"document.getElementById({json.dumps(element)})?.textContent"
        found = self._ask("Runtime.evaluate", {"expression": wanted}, deadline, session)
        self._ask("Target.closeTarget", {"targetId": target}, deadline)
        text = found["result"].get("value")
        return text if isinstance(text, str) else None

    @property
    def usable(self) -> bool:
        """Whether it runs and belongs to this process, not to one that this one was forked from."""
        return self._owner == os.getpid() and self._process.poll() is None

    def close(self, *, at_once: bool = False) -> None:
        """End the browser and delete its profile; a forked process leaves both alone.

        at_once: because it hangs.
        """
        if self._owner != os.getpid():
            return
        if at_once:
            self._process.kill()
        for pipe in (self._write, self._read):
            os.close(pipe)
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ask(self, method: str, params: Json, deadline: float, session: str = "") -> Json:
        self._number += 1
        number = self._number
        message: Json = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        try:
            os.write(self._write, json.dumps(message).encode() + b"\0")
        except OSError as error:
            raise BrowserGoneError(str(error)) from error
        answer = self._await(deadline, lambda each: each.get("id") == number)
        if "error" in answer:
            raise BrowserGoneError(f"{method}: {answer['error'].get('message', '')}")
        result: Json = answer["result"]
        return result

    def _await(self, deadline: float, wanted: Any) -> Json:
        while True:
            message = self._next(deadline)
            if wanted(message):
                return message

    def _next(self, deadline: float) -> Json:
        while b"\0" not in self._rest:
            self._rest += self._receive(deadline)
        first, _, self._rest = self._rest.partition(b"\0")
        message: Json = json.loads(first)
        return message

    def _receive(self, deadline: float) -> bytes:
        with selectors.DefaultSelector() as selector:
            selector.register(self._read, selectors.EVENT_READ)
            if not selector.select(max(deadline - time.monotonic(), 0)):
                raise TimeoutError
        part = os.read(self._read, _CHUNK)
        if not part:
            raise BrowserGoneError("it has ended")
        return part


def _is_loaded(message: Json, session: str) -> bool:
    return message.get("method") == "Page.loadEventFired" and message.get("sessionId") == session
