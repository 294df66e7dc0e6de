"""What each notebook of the course contains, and that the map of the course says the same.

A notebook has an opening, predictions, prose around every code cell, exercises, a summary and the
next step. No choice was close in the runs whose text it stores, so the text is the same on another
machine.
"""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from nbformat import NotebookNode
from test_notebooks import stored

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
MIN_PREDICTIONS = 3
NUMBER_WORDS = {18: "eighteen", 19: "nineteen", 20: "twenty", 21: "twenty-one"}
TITLE = r"(?m)^(?:\*\*|### )(\d+)\. (.+)$"  # of an exercise


def prose(notebook: NotebookNode) -> list[str]:
    return [cell.source for cell in notebook.cells if cell.cell_type == "markdown"] or [""]


def missing(patterns: list[str], text: str) -> list[str]:
    return [f"lacks {pattern!r}" for pattern in patterns if not re.search(pattern, text)]


def opens_with_a_promise(notebook: NotebookNode) -> list[str]:
    """What the reader will be able to do, in minutes, what it needs, and the letters."""
    promise = [r"^# \S", r"After this notebook you can", r"[Ii]t takes\b.* \d+ minutes"]
    return missing(
        [*promise, r"\bneeds\b", r"\]\(\.\./docs/glossary\.md#letters"], prose(notebook)[0]
    )


def ends_with_a_summary(notebook: NotebookNode) -> list[str]:
    return missing([r"(?m)^## Summary$", r"(?m)^\*\*Next\.\*\* \S"], prose(notebook)[-1])


def has_prose_around_code(notebook: NotebookNode) -> list[str]:
    """Text before and after every code cell; an empty cell counts for nothing."""
    kinds = ["code", *(cell.cell_type for cell in notebook.cells if cell.source.strip()), "code"]
    return [
        f"two code cells, or a code cell at an end: place {i}"
        for i, pair in enumerate(pairwise(kinds))
        if set(pair) == {"code"}
    ]


def predicts_before_it_runs(notebook: NotebookNode) -> list[str]:
    """At key results the reader is asked first, and a cell that runs comes next."""
    cells = pairwise(notebook.cells)
    count = sum(
        "**Before you " in cell.source and following.cell_type == "code"
        for cell, following in cells
    )
    return [] if count >= MIN_PREDICTIONS else [f"{count} predictions before a code cell"]


def has_exercises(notebook: NotebookNode) -> list[str]:
    """Exercises are numbered: at least one to predict, one to write and one to debug.

    Each has a folded hint, its minutes, and one to three dots before them.
    """
    text = "\n".join(prose(notebook))
    titles = re.findall(TITLE, text)
    problems = [
        f"nothing to {kind}"
        for kind in ("Predict", "Write", "Debug")
        if not any(title.startswith(kind) for _, title in titles)
    ]
    rated = r" (?:●○○|●●○|●●●) \(\d+ minutes\)"
    problems += [
        f"no dots or minutes: {title}" for _, title in titles if not re.search(rated, title)
    ]
    numbers = [int(number) for number, _ in titles]
    if numbers != list(range(1, len(titles) + 1)):
        problems.append(f"exercises numbered {numbers}")
    hints = text.count("<details><summary>Hint</summary>\n\n")
    if hints < len(titles):
        problems.append(f"{hints} hints for {len(titles)} exercises")
    return problems


def asserts_that_no_choice_was_close(notebook: NotebookNode) -> list[str]:
    """A notebook that records runs shows their texts and asserts that no choice was nearly tied."""
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    records = re.search(r"\brecord\b\W{1,3}True\b", code)
    return missing([r"assert .*smallest_gap.* > 1e-3"], code) if records else []


def has_the_core_first(notebook: NotebookNode) -> list[str]:
    """What may be skipped stands behind one heading, in subsections, before the exercises.

    A notebook whose opening states no optional part is all core, and has no such heading.
    """
    text = "\n".join(prose(notebook))
    headings = re.findall(r"(?m)^## (.+)$", text)
    problems = []
    if headings[-2:] != ["Exercises", "Summary"]:
        problems.append(f"ends with {headings[-2:]}")
    count = sum("optional" in heading.lower() for heading in headings)
    if "for the optional part" not in prose(notebook)[0]:
        return problems + ["optional, and the opening does not say so"] * count
    if headings[-3:-2] != ["Optional"] or count != 1:
        problems.append("not one heading for what is optional")
    optional = text.partition("\n## Optional\n")[2].partition("\n## Exercises\n")[0]
    return problems + missing([r"(?m)^### \S"], optional)


