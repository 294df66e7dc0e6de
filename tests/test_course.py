"""What each notebook of the course contains.

It has an opening, predictions, prose around every code cell, exercises, a summary and the next
step. No choice was close in the runs whose text it stores, so the text is the same on another
machine.
"""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from test_notebooks import stored

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MIN_PREDICTIONS = 3


def prose(notebook: NotebookNode) -> list[str]:
    return [cell.source for cell in notebook.cells if cell.cell_type == "markdown"] or [""]


def missing(patterns: list[str], text: str) -> list[str]:
    return [f"lacks {pattern!r}" for pattern in patterns if not re.search(pattern, text)]


def opens_with_a_promise(notebook: NotebookNode) -> list[str]:
    """What the reader will be able to do, in minutes, and what it needs."""
    return missing(
        [r"^# \S", r"After this notebook you can", r"[Ii]t takes\b.* \d+ minutes", r"\bneeds\b"],
        prose(notebook)[0],
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

    Each has a folded hint and its minutes. The minutes at the top of the notebook include them.
    """
    text = "\n".join(prose(notebook))
    titles = re.findall(r"(?m)^(?:\*\*|### )(\d+)\. (.+)$", text)
    problems = [
        f"nothing to {kind}"
        for kind in ("Predict", "Write", "Debug")
        if not any(title.startswith(kind) for _, title in titles)
    ]
    minutes = [
        int(found[0]) for _, title in titles if (found := re.findall(r"\((\d+) minutes\)", title))
    ]
    if len(minutes) < len(titles):
        problems.append(f"minutes of {len(minutes)} of {len(titles)} exercises")
    promised = re.search(r"(\d+) minutes", prose(notebook)[0])
    if promised is None or sum(minutes) >= int(promised[1]):
        problems.append(f"{sum(minutes)} minutes of exercises")
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
    stated = re.findall(r"(?m)^(?:\*\*|### )\d+\. .*\((\d+) minutes\)", "\n".join(prose(notebook)))
    problems = []
    if total != core + optional + exercises:
        problems.append(f"{core} + {optional} + {exercises} is not {total}")
    if exercises != sum(map(int, stated)):
        problems.append(f"the exercises take {sum(map(int, stated))} minutes")
    return problems


def rates_its_exercises(notebook: NotebookNode) -> list[str]:
    """Each exercise has one to three dots before its minutes."""
    titles = re.findall(r"(?m)^(?:\*\*|### )\d+\. .+$", "\n".join(prose(notebook)))
    rated = r" (?:●○○|●●○|●●●) \(\d+ minutes\)"
    return [title for title in titles if not re.search(rated, title)]


def links_the_notation(notebook: NotebookNode) -> list[str]:
    return missing([r"\]\(\.\./docs/notation\.md"], prose(notebook)[0])


FORMS = (has_the_core_first, adds_up_its_minutes, rates_its_exercises, links_the_notation)
CHECKS = (
    opens_with_a_promise,
    ends_with_a_summary,
    has_prose_around_code,
    predicts_before_it_runs,
    has_exercises,
    asserts_that_no_choice_was_close,
)
OPENING = (
    "# Title\n\n**After this notebook you can** do it.\n\n"
    "**It takes** about 20 minutes and needs no GPU."
)
ASSERTED = (
    'run = sv.generate(pair, prompts, **{"record": True})\n'
    "assert metrics.smallest_gap(run.trace) > 1e-3"
)
EXERCISES = [
    f"**{number}. {kind}** (4 minutes). What?\n\n"
    "<details><summary>Hint</summary>\n\nLook.\n</details>"
    for number, kind in enumerate(("Predict", "Write", "Debug"), 1)
]
ENDING = "## Summary\n\n- That was it.\n\n**Next.** Another one."
PREDICTION = "**Before you run the next cell:** what will it be?"
# markdown and code in turns
GOOD = [
    OPENING,
    ASSERTED,
    PREDICTION,
    "1 + 1",
    PREDICTION,
    "2 + 2",
    PREDICTION,
    "3 + 3",
    "\n\n".join(EXERCISES),
    "check.it(...)",
    ENDING,
]
BROKEN = (
    (opens_with_a_promise, "After this notebook you can", "This notebook is about how to"),
    (opens_with_a_promise, "about 20 minutes", "a while"),
    (opens_with_a_promise, "needs no GPU", "is fun"),
    (opens_with_a_promise, "# Title", "Title"),
    (ends_with_a_summary, "## Summary", "## Farewell"),
    (ends_with_a_summary, "**Next.** Another one.", ""),
    (has_prose_around_code, OPENING, ""),
    (has_prose_around_code, ENDING, " \n"),
    (has_prose_around_code, "\n\n".join(EXERCISES), ""),
    (predicts_before_it_runs, "2 + 2", ""),
    (predicts_before_it_runs, PREDICTION, "Now the next cell."),
    (has_exercises, "Write", "Predict"),
    (has_exercises, "Debug", "Look at"),
    (has_exercises, "**2. Write** (4 minutes)", "**2. Write**"),
    (has_exercises, "**2. Write** (4 minutes)", "**2. Write** (40 minutes)"),
    (has_exercises, "**2. Write**", "**3. Write**"),
    (has_exercises, EXERCISES[2], "**3. Debug** (4 minutes). What?"),
    (
        asserts_that_no_choice_was_close,
        "assert metrics.smallest_gap(run.trace) > 1e-3",
        "assert run.texts",
    ),
    (asserts_that_no_choice_was_close, "assert metrics", "print(metrics"),
)


FORMED_OPENING = (
    OPENING.replace(
        "20 minutes", "20 minutes: 5 for the core, 3 for the optional part, 12 for the exercises"
    )
    + " [notation](../docs/notation.md)"
)
FORMED_EXERCISES = "\n\n".join(EXERCISES).replace(" (4 minutes)", " ●●○ (4 minutes)")
FORMED_TEXTS = [
    FORMED_OPENING,
    "1 + 1",
    "## A part\n\n## Optional\n\n### More\n\nOf it.",
    "2 + 2",
    f"## Exercises\n\n{FORMED_EXERCISES}",
    "check.it(...)",
    ENDING,
]
UNFORMED = (
    (has_the_core_first, "## Optional", "## Optional: more"),
    (has_the_core_first, "## A part", "## Optional"),
    (has_the_core_first, "### More\n", ""),
    (has_the_core_first, "## Exercises", "## Your turn"),
    (has_the_core_first, "## Exercises\n", "## Exercises\n\n## A core part\n"),
    (adds_up_its_minutes, "5 for the core", "6 for the core"),
    (adds_up_its_minutes, "(4 minutes)", "(5 minutes)"),
    (adds_up_its_minutes, "5 for the core, ", ""),
    (has_the_core_first, "3 for the optional part, ", ""),
    (adds_up_its_minutes, "3 for the optional part, ", ""),
    (rates_its_exercises, "2. Write** ●●○", "2. Write**"),
    (rates_its_exercises, "2. Write** ●●○", "2. Write** ○●●"),
    (links_the_notation, "notation.md", "glossary.md"),
)


def make_notebook(sources: list[str]) -> NotebookNode:
    """Markdown and code in turns; an empty source gives no cell."""
    kinds = [(new_markdown_cell, new_code_cell)[i % 2] for i in range(len(sources))]
    return new_notebook(
        cells=[make(source) for make, source in zip(kinds, sources, strict=True) if source]
    )


def test_the_quickstart_names_all_that_follow():
    text = "\n".join(prose(stored(NOTEBOOKS[0])))
    assert [path.stem for path in NOTEBOOKS[1:] if path.stem not in text] == []


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook(path, check):
    assert check(stored(path)) == []


@pytest.mark.parametrize("check", FORMS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_form_of_a_notebook(path, check):
    assert check(stored(path)) == []


@pytest.mark.parametrize(
    ("check", "old", "new"), UNFORMED, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_notebook_without_form_is_refused(check, old, new):
    assert check(make_notebook(FORMED_TEXTS)) == []
    broken = [source.replace(old, new) for source in FORMED_TEXTS]
    assert broken != FORMED_TEXTS
    assert check(make_notebook(broken))


def test_a_notebook_may_be_all_core():
    opening = FORMED_OPENING.replace("20 minutes: 5", "17 minutes: 5")
    opening = opening.replace("3 for the optional part, ", "")
    text = "## A part\n\nOf it."
    notebook = make_notebook([opening, "1 + 1", text, *FORMED_TEXTS[3:]])
    assert [problem for check in FORMS for problem in check(notebook)] == []


def test_a_good_notebook_passes_all_checks():
    assert {
        check.__name__: found for check in CHECKS if (found := check(make_notebook(GOOD)))
    } == {}


@pytest.mark.parametrize(
    ("check", "old", "new"), BROKEN, ids=lambda value: getattr(value, "__name__", "")
)
def test_broken_notebooks_are_refused(check, old, new):
    broken = [source.replace(old, new) for source in GOOD]
    assert broken != GOOD
    assert check(make_notebook(broken))
