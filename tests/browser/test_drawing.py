"""A tree that is drawn from recorded drafts, in a real JupyterLab: by keys and by clicks."""

import itertools
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

import specviz as sv
from browser.jupyter import Notebook
from browser.test_lab import write_notebook

pytestmark = pytest.mark.browser
PATHS = [path for depth in (1, 2) for path in itertools.product(range(3), repeat=depth)]
CELLS = (
    "import specviz as sv\n"
    "from specviz.views.charts.drawing import draw_tree\n"
    "trace = sv.Trace.load('branches.safetensors')",
    "drawing = draw_tree(trace, most=3, start=[(0,)])\ndrawing",
    "print(drawing.paths)",
)
DRAWING, PATHS_CELL = 1, 2


@pytest.fixture(scope="module")
def notebook(offline_page, lab) -> Iterator[Notebook]:
    trace = sv.generate(
        sv.load_pair(device="cpu"),
        sv.load_prompts(limit=2),
        drafter=sv.drafter("static_tree", paths=PATHS),
        num_draft_tokens=len(PATHS),
        batch_size=2,
        max_new_tokens=4,
        record=True,
        progress=False,
    ).trace
    assert trace is not None
    trace.save(lab.root / "branches.safetensors")
    write_notebook(lab.root / "drawing.ipynb", CELLS)
    with offline_page() as page:
        opened = Notebook(page, lab).open("drawing.ipynb")
        assert opened.run_all(), opened.error_outputs()
        yield opened
        opened.shut_down()


def buttons(notebook: Notebook) -> Locator:
    return notebook.output(DRAWING).locator("button.widget-toggle-button")


def heading(notebook: Notebook) -> Locator:
    """The line of the chart that counts the drafts."""
    texts = notebook.output(DRAWING).locator(".js-plotly-plot .textpoint")
    return texts.filter(has_text=re.compile(r"\d drafts? "))


def test_a_tree_is_drawn_by_keys_and_clicks(notebook):
    """Three drafts for each pressed one that has any; the last button shows what is accepted."""
    found = buttons(notebook)
    expect(found).to_have_count(3 + 3 + 1)
    expect(heading(notebook)).to_have_text("1 draft on 1 branch")

    second = found.nth(1)
    second.focus()
    notebook.page.keyboard.press("Space")
    expect(second).to_have_class(re.compile("mod-active"))
    expect(found).to_have_count(3 + 6 + 1)
    expect(second).to_be_focused()
    expect(heading(notebook)).to_have_text("2 drafts on 2 branches")

    found.nth(6).click()  # the first one after the second
    expect(heading(notebook)).to_have_text("3 drafts on 2 branches")
    expect(found.nth(2)).to_be_disabled()
    notebook.run(PATHS_CELL)
    expect(notebook.output(PATHS_CELL)).to_have_text("[(0,), (1,), (1, 0)]")

    found.last.click()
    expect(heading(notebook)).to_contain_text("accepted: the row gains")
    second.focus()
    notebook.page.keyboard.press("Space")
    expect(found).to_have_count(3 + 3 + 1)
    expect(heading(notebook)).to_contain_text("of 1 draft accepted")
    assert notebook.error_outputs() == []
