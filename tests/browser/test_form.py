"""The form of `sv.lab()` in JupyterLab: progress, cancel, a kernel that ends."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

from browser.jupyter import SESSION, Notebook, write_notebook
from browser.stepper import Stepper

pytestmark = pytest.mark.browser
CELLS = ("import specviz as sv\nsv.lab(sv.load_pair(device='cpu'))", "print('free')")


@pytest.fixture
def notebook(offline_page, lab) -> Iterator[Notebook]:
    path = lab.root / "form.ipynb"
    write_notebook(path, CELLS)
    with offline_page() as page:
        opened = Notebook(page, lab).open(path.name)
        assert opened.run_all(), opened.error_outputs()
        yield opened
        opened.shut_down()


def form_of(notebook: Notebook) -> Locator:
    return notebook.output(0)


def press(notebook: Notebook, name: str) -> None:
    form_of(notebook).get_by_role("button", name=name).click()


def test_a_run_gives_way_to_the_page(notebook):
    """It says how far it is, other cells run meanwhile, and Cancel ends it."""
    form = form_of(notebook)
    status = form.get_by_role("status").first
    expect(form.get_by_role("button", name="Cancel")).to_be_disabled()
    form.get_by_label("new tokens a prompt").fill("128")
    form.get_by_label("new tokens a prompt").press("Tab")
    press(notebook, "Run")
    expect(status).to_contain_text("running inplace: ")
    press(notebook, "Cancel")
    expect(status).to_have_text("cancelled")
    expect(form.get_by_role("button", name="Run")).to_be_enabled()
    expect(form.locator(".specviz")).to_have_count(0)
    form.get_by_label("new tokens a prompt").fill("8")
    form.get_by_label("new tokens a prompt").press("Tab")
    press(notebook, "Run")
    Stepper(form.locator(".specviz")).wait()
    expect(status).to_have_text("")
    expect(notebook.output(0).locator("img.jp-needs-light-background")).to_have_count(1)
    check_table(form)


RIGHT = """(table) => [...table.tHead.rows[0].cells].map((head, n) => {
  const right = (cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    const box = range.getBoundingClientRect();
    return n ? box.right : box.left;
  };
  return Math.abs(right(head) - right(table.tBodies[0].rows[0].cells[n]));
})"""


def check_table(form: Locator) -> None:
    """Headers end where their columns end."""
    assert max(form.locator("table.specviz-lab").evaluate(RIGHT)) < 2


def test_an_interrupt_and_a_kernel_that_ends_are_said(notebook):
    form = form_of(notebook)
    status = form.get_by_role("status").first
    form.get_by_label("new tokens a prompt").fill("128")
    form.get_by_label("new tokens a prompt").press("Tab")
    press(notebook, "Run")
    expect(status).to_contain_text("running inplace: ")
    notebook.page.evaluate(f"async () => {{ await {SESSION}.session.kernel.interrupt(); }}")
    expect(status).to_have_text("interrupted")
    expect(form.get_by_role("button", name="Run")).to_be_enabled()
    notebook.shut_down()
    expect(status).to_contain_text("The kernel has ended")
