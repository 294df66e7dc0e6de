"""The line that is dragged through the scores of a round, in JupyterLab."""

import pytest
from playwright.sync_api import Locator, expect

from browser.jupyter import Notebook, write_notebook

pytestmark = pytest.mark.browser
CELLS = (
    "from specviz.views import charts\n"
    "from specviz.views.charts.capacity import capacity_line\n"
    "from specviz.views.charts.sliders import explore\n"
    "scores = [[0.9, 0.72, 0.36], [0.6, 0.54, 0.48]]\n"
    "def draw(C):\n    return charts.score_map(scores, [min(C, 3), max(C - 3, 0)])",
    "explore(draw, 'a chart', C=capacity_line(scores, 2))",
)


def drag(line: Locator, to: float) -> None:
    """Drag from the middle to a share of the width."""
    box = line.bounding_box()
    mouse = line.page.mouse
    mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    mouse.down()
    mouse.move(box["x"] + box["width"] * to, box["y"] + 60, steps=4)
    mouse.up()


def test_the_line_follows_the_pointer_and_the_keys(offline_page, lab):
    path = lab.root / "line.ipynb"
    write_notebook(path, CELLS)
    with offline_page() as page:
        notebook = Notebook(page, lab).open(path.name)
        assert notebook.run_all(), notebook.error_outputs()
        output = notebook.output(1)
        line = output.get_by_role("slider", name="capacity", exact=True)
        expect(line).to_have_attribute("aria-valuenow", "2")
        drag(line, to=0.84)
        expect(line).to_have_attribute("aria-valuenow", "5")
        expect(output.get_by_text("5 of 6 drafts are verified")).to_be_visible()
        line.press("ArrowLeft")
        expect(line).to_have_attribute("aria-valuenow", "4")
        expect(output.get_by_text("4 of 6 drafts are verified")).to_be_visible()
        said = "the scores left of the line add up to 2.76; the next is 0.48, draft 3 of row 1."
        expect(line).to_have_attribute("aria-valuetext", f"C = 4: {said}")
        drag(line, to=-1)
        expect(line).to_have_attribute("aria-valuenow", "1")
        notebook.shut_down()