def adds_up_its_minutes(notebook: NotebookNode) -> list[str]:
    """The opening has the minutes of the core, the optional part if any, and the exercises."""
    parts = re.search(
        r"(\d+) minutes: (\d+) for the core, (?:(\d+) for the optional part, )?"
        r"(\d+) for the exercises",
        prose(notebook)[0],
    )
    if parts is None:
        return ["no minutes of its parts"]
    total, core, optional, exercises = map(int, parts.groups(default="0"))
    titles = [title for _, title in re.findall(TITLE, "\n".join(prose(notebook)))]
    stated = sum(int(minutes) for minutes in re.findall(r"\((\d+) minutes\)", "\n".join(titles)))
    problems = []
    if total != core + optional + exercises:
        problems.append(f"{core} + {optional} + {exercises} is not {total}")
    if exercises != stated:
        problems.append(f"the exercises take {stated} minutes")
    return problems


CHECKS = (
    opens_with_a_promise,
    ends_with_a_summary,
    has_prose_around_code,
    predicts_before_it_runs,
    has_exercises,
    asserts_that_no_choice_was_close,
    has_the_core_first,
    adds_up_its_minutes,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook(path, check):
    assert check(stored(path)) == []


# The map: docs/course.md and figures/course-*.svg


def course() -> dict[str, tuple[str, int, int | None, str]]:
    """Return what the table of docs/course.md says: road, minutes, those of the core, and after."""
    page = (ROOT / "docs" / "course.md").read_text(encoding="utf-8")
    line = (
        r"(?m)^\| \[(\w+)\]\(\.\./notebooks/\1\.ipynb\): .+ \| (\w+) \| (\d+) \| (\d*) \| (\w*) \|$"
    )
    found = {}
    for name, road, minutes, core, after in re.findall(line, page):
        found[name] = (road, int(minutes), int(core) if core else None, after)
    return found


def test_quickstart_and_map_have_every_notebook_and_the_readme_links_the_map():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"[map](docs/course.md) of {NUMBER_WORDS[len(NAMES)]} notebooks" in readme
    quickstart = "\n".join(prose(stored(NOTEBOOKS[0])))
    assert [name for name in NAMES[1:] if name not in quickstart] == []
    assert "](../docs/course.md" in prose(stored(NOTEBOOKS[0]))[0]
    assert list(course()) == NAMES
    assert len({name[:2] for name in NAMES}) == len(NAMES)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_road_and_minutes_of_the_map_are_those_of_the_opening(path):
    road, minutes, core, after = course()[path.stem]
    opening = prose(stored(path))[0]
    words = {"core": "Core road", "optional": "Optional"}[road]
    assert f"**{words}.** It takes an estimated " in opening
    assert int(re.search(r"[Ii]t takes\b.* (\d+) minutes", opening)[1]) == minutes
    found = re.search(r"(\d+) for the core", opening)
    assert (found and int(found[1])) == core
    assert after in ("", *NAMES[: NAMES.index(path.stem)])
    for look in ("light", "dark"):
        drawing = (ROOT / "figures" / f"course-{look}.svg").read_text(encoding="utf-8")
        drawn = (
            rf">{path.stem}</text>(<text[^>]*>[^<]+</text>)<text[^>]*>{minutes} min, core {core}<"
        )
        assert re.search(drawn, drawing), f"course-{look}.svg"


def test_the_core_road_takes_three_hours_at_most():
    core = {name: line for name, line in course().items() if line[0] == "core"}
    assert [name[:2] for name in core] == ["00", "01", "02", "03", "06"]
    assert sum(line[2] for line in core.values()) <= 180
    assert [line[3] for line in core.values()] == ["", *list(core)[:-1]]
