"""The step-through in a real JupyterLab without a network.

Tested are every control and key, themes, two widgets on a page, reload, and a dead kernel.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import expect

from browser.jupyter import Notebook
from browser.runs import film_of, parting, record, steps_of
from browser.stepper import Stepper
from specviz.record.schema import PHASES
from specviz.record.trace import Trace

pytestmark = pytest.mark.browser
QUICKSTART = Path(__file__).parents[2] / "notebooks" / "00_quickstart.ipynb"
CELLS = (
    "import specviz as sv\n"
    "fine, broken = (sv.Trace.load(f'{name}.safetensors') for name in ('fine', 'broken'))",
    "steps = sv.step_through(fine)\nsteps",
    "sv.step_through(broken)",
    "sv.step_through(fine, other=broken)",
    "print(steps.step, steps.row)",
    "steps.step, steps.row = 12, 2",
)
FINE, BROKEN, TWO = 1, 2, 3  # cells with a widget


@pytest.fixture(scope="module")
def runs() -> dict[str, Trace]:
    return {"fine": record("eqspec"), "broken": record("repadding")}


@pytest.fixture(scope="module")
def folder(lab, runs) -> Path:
    """The folder that the lab serves: two records, and a notebook that shows them."""
    for name, trace in runs.items():
        trace.save(lab.root / f"{name}.safetensors")
    write_notebook(lab.root / "steps.ipynb", CELLS)
    return lab.root


def write_notebook(path: Path, cells: Sequence[str]) -> None:
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(
        new_notebook(cells=[new_code_cell(source) for source in cells], metadata=kernel), path
    )


@pytest.fixture(scope="module")
def opened(offline_page, lab, folder) -> Iterator[Notebook]:
    """The notebook after a run. Tests share it and leave it unchanged."""
    with offline_page() as page:
        notebook = Notebook(page, lab).open("steps.ipynb")
        assert notebook.run_all(), notebook.error_outputs()
        yield notebook
        notebook.shut_down()


@pytest.fixture
def notebook(opened) -> Notebook:
    opened.page.keyboard.press("Escape")  # whatever a failed test left open
    for cell in (FINE, BROKEN, TWO):
        widget(opened, cell).go(0, row=0)
    return opened


def widget(notebook: Notebook, cell: int = FINE) -> Stepper:
    return Stepper(notebook.output(cell).locator(".specviz")).wait()


def last_step(trace: Trace) -> int:
    return trace.num_rounds * len(PHASES) - 1


def test_quickstart(offline_page, lab):
    (lab.root / QUICKSTART.name).write_bytes(QUICKSTART.read_bytes())
    with offline_page() as page:
        notebook = Notebook(page, lab).open(QUICKSTART.name)
        assert notebook.run_all(seconds=480), notebook.error_outputs()
        assert notebook.error_outputs() == []
        notebook.shut_down()


# ---------------------------------------------------------------- keys and controls

PLACES = {
    "ArrowRight": (7, 8),
    "ArrowLeft": (7, 6),
    "Shift+ArrowRight": (7, 12),
    "Shift+ArrowLeft": (7, 2),
    "Home": (7, 0),
    "End": (7, -1),
}
BUTTONS = {
    "next phase": "ArrowRight",
    "previous phase": "ArrowLeft",
    "next round": "Shift+ArrowRight",
    "previous round": "Shift+ArrowLeft",
    "first step": "Home",
    "last step": "End",
}


@pytest.mark.parametrize("key", PLACES)
def test_keys_move(notebook, runs, key):
    stepper, (start, goal) = widget(notebook), PLACES[key]
    stepper.go(start)
    stepper.press(key)
    stepper.is_at(goal if goal >= 0 else last_step(runs["fine"]))


@pytest.mark.parametrize("name", BUTTONS)
def test_buttons_move(notebook, runs, name):
    stepper, (start, goal) = widget(notebook), PLACES[BUTTONS[name]]
    stepper.go(start)
    stepper.button(name).click()
    stepper.is_at(goal if goal >= 0 else last_step(runs["fine"]))


def test_the_ends_hold(notebook, runs):
    stepper = widget(notebook)
    stepper.press("ArrowLeft", "Shift+ArrowLeft")
    stepper.is_at(0)
    expect(stepper.button("previous phase")).to_have_attribute("aria-disabled", "true")
    stepper.press("End", "ArrowRight", "Shift+ArrowRight")
    stepper.is_at(last_step(runs["fine"]))
    expect(stepper.button("next round")).to_have_attribute("aria-disabled", "true")


def test_phases_of_the_rail(notebook, runs):
    stepper = widget(notebook)
    stepper.go(10)
    for number, phase in enumerate(PHASES):
        button = stepper.root.get_by_role("button", name=phase).first
        button.click()
        stepper.is_at(10 + number)
        expect(button).to_have_attribute("aria-current", "step")
        assert stepper.sentence().lower().startswith(phase)


@pytest.mark.parametrize(
    ("key", "what"), [("r", "rejection"), ("f", "full"), ("e", "eos"), ("v", "violation")]
)
def test_jumps(notebook, runs, key, what):
    cell, trace = (BROKEN, runs["broken"]) if what == "violation" else (FINE, runs["fine"])
    stepper, goals = widget(notebook, cell), [step for step in steps_of(trace, what) if step > 0]
    assert goals
    for goal in goals[:3]:
        stepper.press(key)
        stepper.is_at(goal)
    stepper.press("End")
    stepper.is_at(last_step(trace))
    stepper.press(f"Shift+{key.upper()}")
    stepper.is_at([goal for goal in goals if goal < last_step(trace)][-1])
    stepper.press("Home")
    stepper.is_at(0)
    stepper.root.get_by_role("combobox", name="jump to").select_option(what)
    stepper.button("next of these").click()
    stepper.is_at(goals[0])
    stepper.press("End")
    stepper.button("previous of these").click()
    stepper.is_at([goal for goal in goals if goal < last_step(trace)][-1])


def test_a_jump_without_a_target_stays(notebook):
    stepper = widget(notebook)
    stepper.go(3)
    stepper.press("v", "Shift+V")
    stepper.is_at(3)
    stepper.root.get_by_role("combobox", name="jump to").select_option("violation")
    expect(stepper.button("next of these")).to_have_attribute("aria-disabled", "true")


def test_rows(notebook, runs):
    stepper = widget(notebook)
    stepper.go(8, row=0)
    for key, row in (
        ("ArrowDown", 1),
        ("ArrowDown", 2),
        ("ArrowUp", 1),
        ("ArrowUp", 0),
        ("ArrowUp", 0),
    ):
        stepper.press(key)
        stepper.is_at(8, row)
    x, y = stepper.find("row 3,")
    stepper.page.mouse.click(x, y)
    stepper.is_at(8, 3)
    assert stepper.root.get_by_role("combobox", name="row").input_value() == "row 3 · request 3"
    assert stepper.panel("verify").get_by_role("heading").inner_text().startswith("Row 3")
    stepper.press("ArrowDown")
    stepper.is_at(8, 3)
    stepper.go(8, row=0)


def test_slider(notebook, runs):
    stepper = widget(notebook, BROKEN)
    slider = stepper.root.get_by_role("slider", name="step")
    assert slider.get_attribute("max") == str(last_step(runs["broken"]))
    slider.focus()
    for key, goal in (
        ("ArrowRight", 1),
        ("Shift+ArrowRight", 6),
        ("ArrowLeft", 5),
        ("End", last_step(runs["broken"])),
        ("Home", 0),
    ):
        stepper.page.keyboard.press(key)
        stepper.is_at(goal)
    slider.click()
    expect(stepper.root).not_to_have_attribute("data-step", "0")
    assert stepper.step < last_step(runs["broken"])
    marks, goals = (
        stepper.root.locator(".sv-mark.sv-violation"),
        steps_of(runs["broken"], "violation"),
    )
    assert 1 < marks.count() <= len(goals)
    counted = marks.evaluate_all(
        "(marks) => marks.map((mark) => Number(mark.title.match(/in (\\d+) steps/)?.[1] ?? 1))"
    )
    assert sum(counted) == len(goals)  # those that would lie on each other share a mark
    places = marks.evaluate_all("(marks) => marks.map((mark) => mark.getBoundingClientRect().left)")
    assert min(b - a for a, b in pairwise(places)) > 2
    marks.nth(1).click(force=True)  # marks may lie close together
    stepper.frame()
    assert stepper.step in goals
    last_round = runs["broken"].num_rounds - 1
    place = f"round {stepper.step // 5} of 0 to {last_round}, {PHASES[stepper.step % 5]}"
    expect(slider).to_have_attribute("aria-valuetext", place)


def test_play(notebook, runs):
    stepper, speed = widget(notebook), widget(notebook).root.get_by_role("combobox", name="speed")
    before = speed.input_value()
    stepper.press("]", "]", "]", "]", "]")
    assert speed.input_value() == "8 / s"
    stepper.press("Space")
    expect(stepper.button("pause")).to_be_visible()
    expect(stepper.root).not_to_have_attribute("data-step", "0")
    stepper.press("Space")
    expect(stepper.button("play")).to_be_visible()
    now = stepper.step
    stepper.page.wait_for_timeout(400)  # three steps, were it still playing
    stepper.is_at(now)
    stepper.go(last_step(runs["fine"]) - 2)
    stepper.button("play").click()
    stepper.is_at(last_step(runs["fine"]))
    expect(stepper.button("play")).to_be_visible()
    stepper.press("[", "[", "[", "[", "[")
    assert speed.input_value() == "0.5 / s"
    speed.select_option(before)


def test_zoom_and_slide(notebook, runs):
    stepper = widget(notebook)
    stepper.go(last_step(runs["fine"]))
    whole = stepper.digest()
    seen = {whole}
    for key, button in (("+", "wider slots"), ("-", "narrower slots")):
        stepper.press(key)
        by_key = stepper.digest()
        assert by_key not in seen
        seen.add(by_key)
        stepper.press("0")
        assert stepper.digest() == whole
        stepper.button(button).click()
        assert stepper.digest() == by_key
        stepper.button("slots as wide as they fit").click()
        assert stepper.digest() == whole
    stepper.press("+", "+", "+")
    wide = stepper.digest()
    stepper.press(",")
    assert stepper.digest() not in {*seen, wide}
    stepper.press(".")
    assert stepper.digest() == wide
    stepper.press("0")


MOVES = ("→", "←", "Shift →", "Shift ←", "Home", "End", "Space", "[", "]", "↓", "↑")
JUMPS = ("r", "Shift r", "f", "Shift f", "v", "Shift v", "e", "Shift e")
LISTED = (*MOVES, *JUMPS, "t", "+", "\N{MINUS SIGN}", "0", ",", ".", "?")


@pytest.mark.parametrize(
    ("cell", "more"), [(FINE, ()), (TWO, ("d", "m"))], ids=["one run", "two runs"]
)
def test_help_lists_the_keys(notebook, cell, more):
    stepper, cells = widget(notebook, cell), notebook.sources()
    for open_it in (lambda: stepper.press("?"), lambda: stepper.button("help: keys").click()):
        open_it()
        page_of_keys = stepper.root.get_by_role("dialog", name="Keys")
        expect(page_of_keys).to_be_visible()
        shown = page_of_keys.locator("dt > *").evaluate_all(
            "(keys) => keys.map("
            "(key) => [...key.children].map((each) => each.textContent).join(' '))"
        )
        assert sorted(shown) == sorted((*LISTED, *more))
        stepper.page.keyboard.press("Escape")
        expect(page_of_keys).to_be_hidden()
    stepper.press("ArrowRight")
    stepper.is_at(1)
    assert notebook.sources() == cells


def test_keys_stay_in_the_widget(notebook):
    """JupyterLab has commands on these letters: cut, add and run cells; 0 0 restarts the kernel."""
    stepper, cells, kernel = widget(notebook), notebook.sources(), notebook.kernel()
    for key in "rfvetdmabxyjk0,.+-[]":
        stepper.press(key, key)
    stepper.press(
        "Shift+R",
        "Shift+F",
        "Shift+V",
        "Shift+E",
        "ArrowDown",
        "ArrowUp",
        "Home",
        "End",
        "Space",
        "Space",
    )
    expect(stepper.page.get_by_role("dialog")).to_have_count(0)
    assert (notebook.sources(), notebook.kernel()) == (cells, kernel)
    stepper.press("0", "Home")


def test_keys_belong_to_the_notebook_elsewhere(notebook):
    """With the focus in a cell, no key reaches the widget."""
    stepper = widget(notebook)
    notebook.page.locator(".jp-Notebook .jp-Cell").nth(4).locator(".cm-content").click()
    notebook.page.keyboard.press("ArrowRight")
    notebook.page.keyboard.press("Escape")
    notebook.page.keyboard.press("ArrowUp")
    stepper.frame()
    stepper.is_at(0)


# ---------------------------------------------------------------- what is shown


def test_sentences_are_those_of_the_record(notebook, runs):
    stepper = widget(notebook)
    stages = [stage for each in film_of(runs["fine"])["rounds"] for stage in each["stages"]]
    for step in range(10):
        stepper.is_at(step)
        assert stages[step]["words"] in stepper.sentence()
        stepper.press("ArrowRight")


def test_pictures_change_and_carry_their_colours(notebook, runs):
    stepper, step = widget(notebook), steps_of(runs["fine"], "rejection")[0]
    stepper.go(step - 1)
    before = stepper.digest()
    assert stepper.count("green-soft") == stepper.count("orange-soft") == 0
    assert stepper.count("blue-soft") > 500
    stepper.go(step)
    assert stepper.digest() != before
    assert (
        min(stepper.count(colour) for colour in ("green-soft", "orange-soft", "amber-soft")) > 500
    )


def test_tables(notebook, runs):
    stepper, step = widget(notebook), steps_of(runs["fine"], "rejection")[0]
    stepper.go(step)
    head, *lines = stepper.table("stage")
    assert head[:5] == ["slot", "token", "state", "index", "position"]
    assert {"prompt", "bonus, now pending"} <= {line[2] for line in lines}
    stepper.press("t")
    expect(stepper.root.get_by_role("table")).to_have_count(
        stepper.root.locator(".sv-panel:visible").count()
    )
    expect(stepper.root.locator(".sv-stage canvas").first).to_be_hidden()
    stepper.press("t")
    expect(stepper.root.get_by_role("table")).to_have_count(0)
    for panel in stepper.root.locator(".sv-panel:visible canvas:visible").all():
        assert len(panel.get_attribute("aria-label")) > 20


def test_violations_lead_to_their_row(notebook, runs):
    stepper, violations = widget(notebook, BROKEN), film_of(runs["broken"])["violations"]
    step = steps_of(runs["broken"], "violation")[1]
    stepper.press("v")
    stepper.is_at(step)
    here = [each for each in violations if 5 * each["round"] + each["phase"] == step]
    entry = stepper.panel("invariants").locator("li button").last
    row, expected, found = re.search(
        r"row (\d+)(?: \(request \d+\), [^:]*:)? (.*); (.*?)(?: \(\d+ \w+\))?$", entry.inner_text()
    ).groups()
    assert (int(row), expected, found) in [
        (each["row"], each["expected"], each["found"]) for each in here
    ]
    row = int(row)
    entry.click()
    stepper.is_at(step, row)
    assert stepper.panel("mask").get_by_role("heading").inner_text().startswith(f"Row {row}")
    assert stepper.count("red") > 0
    assert widget(notebook).panel("invariants").locator("li button").count() == 0


def test_widgets_on_a_page_are_independent(notebook):
    first, second = widget(notebook), widget(notebook, BROKEN)
    calm = second.digest()
    first.press("ArrowRight", "ArrowRight", "ArrowDown", "+")
    first.is_at(2, 1)
    second.is_at(0, 0)
    assert second.digest() == calm
    second.press("Shift+ArrowRight")
    second.is_at(5)
    first.is_at(2, 1)
    first.press("ArrowUp", "0")


def test_two_runs(notebook, runs):
    stepper, (number, request, index) = widget(notebook, TWO), parting(runs["fine"], runs["broken"])
    stepper.press("d")
    stepper.is_at(5 * number + PHASES.index("accept"))
    expect(stepper.root).to_contain_text(f"request {request}, token {index}")
    assert stepper.digest(run=0) != stepper.digest(run=1)
    stepper.press("Home")
    stepper.button("go there").click()
    stepper.is_at(5 * number + PHASES.index("accept"))
    assert facts(stepper) == [f"round {number}"] * 2
    stepper.press("m")
    expect(stepper.button("committed tokens")).to_have_attribute("aria-pressed", "true")
    stepper.go(5 * 10)
    assert facts(stepper) != ["round 10", "round 10"]
    stepper.button("round").click()
    stepper.frame()
    assert facts(stepper) == ["round 10", "round 10"]


def facts(stepper: Stepper) -> list[str]:
    """The round that each run's title names."""
    texts = stepper.root.locator(".sv-title").all_inner_texts()
    return [re.search(r"round \d+", text)[0] for text in texts]


