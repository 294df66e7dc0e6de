"""16_debug in a real JupyterLab without a network: it runs, and its step-throughs show the faults.

The page says where to look: at a stale token, at lost K/V, at a mask that reaches too far.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from browser.jupyter import Notebook
from browser.stepper import Stepper
from browser.test_page import THEMES, check_layout

pytestmark = pytest.mark.browser
SOURCE = Path(__file__).parents[2] / "notebooks" / "16_debug.ipynb"
# Slots that the pending token sees and should not, in the order of the notebook's pictures: a stale
# token, lost K/V, the first draft, and what is left of another request.
LEAKS = ("14", "24–37", "38", "27–40, 42–44")


def cells_with(text: str) -> list[int]:
    """Return the numbers of the code cells whose source has this text."""
    cells = nbformat.read(SOURCE, as_version=4).cells
    return [i for i, cell in enumerate(cells) if cell.cell_type == "code" and text in cell.source]


def pictures() -> list[int]:
    """Return the numbers of the cells that show a step-through."""
    cells = nbformat.read(SOURCE, as_version=4).cells
    view = "application/vnd.jupyter.widget-view+json"
    return [
        i
        for i, cell in enumerate(cells)
        if any(view in output.get("data", {}) for output in cell.get("outputs", []))
    ]


@pytest.fixture(scope="module")
def notebook(offline_page, lab) -> Iterator[Notebook]:
    folder = lab.root / "debug"
    folder.mkdir()
    shutil.copy(SOURCE, folder)
    shutil.copytree(SOURCE.parent / "checks", folder / "checks")
    with offline_page() as page:
        opened = Notebook(page, lab).open(f"debug/{SOURCE.name}")
        assert opened.run_all(seconds=480), opened.error_outputs()
        yield opened
        opened.shut_down()


def stepper(notebook: Notebook, cell: int) -> Stepper:
    return Stepper(notebook.output(cell).locator(".specviz")).wait()


def test_it_runs_without_a_message(notebook):
    assert notebook.error_outputs() == []


@pytest.mark.parametrize("number", range(len(LEAKS)))
def test_a_step_through_opens_at_the_fault(notebook, number):
    assert len(pictures()) == len(LEAKS)
    head, pending, *_ = stepper(notebook, pictures()[number]).table("mask")
    assert pending[head.index("leaks")] == LEAKS[number]


def test_sources_are_on_the_page(notebook):
    for cell in cells_with("shown("):
        assert "def decode(" in notebook.output(cell).inner_text()


@pytest.mark.parametrize("theme", THEMES)
def test_nothing_is_covered(notebook, theme):
    notebook.command("apputils:change-theme", theme=f"JupyterLab {theme.title()}")
    view = stepper(notebook, pictures()[1])
    view.frame()
    check_layout(view)
    # Highlighted code scrolls inside its own box, and the page does not become wider than it is.
    fits = "(box) => box.scrollWidth <= box.clientWidth + 1"
    for cell in cells_with("shown("):
        assert notebook.output(cell).evaluate(fits)
