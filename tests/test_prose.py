"""Links lead somewhere, and what a text refers to exists.

Read are the notebooks and the project's Markdown files. Web addresses are not requested.
"""

import json
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PAGES = [
    *NOTEBOOKS,
    *sorted(
        path
        for pattern in (
            "*.md",
            "docs/*.md",
            "figures/*.md",
            "reference/*.md",
            "specviz/zoo/weights/*.md",
            "specviz/zoo/weights/heads/*.md",
        )
        for path in ROOT.glob(pattern)
    ),
]
GLOSSARY = ROOT / "docs" / "glossary.md"
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)|\b(?:href|src|srcset)=\"([^\"]+)\"")
ANCHOR = re.compile(r"<a\s[^>]*\bid=\"([^\"]+)\"")
HEADING = re.compile(r"(?m)^#{1,6} +(.+?) *$")
LIST_ITEM = re.compile(r" {0,3}(?:1[.)]|[-+*]) ")
IN_LIST = re.compile(r" *(?:\d+[.)]|[-+*>|#])| {2}")
PROJECT_PATH = re.compile(r"`((?:specviz|notebooks|tests|docs|figures|reference)/[\w./-]*\w)/?`")


@cache
def prose(path: Path) -> str:
    """The text of a Markdown file, or of a notebook's Markdown cells."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def anchors(path: Path) -> list[str]:
    """Places of a page that a link may name: anchors, and headings as code hosts spell them."""
    text = CODE.sub("", prose(path))
    titles = [re.sub(r"[^\w\- ]", "", title.lower()) for title in HEADING.findall(text)]
    return ANCHOR.findall(text) + [title.replace(" ", "-") for title in titles]


def dead_links(text: str, path: Path) -> list[str]:
    """Links of a text in the file `path` to missing files, or to missing places in a page."""
    problems = []
    for link in (first or second for first, second in LINK.findall(CODE.sub("", text))):
        name, _, place = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if re.match(r"[a-z]+:", link):
            continue
        if not target.exists() or ROOT not in target.parents:
            problems.append(f"{link}: no such file")
        elif place and place not in (anchors(target) if target.suffix in {".md", ".ipynb"} else ()):
            problems.append(f"{link}: no such place")
    return problems


def broken_paragraphs(text: str, _: Path) -> list[str]:
    """Lines of a paragraph that a renderer takes for the first item of a list.

    That is: a line that begins like "1. ", below one that is neither empty nor in a list.
    """
    lines = CODE.sub("", text).splitlines()
    return [
        line
        for before, line in pairwise(lines)
        if LIST_ITEM.match(line) and before.strip() and not IN_LIST.match(before)
    ]


def dead_references(text: str, path: Path) -> list[str]:
    """Notebooks, project files and exercises of this page that are named but do not exist."""
    stems = {notebook.stem for notebook in NOTEBOOKS}
    problems = [
        f"notebook {name}"
        for name in re.findall(r"\b[01]\d_[a-z][a-z_]*[a-z]\b", text)
        if name not in stems
    ]
    problems += [
        f"file {name}" for name in PROJECT_PATH.findall(text) if not (ROOT / name).exists()
    ]
    numbers = re.findall(r"(?m)^(?:\*\*|### )(\d+)\. ", prose(path))
    return problems + [
        f"exercise {number}"
        for number in re.findall(r"\bexercise (\d+)", text)
        if number not in numbers
    ]


@pytest.mark.parametrize("check", [dead_links, dead_references, broken_paragraphs])
@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page(path, check):
    assert check(prose(path), path) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_no_cell_is_empty(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert [cell["id"] for cell in cells if not "".join(cell["source"]).strip()] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_links_to_the_glossary(path):
    assert "](../docs/glossary.md" in prose(path)


def test_glossary_anchors_are_unique():
    places = ANCHOR.findall(prose(GLOSSARY))
    assert len(places) == len(set(places))
    assert {"slot", "position", "near-tie", "mean-acceptance-length"} <= set(places)


@pytest.mark.parametrize(
    ("check", "path", "text"),
    [
        (dead_links, GLOSSARY, "[a run](no-such-page.md)"),
        (dead_links, GLOSSARY, "[a word](#no-such-word)"),
        (dead_links, GLOSSARY, "[a panel](step-through.md#no-such-panel)"),
        (dead_links, GLOSSARY, '<img src="../figures/no-such-picture.png">'),
        (dead_links, GLOSSARY, "[outside](../../elsewhere.md)"),
        (dead_links, NOTEBOOKS[0], "[slot](../docs/glossary.md#slots)"),
        (dead_links, NOTEBOOKS[0], "[next](01_one_row.ipynb#no-such-section)"),
        (dead_links, NOTEBOOKS[0], "[solutions](solutions/00_quick.py)"),
        (dead_references, NOTEBOOKS[0], "as in 00_no_such_notebook"),
        (dead_references, NOTEBOOKS[0], "as in 10_no_such_notebook"),
        (dead_references, NOTEBOOKS[0], "measured in `figures/data/no-such-table.csv`"),
        (dead_references, NOTEBOOKS[0], "you will meet it in exercise 9"),
        (broken_paragraphs, GLOSSARY, "the curve crosses\n1. Neither is false"),
        (broken_paragraphs, GLOSSARY, "five rows and\n- a draft"),
    ],
)
def test_dead_links_and_references_are_found(check, path, text):
    assert check(text, path)


def test_live_links_and_references_pass():
    text = (
        "[a](#slot) [b](../README.md) [c](step-through.md#keys) <https://example.org/x#y> "
        "`[d](e.md)` 01_one_row `figures/data/bench.csv`"
    )
    assert dead_links(text, GLOSSARY) == []
    assert dead_references(text, GLOSSARY) == []
    assert dead_references("see exercise 1", NOTEBOOKS[0]) == []
    assert broken_paragraphs("one\n\n1. two\n   three\n2. four\n\n- five\n- six", GLOSSARY) == []
