"""02 to 06 grow a decoder: each shows what its idea adds, in the very lines of reference/."""

import re
import textwrap
from pathlib import Path

import pytest
from nbformat import NotebookNode
from test_notebooks import stored

ROOT = Path(__file__).parents[1]
FILES = {
    "02_ragged_failure": "realign",
    "03_invariants": "realign",
    "04_eqspec": "realign",
    "05_exspec": "realign",
    "06_in_place": "inplace",
}
HEADING = "## Your decoder so far\n"
MAX_WORDS = 60
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
INDENTS = ("", " " * 4, " " * 8)  # of a block in its file; the notebook shows it without


def problems(notebook: NotebookNode, name: str, code: str) -> list[str]:
    """What is wrong with the one cell that shows lines of the file `name`, whose text is `code`."""
    cells = [cell.source for cell in notebook.cells if cell.source.startswith(HEADING)]
    if len(cells) != 1:
        return [f"{len(cells)} cells"]
    found = [] if f"(../reference/{name}.py)" in cells[0] else ["no link"]
    blocks = BLOCK.findall(cells[0])
    found += [block for block in blocks if not shows(block, code)] if blocks else ["no code"]
    words = len(BLOCK.sub("", cells[0]).split())
    return found + ([f"{words} words"] if words > MAX_WORDS else [])


def shows(block: str, code: str) -> bool:
    """Whether a block without indentation is lines of `code`, all equally far to the right."""
    is_flush = block == textwrap.dedent(block)
    return is_flush and any("\n" + textwrap.indent(block, by) in code for by in INDENTS)


def source(name: str) -> str:
    return (ROOT / "reference" / f"{name}.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("notebook", FILES)
def test_each_notebook_shows_lines_of_the_decoder(notebook):
    name = FILES[notebook]
    assert problems(stored(ROOT / "notebooks" / f"{notebook}.ipynb"), name, source(name)) == []


def test_a_line_that_is_no_longer_there_is_found():
    notebook = stored(ROOT / "notebooks" / "06_in_place.ipynb")
    drifted = source("inplace").replace("self.positions]", "self.slots]")
    assert problems(notebook, "inplace", drifted)
    assert problems(notebook, "realign", source("inplace")) == ["no link"]
    assert problems(stored(ROOT / "notebooks" / "01_one_row.ipynb"), "inplace", "") == ["0 cells"]
