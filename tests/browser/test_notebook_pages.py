"""Stored notebooks as a plain page shows them: nothing is wider than the window, and no
picture is missing.

The page has no style of its own, so long lines of output do not wrap and wide tables do not scroll.
That is the least that a code host does. Nothing is run.
"""

from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from playwright.sync_api import Page

from browser.conftest import OpenPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]
FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
WINDOW = {"width": 1040, "height": 900}
WIDTH = "document.documentElement.scrollWidth"
BROKEN = "[...document.images].filter((each) => !each.naturalWidth).map((each) => each.alt)"


def show(page: Page, notebook: NotebookNode, folder: Path) -> None:
    """Open the notebook as HTML; its links lead from the folder of notebooks."""
    body, _ = HTMLExporter(template_name="basic").from_notebook_node(notebook)
    head = f'<meta charset="utf-8"><base href="{FOLDER.as_uri()}/">'
    path = folder / "page.html"
    path.write_text(f"<!DOCTYPE html><html><head>{head}</head><body>{body}</body></html>", "utf-8")
    page.goto(path.as_uri())


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_page_is_no_wider_than_its_window(offline_page: OpenPage, path: Path, tmp_path: Path):
    with offline_page(viewport=WINDOW) as page:
        show(page, nbformat.read(path, as_version=4), tmp_path)
        assert page.evaluate(WIDTH) <= WINDOW["width"]
        assert page.evaluate(BROKEN) == []


def test_a_long_line_and_a_missing_picture_are_found(offline_page: OpenPage, tmp_path: Path):
    output = new_output("stream", text="word " * 40 + "\n")
    code = new_code_cell("print('word ' * 40)", execution_count=1, outputs=[output])
    picture = new_markdown_cell("![not there](../figures/none.svg)")
    with offline_page(viewport=WINDOW) as page:
        show(page, new_notebook(cells=[code, picture]), tmp_path)
        assert page.evaluate(WIDTH) > WINDOW["width"]
        assert page.evaluate(BROKEN) == ["not there"]
