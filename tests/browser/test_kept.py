"""What a notebook that was saved by hand shows once its kernel is gone."""

import base64
import io
from pathlib import Path

import nbformat
import pytest
from PIL import Image
from playwright.sync_api import expect

from browser.jupyter import Notebook, write_notebook
from browser.runs import record
from browser.stepper import Stepper

pytestmark = pytest.mark.browser
CELLS = (
    "import specviz as sv\nfrom specviz.views import charts\n"
    "from specviz.views.charts.sliders import explore\n"
    "from specviz.views.charts.plot import line_chart\n"
    "run = sv.Trace.load('kept.safetensors')",
    "charts.show(charts.acceptance_map(run), 'a map')",
    "sv.step_through(run, round=0)",
    "def draw(n):\n    return line_chart({'a': ([1, 2], [n, 2])}, title=f'n = {n}', x='x', y='y')\n"
    "explore(draw, 'a line', n=[1, 2])",
    "sv.step_through(run, round=0).embed()",
)
CHART, STEPS, SLIDERS, PAGE = 1, 2, 3, 4  # cells with an output
# JupyterLab's own picture of a chart, which comes first, is as wide as the page.
HAS_OWN_PICTURE = """(cell) => {
  const { model } = window.jupyterapp.shell.currentWidget.context;
  const { data } = model.toJSON().cells[cell].outputs[0];
  const { layout } = data['application/vnd.plotly.v1+json'];
  const header = atob((data['image/png'] ?? '').slice(0, 32));
  const width = 256 * header.charCodeAt(18) + header.charCodeAt(19);
  return width === layout.width;
}"""


@pytest.fixture(scope="module")
def saved(offline_page, lab) -> Path:
    """A notebook that was run, stepped through, saved, and whose kernel was shut down."""
    record("eqspec").save(lab.root / "kept.safetensors")
    path = lab.root / "kept.ipynb"
    write_notebook(path, CELLS)
    with offline_page() as page:
        notebook = Notebook(page, lab).open(path.name)
        assert notebook.run_all(), notebook.error_outputs()
        stepper = Stepper(notebook.output(STEPS).locator(".specviz")).wait()
        picture = notebook.output(STEPS).locator("img")
        expect(picture).to_have_count(1)
        first = picture.get_attribute("src")
        stepper.go(8, row=2)
        expect(picture).not_to_have_attribute("src", first)
        expect(picture).to_be_hidden()
        sliders = notebook.output(SLIDERS).locator("img.jp-needs-light-background")
        expect(sliders).to_have_count(1)
        expect(sliders).to_be_hidden()
        slider = notebook.output(SLIDERS).get_by_role("slider", name="n", exact=True)
        expect(slider).to_have_attribute("aria-valuetext", "1")
        slider.press("ArrowRight")
        expect(notebook.output(SLIDERS).locator(".gtitle")).to_have_text("n = 2")
        page.wait_for_function(HAS_OWN_PICTURE, arg=CHART)
        notebook.save()
        page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")
        notebook.shut_down()
    return path


def parts(path: Path, cell: int) -> list[dict]:
    return [output.data for output in nbformat.read(path, as_version=4).cells[cell].outputs]


def pixels(data: dict) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(data["image/png"])))


def test_a_charts_picture_has_its_own_size_and_colours(saved):
    """JupyterLab's own picture is as wide as the page, and all its text is grey."""
    (data,) = parts(saved, CHART)
    layout = data["application/vnd.plotly.v1+json"]["layout"]
    picture = pixels(data)
    assert picture.size == (layout["width"], layout["height"])
    colours = picture.convert("RGB").getcolors(picture.width * picture.height)
    shown = {colour for count, colour in colours if count > 20}
    assert (255, 255, 255) in shown, "the paper of a light theme"
    assert (29, 36, 48) in shown, "its ink"


def test_the_step_that_was_left_is_kept(saved):
    outputs = nbformat.read(saved, as_version=4).cells[STEPS].outputs
    assert "round 1, accept" in outputs[1].metadata["image/png"]["alt"]


def test_sliders_leave_a_picture(saved):
    _, kept = parts(saved, SLIDERS)
    assert pixels(kept).size == (760, 400)


def test_without_the_kernel_the_page_lives_and_pictures_are_shown(offline_page, lab, saved):
    with offline_page() as page:
        notebook = Notebook(page, lab)
        page.goto(f"{lab.url}/lab?token={lab.token}&reset")
        notebook.show(saved.name)
        expect(notebook.output(STEPS).locator("img")).to_be_visible()
        expect(notebook.output(SLIDERS).locator("img")).to_be_visible()
        # A browser gives no animation frames to a sandboxed frame that is out of sight.
        notebook.output(PAGE).locator("iframe").scroll_into_view_if_needed()
        frame = notebook.output(PAGE).frame_locator("iframe")
        root = frame.locator(".specviz[data-ready]")
        root.wait_for()
        root.focus()
        page.keyboard.press("ArrowRight")
        expect(frame.locator(".specviz")).to_have_attribute("data-step", "1")
        shown = notebook.output(CHART).locator("img.plot-img")
        wide, natural = shown.evaluate("(image) => [image.clientWidth, image.naturalWidth]")
        assert wide == natural, "it is not stretched"
        notebook.shut_down()


FORM_CELLS = (CELLS[0], CELLS[1], "sv.lab(sv.load_pair(device='cpu'))")
FORM = 2
TURN = """(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })"""


def test_what_a_dark_lab_keeps_is_read_in_both_themes(offline_page, lab):
    """A chart and the run of a form, saved in the dark theme and opened without their kernel."""
    record("eqspec").save(lab.root / "kept.safetensors")
    path = lab.root / "dark.ipynb"
    write_notebook(path, FORM_CELLS)
    with offline_page() as page:
        notebook = Notebook(page, lab).open(path.name)
        page.evaluate(TURN, "JupyterLab Dark")
        assert notebook.run_all(), notebook.error_outputs()
        form = notebook.output(FORM)
        form.get_by_role("button", name="Run").first.click()
        Stepper(form.locator(".specviz")).wait()
        expect(form.locator("img.jp-needs-light-background")).to_have_count(1)
        page.wait_for_function(HAS_OWN_PICTURE, arg=CHART)
        notebook.save()
        page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")
        notebook.shut_down()
    (chart,) = parts(path, CHART)
    for data in (chart, parts(path, FORM)[1]):
        picture = pixels(data)
        colours = picture.convert("RGB").getcolors(picture.width * picture.height)
        shown = {colour for count, colour in colours if count > 20}
        assert (255, 255, 255) in shown, "paper of its own"
        assert min(max(colour) for colour in shown) < 90, "dark ink"
    with offline_page() as page:
        notebook = Notebook(page, lab)
        page.goto(f"{lab.url}/lab?token={lab.token}&reset")
        notebook.show(path.name)
        for theme in ("JupyterLab Dark", "JupyterLab Light"):
            page.evaluate(TURN, theme)
            for cell in (CHART, FORM):
                expect(notebook.output(cell).locator("img")).to_be_visible()
        notebook.shut_down()
