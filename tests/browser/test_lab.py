"""The step-through in a real JupyterLab without a network.

Tested are every control and key, themes, two widgets on a page, reload, and a dead kernel.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import expect

import specviz as sv
from browser.jupyter import Notebook
from browser.runs import parting, record, stages_of, steps_of
from browser.stepper import Stepper
from specviz.record.schema import PHASES
from specviz.record.trace import Trace

pytestmark = pytest.mark.browser
QUICKSTART = Path(__file__).parents[2] / "notebooks" / "00_quickstart.ipynb"
CELLS = (
    "import specviz as sv\n"
    "fine, broken = (sv.Trace.load(f'{name}.safetensors') for name in ('fine', 'broken'))",
    "steps = sv.step_through(fine, round=0)\nsteps",
    "sv.step_through(broken, round=0)",
    "sv.step_through(fine, other=broken, round=0)",
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
    shutil.copytree(QUICKSTART.parent / "checks", lab.root / "checks")
    with offline_page() as page:
        notebook = Notebook(page, lab).open(QUICKSTART.name)
        assert notebook.run_all(seconds=480), notebook.error_outputs()
        assert notebook.error_outputs() == []
        notebook.shut_down()


# ---------------------------------------------------------------- keys and controls

# By key: the button that does the same, and where it leads from step 7.
MOVES = {
    "ArrowRight": ("next phase", 8),
    "ArrowLeft": ("previous phase", 6),
    "Shift+ArrowRight": ("next round", 12),
    "Shift+ArrowLeft": ("previous round", 2),
    "Home": ("first step", 0),
    "End": ("last step", None),
}


@pytest.mark.parametrize("key", MOVES)
def test_keys_and_buttons_move(notebook, runs, key):
    stepper, (name, goal) = widget(notebook), MOVES[key]
    for move in (lambda: stepper.press(key), lambda: stepper.button(name).click()):
        stepper.go(7)
        move()
        stepper.is_at(last_step(runs["fine"]) if goal is None else goal)


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


def goals_of(trace: Trace, what: str) -> list[tuple[int, int]]:
    """Return step and row of what a jump leads to from row 0; in step 0 only rows behind it."""
    found = set()
    if what == "violation":
        for each in sv.check_invariants(trace):
            found.add((each.round * len(PHASES) + PHASES.index(each.phase), each.row))
    else:
        rows = trace.rows
        for number in sorted({step // len(PHASES) for step in steps_of(trace, what)}):
            here = np.flatnonzero(rows["round"] == number)
            for row, entry in enumerate(here):
                if happens(trace, int(entry), what):
                    found.add((number * len(PHASES) + PHASES.index("accept"), row))
    return sorted(found - {(0, 0)})


def happens(trace: Trace, entry: int, what: str) -> bool:
    rows = trace.rows
    if what == "eos":
        return bool(set(trace.meta["eos_token_ids"]) & set(rows["emitted"][entry].tolist()))
    full = bool(rows["accepted"][entry] == rows["drafted"][entry])
    # The row that was chosen is row 0, whose request is 0: no row is refilled here.
    return bool(rows["request"][entry] == 0) and full == (what == "full")


@pytest.mark.parametrize(
    ("key", "what"), [("r", "rejection"), ("a", "full"), ("e", "eos"), ("v", "violation")]
)
def test_jumps(notebook, runs, key, what):
    cell, trace = (BROKEN, runs["broken"]) if what == "violation" else (FINE, runs["fine"])
    stepper, goals = widget(notebook, cell), goals_of(trace, what)
    end = last_step(trace)
    last = [goal for goal in goals if goal < (end, 0)][-1]
    for goal in goals[:3]:
        stepper.press(key)
        stepper.is_at(*goal)
    stepper.go(end, row=0)
    stepper.press(f"Shift+{key.upper()}")
    stepper.is_at(*last)
    stepper.go(0, row=0)
    stepper.root.get_by_role("combobox", name="jump to").select_option(what)
    stepper.button("next of these").click()
    stepper.is_at(*goals[0])
    stepper.go(end, row=0)
    stepper.button("previous of these").click()
    stepper.is_at(*last)


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
    for key, row in (("Down", 1), ("Down", 2), ("Up", 1), ("Up", 0), ("Up", 0)):
        stepper.press(f"Arrow{key}")
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
    stepper, last = widget(notebook, BROKEN), last_step(runs["broken"])
    slider = stepper.root.get_by_role("slider", name="step")
    assert slider.get_attribute("max") == str(last)
    slider.focus()
    goals = {"ArrowRight": 1, "Shift+ArrowRight": 6, "ArrowLeft": 5, "End": last, "Home": 0}
    for key, goal in goals.items():
        stepper.page.keyboard.press(key)
        stepper.is_at(goal)
    stepper.canvas("map").click()
    expect(stepper.root).not_to_have_attribute("data-step", "0")
    assert stepper.step < last
    place = f"round {stepper.step // 5} of 0 to {last // 5}, {PHASES[stepper.step % 5]}"
    expect(slider).to_have_attribute("aria-valuetext", place)
    expect(slider).to_be_focused()


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


LISTED = (
    *("→", "←", "Shift →", "Shift ←", "Home", "End", "Space", "[", "]", "↓", "↑", "t"),
    *("r", "Shift r", "a", "Shift a", "v", "Shift v", "e", "Shift e"),
    *("+", "\N{MINUS SIGN}", "0", ",", ".", "s", "Shift s", "x", "?"),
    *("f", "p", "h", "c", "l", "g"),
)


@pytest.mark.parametrize(
    ("cell", "more"), [(FINE, ()), (TWO, ("b", "d", "m"))], ids=["one run", "two runs"]
)
def test_help_lists_the_keys(notebook, cell, more):
    stepper, cells = widget(notebook, cell), notebook.sources()
    for open_it in (lambda: stepper.press("?"), lambda: stepper.button("help: keys").click()):
        open_it()
        page_of_keys = stepper.root.get_by_role("dialog", name="Keys")
        expect(page_of_keys).to_be_visible()
        written = (
            "(keys) => keys.map((key) => [...key.children].map((e) => e.textContent).join(' '))"
        )
        shown = page_of_keys.locator("dt > *").evaluate_all(written)
        assert sorted(shown) == sorted((*LISTED, *more))
        stepper.page.keyboard.press("Escape")
        expect(page_of_keys).to_be_hidden()
    stepper.press("ArrowRight")
    stepper.is_at(1)
    assert notebook.sources() == cells


def test_keys_stay_in_the_widget(notebook):
    """JupyterLab has commands on these letters: cut, add and run cells; 0 0 restarts the kernel."""
    stepper, cells, kernel = widget(notebook), notebook.sources(), notebook.kernel()
    for key in "rfvetdmabxyjkphclg0,.+-[]":  # each twice: what is switched on is switched off again
        stepper.press(key, key)
    stepper.press("Shift+R", "Shift+A", "Shift+V", "Shift+E", "ArrowDown", "ArrowUp")
    stepper.press("Home", "End", "Space", "Space")
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
    new = index - len(runs["fine"].prompt(request))
    expect(stepper.root).to_contain_text(f"request {request}, new token {new}")
    expect(stepper.root).to_contain_text("what differs is in colour")
    first, second = stepper.root.locator(".sv-title").all_inner_texts()
    assert ("valid" in first, "valid" in second) == (True, False)
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
        # Each picture arrives as an output, and what is not saved cannot be reloaded without a
        # question.
        for cell in (FINE, BROKEN, TWO):
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
        assert stages_of(runs["fine"])[11]["words"] in stepper.sentence()
        widget(notebook, TWO).press("d")
        number, _, _ = parting(runs["fine"], runs["broken"])
        widget(notebook, TWO).is_at(5 * number + PHASES.index("accept"))


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
    keep = "--ExecutePreprocessor.store_widget_state=False"
    command = ["nbconvert", "--to", "notebook", "--execute", "--inplace", keep, "kept.ipynb"]
    command = [sys.executable, "-m", "jupyter", *command]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    with offline_page() as page:
        notebook = Notebook(page, lab).open("kept.ipynb")
        picture = notebook.output(FINE).locator("img")
        expect(picture).to_be_visible()
        assert picture.evaluate("(image) => image.naturalWidth") > 1000
        expect(page.locator(".specviz")).to_have_count(0)
        notebook.shut_down()