def test_themes(notebook):
    stepper = widget(notebook)
    stepper.go(8)
    pictures = {}
    for theme in ("Light", "Dark", "Light"):
        notebook.command("apputils:change-theme", theme=f"JupyterLab {theme}")
        expect(stepper.root).to_have_attribute("data-theme", theme.lower())
        expect(notebook.page.locator("#jupyterlab-splash")).to_have_count(0)
        pictures.setdefault(theme, set()).add(stepper.digest())
    assert {theme: len(found) for theme, found in pictures.items()} == {"Light": 1, "Dark": 1}
    assert pictures["Light"] != pictures["Dark"]


# ---------------------------------------------------------------- with the kernel, and without


def test_step_and_row_are_shared_with_python(notebook):
    stepper = widget(notebook)
    stepper.go(7, row=1)
    # ipywidgets holds a change back until the kernel has taken the previous one, so a cell that is
    # run now may be faster than the change
    for _ in range(5):
        notebook.run(4)
        if notebook.output(4).inner_text().strip() == "7 1":
            break
    expect(notebook.output(4)).to_have_text("7 1")
    notebook.run(5)
    stepper.is_at(12, 2)
    stepper.go(0, row=0)


def test_reload_and_a_dead_kernel(offline_page, lab, folder, runs):
    """With a live kernel a reloaded page shows the widget again.

    Without the kernel, stepping works until the page is closed.
    """
    with offline_page() as page:
        notebook = Notebook(page, lab).open("steps.ipynb")
        assert notebook.run_all(), notebook.error_outputs()
        widget(notebook).go(8, row=0)
        for cell in (
            FINE,
            BROKEN,
            TWO,
        ):  # each arrives as an output, and what is not saved cannot be reloaded without a question
            expect(notebook.output(cell).locator("img")).to_have_count(1)
        notebook.save()
        page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")
        page.reload()
        notebook.show("steps.ipynb")
        stepper = widget(notebook)
        stepper.is_at(8)
        stepper.press("ArrowRight")
        stepper.is_at(9)
        notebook.shut_down()
        assert notebook.kernel() == ""
        stepper.press("ArrowRight", "ArrowRight", "ArrowDown")
        stepper.is_at(11, 1)
        stages = [stage for each in film_of(runs["fine"])["rounds"] for stage in each["stages"]]
        assert stages[11]["words"] in stepper.sentence()
        widget(notebook, TWO).press("d")
        widget(notebook, TWO).is_at(
            5 * parting(runs["fine"], runs["broken"])[0] + PHASES.index("accept")
        )


