"""The map of the course: data, folder, openings, drawings and page are in step."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from course_map import (
    DATA,
    LOOKS,
    MOST_LETTERS,
    PAGE,
    ROADS,
    ROOT,
    Notebook,
    draw,
    drawings,
    page,
    places,
    read,
    table,
)
from test_course import prose
from test_notebooks import stored

FOLDER = ROOT / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
COURSE = read()
TOY = [
    Notebook("00_a", "core", 20, 10, "", "begin"),
    Notebook("01_b", "core", 30, 20, "00_a", "go on"),
    Notebook("02_c", "optional", 40, None, "00_a", "aside"),
    Notebook("03_d", "optional", 50, None, "00_a", "beside"),
    Notebook("04_e", "optional", 60, None, "09_z", "after what is not there"),
]


def opening(name: str) -> str:
    return prose(stored(FOLDER / f"{name}.ipynb"))[0]


def test_the_data_has_every_notebook_and_only_names_that_may_come():
    assert [each.name for each in COURSE] == NAMES
    known = re.findall(r"(?m)^(\d\d_\w+),", DATA.read_text(encoding="utf-8"))
    assert known == sorted(set(known))
    for each in COURSE:
        assert each.road in ROADS
        assert each.after == "" or each.after in known[: known.index(each.name)]
        assert 0 < len(each.topic) <= MOST_LETTERS


def test_the_core_road_takes_three_hours_at_most():
    core = [each for each in COURSE if each.road == "core"]
    assert [each.name[:2] for each in core] == ["00", "01", "02", "03", "06"]
    assert sum(each.core_minutes for each in core) <= 180
    assert [each.after for each in core] == ["", *(each.name for each in core[:-1])]


@pytest.mark.parametrize("notebook", COURSE, ids=lambda each: each.name)
def test_road_and_minutes_are_those_of_the_opening(notebook):
    road = "Core road" if notebook.road == "core" else "Optional"
    assert f"**{road}.** It takes an estimated " in opening(notebook.name)
    minutes = re.search(r"[Ii]t takes\b.* (\d+) minutes", opening(notebook.name))
    core = re.search(r"(\d+) for the core", opening(notebook.name))
    assert int(minutes[1]) == notebook.minutes
    assert (core and int(core[1])) == notebook.core_minutes


def test_drawings_and_page_are_those_of_the_data():
    for path, text in drawings(COURSE).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run make course"
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, COURSE) == text, "docs/course.md: run make course"
    assert page(text, TOY) != text


def test_readme_and_quickstart_link_the_map():
    assert "](docs/course.md" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "](../docs/course.md" in opening(NAMES[0])


def test_only_notebooks_whose_file_exists_are_read(tmp_path):
    (tmp_path / "01_one_row.ipynb").touch()
    (only,) = read(folder=tmp_path)
    assert only.name == "01_one_row"
    drawn = draw([only], LOOKS["light"])
    assert "01_one_row" in drawn
    assert "00_quickstart" not in drawn
    assert "00_quickstart" not in table([only])


@pytest.mark.parametrize("name", LOOKS)
def test_boxes_do_not_touch_and_stay_inside(name):
    root = ElementTree.fromstring(draw(TOY, LOOKS[name]))
    space = {"svg": "http://www.w3.org/2000/svg"}
    ground, *boxes = root.findall("svg:rect", space)
    corners = [(float(box.get("x")), float(box.get("y"))) for box in boxes]
    assert len(set(corners)) == len(TOY)
    for x, y in corners:
        assert x + float(boxes[0].get("width")) < float(ground.get("width"))
        assert y + float(boxes[0].get("height")) < float(ground.get("height"))
    # Three arrows: 04_e comes after a notebook that is not drawn.
    assert len(root.findall("svg:path", space)) == 3


def test_places():
    assert places(TOY) == {
        "00_a": (0, 0),
        "01_b": (1, 0),
        "02_c": (1, 1),
        "03_d": (1, 2),
        "04_e": (0, 1),
    }


def test_a_changed_line_changes_the_drawing():
    longer = [replace(each, minutes=99) for each in TOY]
    assert draw(longer, LOOKS["dark"]) != draw(TOY, LOOKS["dark"])
    assert draw(TOY, LOOKS["dark"]) != draw(TOY, LOOKS["light"])
