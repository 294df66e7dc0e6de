"""12_heads in a real JupyterLab without a network: it runs, and its step-through says what it asks.

The reader predicts which entries of the head are read again in round 3, and looks there.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from browser.jupyter import Notebook
from browser.stepper import Stepper
from browser.test_page import THEMES, check_layout
from specviz.record.schema import PHASES

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "notebooks" / "12_heads.ipynb"
OPENS_AT = 3 * len(PHASES) + PHASES.index("draft")
ACCEPTED = (14, 15, 16)  # drafts of round 2
TRAINING = "passes, steps = 1, 100"  # with 0 steps the notebook takes the shipped head


def widget_cell() -> int:
    """Return the number of the cell that shows the step-through."""
    cells = nbformat.read(SOURCE, as_version=4).cells
    (number,) = [i for i, cell in enumerate(cells) if cell.source.startswith("sv.step_through(")]
    return number


@pytest.fixture(scope="module")
def notebook(offline_page, lab) -> Iterator[Notebook]:
    for name in ("notebooks", "figures/data"):
        (lab.root / "course" / name).mkdir(parents=True)
    text = SOURCE.read_text(encoding="utf-8")
    assert text.count(TRAINING) == 1
    copied = lab.root / "course" / "notebooks" / SOURCE.name
    copied.write_text(text.replace(TRAINING, "passes, steps = 1, 0"), encoding="utf-8")
    shutil.copytree(ROOT / "notebooks" / "checks", copied.parent / "checks")
    shutil.copy(ROOT / "figures" / "data" / "heads.csv", lab.root / "course" / "figures" / "data")
    with offline_page() as page:
        opened = Notebook(page, lab).open(f"course/notebooks/{SOURCE.name}")
        assert opened.run_all(seconds=480), opened.error_outputs()
        yield opened
        opened.shut_down()


@pytest.fixture
def stepper(notebook) -> Stepper:
    found = Stepper(notebook.output(widget_cell()).locator(".specviz")).wait()
    found.go(OPENS_AT, 0)
    return found


def read_with(stepper: Stepper) -> list[str]:
    """Return what the head read for the tokens that round 2 accepted."""
    lines = {line[3]: line[-1] for line in stepper.table("stage")[1:]}
    return [lines[str(token)] for token in ACCEPTED]


def test_it_runs_without_a_message(notebook):
    assert notebook.error_outputs() == []


def test_accepted_drafts_are_read_again(stepper):
    true = [f"token {n}, read with the target's feature of token {n - 1}" for n in ACCEPTED]
    own = [f"token {n}, read with the head's own feature of token {n - 1}" for n in ACCEPTED]
    assert read_with(stepper) == true
    # Two phases back is the end of round 2, as the notebook says.
    stepper.press("ArrowLeft", "ArrowLeft")
    stepper.is_at(OPENS_AT - 2)
    assert read_with(stepper) == own


@pytest.mark.parametrize("theme", THEMES)
def test_nothing_is_covered(notebook, stepper, theme):
    notebook.command("apputils:change-theme", theme=f"JupyterLab {theme.title()}")
    stepper.frame()
    check_layout(stepper)
    fits = "(buttons) => buttons.every((button) => button.scrollWidth <= button.clientWidth)"
    assert stepper.root.locator(".sv-head button:visible").evaluate_all(fits)
