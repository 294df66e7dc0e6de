"""The drawings of figures/schematics are those of today's code, few in elements, each with a text.

The numbers of docs/notation.md are those that the code computes.
"""

import re
from itertools import count
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import pytest

from specviz.costs.breakeven import break_even_rate
from specviz.studies.schematics.drawing import Drawing
from specviz.studies.schematics.ideas import IDEAS, MOST_ELEMENTS
from specviz.studies.schematics.make import make_schematics, page
from specviz.studies.schematics.notation import (
    EXAMPLE,
    FORMULAS,
    DrawnRow,
    Example,
    drawing,
    worked,
)
from specviz.views.stepper.browser import find_browser

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "figures" / "schematics"
NOTATION = (ROOT / "docs" / "notation.md").read_text(encoding="utf-8")
ALL = [*(idea() for idea in IDEAS), drawing()]
# By drawing, what the code of a cell has whose picture shows the idea.
SHOWS = {
    "round": r"step_through",
    "stale": r"step_through",
    "holes": r"columns\.trace|masking",
    "realignment": r"synchronise",
    "pool": r"full|Grouping",
    "slot-position": r"in_?place",
    "roofline": r"[Rr]oofline",
    "tree": r"tree",
    "heads": r"eagle|medusa|hydra",
}


@pytest.mark.parametrize("picture", ALL, ids=lambda picture: picture.name)
def test_the_stored_drawing_is_todays(picture: Drawing):
    stored = (FOLDER / f"{picture.name}.svg").read_text(encoding="utf-8")
    assert stored == picture.svg(), "run specviz study schematics --out figures/schematics"
    tree = ElementTree.fromstring(stored)
    space = "{http://www.w3.org/2000/svg}"
    assert tree.find(f"{space}desc").text == picture.alt
    assert "prefers-color-scheme: dark" in stored


@pytest.mark.parametrize("idea", IDEAS, ids=lambda idea: idea.__name__)
def test_an_idea_has_few_elements_and_stays_on_its_page(idea):
    picture = idea()
    assert 3 <= len(picture.elements) <= MOST_ELEMENTS
    tree = ElementTree.fromstring(picture.svg())
    for node in tree.iter():
        assert 0 <= float(node.get("x", 0)) <= picture.width
        assert 0 <= float(node.get("y", 0)) <= picture.height


def test_nothing_is_left_over():
    names = {f"{picture.name}.svg" for picture in ALL} | {"notation.pdf"}
    assert {path.name for path in FOLDER.iterdir()} == names


def test_an_idea_is_drawn_before_the_first_picture_that_shows_it():
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    cells = [cell for path in notebooks for cell in nbformat.read(path, as_version=4).cells]
    pictures = [
        (number, cell.source)
        for number, cell in enumerate(cells)
        if any("image/png" in output.get("data", ()) for output in cell.get("outputs", ()))
    ]
    assert set(SHOWS) == {idea().name for idea in IDEAS}
    for name, shows in SHOWS.items():
        drawn = next(i for i in count() if f"schematics/{name}.svg" in cells[i].source)
        shown = next(number for number, source in pictures if re.search(shows, source))
        assert drawn < shown, name


def test_the_example_keeps_its_own_rules():
    for example in (EXAMPLE, Example((DrawnRow(8, 0), DrawnRow(4, 2), DrawnRow(6, 4)), 4)):
        for row in example.rows:
            end = example.start(row) + row.n
            assert end == example.length
            assert end + row.gain + example.d(row) == example.new_length
            assert example.start(row) + example.d(row) >= 0


def test_the_page_has_the_formulas_and_numbers_of_the_code():
    assert drawing().alt in NOTATION
    for formula in FORMULAS:
        assert f"| {formula.words} | {formula.text} |" in NOTATION
    for words, text in worked():
        assert f"| {words} | {text} |" in NOTATION
    first = EXAMPLE.rows[0]
    for letter, value in (("a", first.a), ("gain", first.gain), ("d", EXAMPLE.d(first))):
        assert re.search(rf"(?m)^\| {letter} \| .+ \| {value} \|$", NOTATION)


def test_the_worked_numbers_by_hand():
    price, pays, conditional, drafted = (text for _, text in worked())
    assert price.endswith("(4 · 1.5 + 14 + 1) / 10 = 2.10 steps")
    assert "2.77 / 2.10 = 1.32 times" in pays
    assert f"α is {break_even_rate(2.1, 4):.2f}" in pays
    assert "0.70, 0.70, 0.57;" in conditional
    assert conditional.endswith("= 2.47")
    assert "accepts 1.77 of 4 drafts" in drafted
    assert "drafted is 0.44" in drafted


def test_the_printed_page_has_all_of_it():
    text = page()
    assert all(formula.words in text for formula in FORMULAS)
    assert "<svg" in text


@pytest.mark.slow
@pytest.mark.skipif(find_browser() is None, reason="no browser to print with")
def test_the_command_writes_all_files(tmp_path):
    files = make_schematics(tmp_path)
    assert {path.name for path in files} == {path.name for path in FOLDER.iterdir()}
    pdf = (tmp_path / "notation.pdf").read_bytes()
    assert pdf.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1