def test_a_notebook_saved_by_hand_shows_a_picture(offline_page, lab, folder):
    """The page draws the picture and hides it while the widget is visible.

    Without the kernel that made the widget, only the picture is shown.
    """
    write_notebook(folder / "live.ipynb", CELLS[:2])
    with offline_page() as page:
        notebook = Notebook(page, lab).open("live.ipynb")
        assert notebook.run_all(), notebook.error_outputs()
        stepper = widget(notebook)
        picture = notebook.output(FINE).locator("img")
        expect(picture).to_have_count(1)
        expect(picture).to_be_hidden()
        stepper.press("ArrowRight")
        stepper.is_at(1)
        notebook.save()
        page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")
        notebook.shut_down()
        expect(picture).to_be_hidden()
    outputs = nbformat.read(folder / "live.ipynb", as_version=4).cells[FINE].outputs
    assert ["image/png" in output.data for output in outputs] == [False, True]
    with offline_page() as page:
        notebook = Notebook(page, lab).open("live.ipynb")
        picture = notebook.output(FINE).locator("img")
        expect(picture).to_be_visible()
        assert picture.evaluate("(image) => image.naturalWidth") == 1000
        expect(page.locator(".specviz")).to_have_count(0)
        notebook.shut_down()


def test_an_executed_notebook_shows_a_picture(offline_page, lab, folder):
    """Executed as `make notebooks` does, then opened.

    The notebook is not trusted yet, and the kernel that made it is gone.
    """
    write_notebook(folder / "kept.ipynb", CELLS[:2])
    command = (
        "nbconvert",
        "--to",
        "notebook",
        "--execute",
        "--inplace",
        "--ExecutePreprocessor.store_widget_state=False",
        "kept.ipynb",
    )
    subprocess.run(
        [sys.executable, "-m", "jupyter", *command], cwd=folder, check=True, capture_output=True
    )
    with offline_page() as page:
        notebook = Notebook(page, lab).open("kept.ipynb")
        picture = notebook.output(FINE).locator("img")
        expect(picture).to_be_visible()
        assert picture.evaluate("(image) => image.naturalWidth") > 1000
        expect(page.locator(".specviz")).to_have_count(0)
        notebook.shut_down()
