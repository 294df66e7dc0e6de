"""A separate JupyterLab for tests, and a notebook in it that is opened and run.

The JupyterLab has a free port, its own settings and its own files.
"""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Locator, Page

SETTINGS = {
    "notebook-extension/tracker": {
        "windowingMode": "none"
    },  # cells out of sight are on the page all the same
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
START_S, STOP_S = 60, 15
LEFT_ALONE_S = 900  # then it ends itself, should the tests have been killed
OPEN = """async (path) => {
  const app = window.jupyterapp;
  await app.restored;
  const panel = await app.commands.execute('docmanager:open', { path, factory: 'Notebook' });
  await Promise.all([panel.context.ready, panel.revealed]);
  app.shell.activateById(panel.id);
}"""
SESSION = "window.jupyterapp.shell.currentWidget.sessionContext"
RUN = """(command) => {
  window.ran = undefined;
  const running = window.jupyterapp.commands.execute(command);
  running.then((fine) => { window.ran = fine ?? true; }, () => { window.ran = false; });
}"""


@dataclass(frozen=True)
class Lab:
    url: str
    token: str
    root: Path  # what it serves


def write_notebook(path: Path, sources: Sequence[str]) -> None:
    """Write a notebook of code cells for the kernel that runs the tests."""
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    cells = [new_code_cell(source) for source in sources]
    nbformat.write(new_notebook(cells=cells, metadata=kernel), path)


@contextmanager
def start_lab(folder: Path) -> Iterator[Lab]:
    """A JupyterLab that keeps everything below `folder` and reads no settings of the user's."""
    root, settings = folder / "root", folder / "settings"
    root.mkdir()
    for name, value in SETTINGS.items():
        path = settings / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))
    own = {
        f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")
    }
    own |= {
        f"JUPYTERLAB_{name}_DIR": str(folder / name.lower()) for name in ("SETTINGS", "WORKSPACES")
    }
    lab = Lab(f"http://127.0.0.1:{_free_port()}", secrets.token_hex(16), root)
    log = folder / "server.log"
    with log.open("w") as out:
        environment = (
            os.environ
            | own
            | {"IPYTHONDIR": str(folder / "ipython"), "JUPYTER_PREFER_ENV_PATH": "1"}
            | {"OMP_NUM_THREADS": "1"}  # beside other tests, threads wait for each other
        )
        process = subprocess.Popen(
            _command(lab), env=environment, stdout=out, stderr=out, start_new_session=True
        )
        try:
            _await_start(lab, process, log)
            yield lab
        finally:
            _stop(process)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _command(lab: Lab) -> list[str]:
    port = lab.url.rpartition(":")[2]
    return [
        *(sys.executable, "-m", "jupyter", "lab", "--no-browser", "--ip=127.0.0.1"),
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={lab.token}",
        f"--ServerApp.root_dir={lab.root}",
        "--LabApp.expose_app_in_browser=True",
        "--LabApp.extension_manager=readonly",
        f"--ServerApp.shutdown_no_activity_timeout={LEFT_ALONE_S}",
        f"--MappingKernelManager.cull_idle_timeout={LEFT_ALONE_S}",
        *(["--allow-root"] if os.geteuid() == 0 else []),
    ]


def _await_start(lab: Lab, process: subprocess.Popen[bytes], log: Path) -> None:
    request = urllib.request.Request(
        f"{lab.url}/api/status", headers={"Authorization": f"token {lab.token}"}
    )
    deadline = time.monotonic() + START_S
    while True:
        try:
            urllib.request.urlopen(request, timeout=2).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"JupyterLab did not start: {log.read_text()[-3000:]}") from None
            time.sleep(0.1)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)  # once: it then ends its kernels itself
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Notebook:
    """A notebook on a page of JupyterLab."""

    def __init__(self, page: Page, lab: Lab) -> None:
        self.page, self.lab = page, lab

    def open(self, name: str) -> "Notebook":
        """One that lies in the lab's folder."""
        self.page.goto(f"{self.lab.url}/lab?token={self.lab.token}&reset")
        return self.show(name)

    def show(self, name: str) -> "Notebook":
        """Bring it to the front of a page that has been loaded, and wait for its kernel."""
        self.page.wait_for_function("window.jupyterapp !== undefined")
        self.page.evaluate(OPEN, name)
        self.page.wait_for_function(
            f"{SESSION}.session?.kernel?.status === 'idle'", timeout=1000 * START_S
        )
        return self

    def run_all(self, seconds: float = 60) -> bool:
        """Whether all cells ran without an error."""
        return self._run("notebook:run-all-cells", seconds)

    def run(self, cell: int) -> bool:
        self.page.evaluate(
            "(cell) => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = cell; }",
            cell,
        )
        return self._run("notebook:run-cell", 30)

    def _run(self, command: str, seconds: float) -> bool:
        self.page.evaluate(RUN, command)
        self.page.wait_for_function("window.ran !== undefined", timeout=1000 * seconds)
        return bool(self.page.evaluate("window.ran"))

    def command(self, name: str, **options: object) -> None:
        self.page.evaluate(
            "([name, options]) => window.jupyterapp.commands.execute(name, options)",
            [name, options],
        )

    def save(self) -> None:
        self.command("docmanager:save")

    def kernel(self) -> str:
        """Its id; "" without one."""
        return str(self.page.evaluate(f"{SESSION}.session?.kernel?.id ?? ''"))

    def shut_down(self) -> None:
        self.page.evaluate(f"async () => {{ await {SESSION}.shutdown(); }}")

    def sources(self) -> list[str]:
        """What stands in its cells."""
        return list(
            self.page.evaluate(
                "window.jupyterapp.shell.currentWidget.content.widgets"
                ".map((cell) => cell.model.sharedModel.source)"
            )
        )

    def output(self, cell: int) -> Locator:
        return self.page.locator(".jp-Notebook .jp-Cell").nth(cell).locator(".jp-OutputArea").first

    def error_outputs(self) -> list[str]:
        kinds = ("application/vnd.jupyter.stderr", "application/vnd.jupyter.error")
        return [
            text
            for kind in kinds
            for text in self.page.locator(
                f'.jp-RenderedText[data-mime-type="{kind}"]'
            ).all_inner_texts()
        ]
