"""Stored notebooks are readable without a kernel.

They were run in order, keep outputs and pictures, have short cells, are small, and hold nothing
private. `test_course.py` checks what a notebook contains, `test_prose.py` its links and words.
nbval checks that the stored outputs are what the code prints today; its settings are tested here.
"""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook, new_output

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted(
    path for path in (ROOT / "notebooks").rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts
)
MAX_CELL_LINES, MAX_MEDIAN_LINES, MAX_BYTES = 12, 7, 2**20
WIDGET, CHART = "application/vnd.jupyter.widget-view+json", "application/vnd.plotly.v1+json"
LOCAL_PATH = re.compile(
    r"(?<![\w.:/~-])/(?:home|Users|root|tmp|var|opt|usr|mnt|work|workspace|content|private)/\w|\b[A-Z]:\\{1,2}\w"
)


@cache
def stored(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Code cells that hold any code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def runs_in_order(notebook: NotebookNode) -> list[str]:
    counts = [cell.execution_count for cell in code_cells(notebook)]
    return [] if counts == list(range(1, len(counts) + 1)) else [f"execution counts {counts}"]


def outputs_of(notebook: NotebookNode) -> list[NotebookNode]:
    return [output for cell in code_cells(notebook) for output in cell.outputs]


def shows_its_outputs(notebook: NotebookNode) -> list[str]:
    cells = code_cells(notebook)
    problems = [
        f"nothing below a cell that shows something: {cell.source!r}"
        for cell in cells
        if shows(cell.source) and not cell.outputs
    ]
    shown = sum(bool(cell.outputs) for cell in cells)
    if 3 * shown < len(cells) or not cells:
        problems.append(f"only {shown} of {len(cells)} code cells have outputs")
    return problems


def shows_pictures(notebook: NotebookNode) -> list[str]:
    """A widget or a plotly chart also has a static image, and text for those who see neither."""
    problems = []
    for output in outputs_of(notebook):
        kinds = set(output.get("data", ()))
        if not {WIDGET, CHART} & kinds:
            continue
        problems += [f"no {kind}: {sorted(kinds)}" for kind in {"image/png", "text/plain"} - kinds]
        # What nbconvert gives a picture for those who do not see it.
        if CHART in kinds and not output.metadata.get("image/png", {}).get("alt"):
            problems.append(f"no alt: {sorted(kinds)}")
    return problems


def shows(source: str) -> bool:
    """Tell whether a cell certainly has an output.

    It has one if it prints or displays outside any block, or if its last line is only a name.
    """
    statements = ast.parse(
        "\n".join("pass" if line.startswith(("%", "!")) else line for line in source.splitlines())
    ).body
    expressions = [node.value for node in statements if isinstance(node, ast.Expr)]
    calls = [node.func for node in expressions if isinstance(node, ast.Call)]
    named = (
        bool(statements)
        and isinstance(statements[-1], ast.Expr)
        and isinstance(statements[-1].value, ast.Name | ast.Attribute)
    )
    silent = source.rstrip().endswith(";")
    return (named and not silent) or any(
        isinstance(call, ast.Name) and call.id in {"print", "display"} for call in calls
    )


def has_no_errors(notebook: NotebookNode) -> list[str]:
    """Neither errors nor warnings, which go to stderr."""
    return [
        str(output)
        for output in outputs_of(notebook)
        if output.output_type == "error" or output.get("name") == "stderr"
    ]


def has_short_cells(notebook: NotebookNode) -> list[str]:
    """No cell has more than twelve lines, blank ones left out, and most have far fewer."""
    sources = {cell.id: cell.source.splitlines() for cell in code_cells(notebook)}
    lengths = {name: sum(bool(line.strip()) for line in found) for name, found in sources.items()}
    problems = [
        f"cell {name} has {count} lines that are not blank, at most {MAX_CELL_LINES} are allowed"
        for name, count in lengths.items()
        if count > MAX_CELL_LINES
    ]
    lines = [len(found) for found in sources.values()]
    if lines and median(lines) > MAX_MEDIAN_LINES:
        problems.append(f"median cell of {median(lines)} lines")
    return problems


def is_small(notebook: NotebookNode) -> list[str]:
    count = len(nbformat.writes(notebook).encode())
    return [f"{count} bytes"] if count > MAX_BYTES else []


def needs_no_set_up(notebook: NotebookNode) -> list[str]:
    return [
        found[0]
        for cell in code_cells(notebook)
        for found in re.finditer(r"\bsys\.path\b|\bpip3? install\b", cell.source)
    ]


def keeps_paths_to_itself(notebook: NotebookNode) -> list[str]:
    texts = [cell.source for cell in notebook.cells]
    texts += [text for output in outputs_of(notebook) for text in output_texts(output)]
    return [
        text[found.start() : found.end() + 40]
        for text in texts
        for found in LOCAL_PATH.finditer(text)
    ]


def output_texts(value: Any) -> list[str]:
    """All strings in an output, without pictures, whose base64 may spell anything."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = [part for key, part in value.items() if key not in {"image/png", "image/jpeg"}]
    return (
        [text for part in value for text in output_texts(part)] if isinstance(value, list) else []
    )


def stores_no_widget_state(notebook: NotebookNode) -> list[str]:
    """It goes stale; a widget brings its own static picture."""
    return ["metadata.widgets"] if "widgets" in notebook.metadata else []


CHECKS = (
    runs_in_order,
    shows_its_outputs,
    has_no_errors,
    has_short_cells,
    is_small,
    needs_no_set_up,
    keeps_paths_to_itself,
    stores_no_widget_state,
    shows_pictures,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook(path, check):
    assert check(stored(path)) == []


def run_nbval(folder: Path, stored: str, source: str) -> subprocess.CompletedProcess[str]:
    """Run `pytest --nbval` with the project's settings on a notebook of one cell.

    The cell's stored output is `stored`.
    """
    cell = new_code_cell(source, execution_count=1, outputs=[new_output("stream", text=stored)])
    nbformat.write(new_notebook(cells=[cell]), folder / "tiny.ipynb")
    options = ["-c", "pyproject.toml", "-p", "no:cacheprovider", "--nbval"]
    command = [sys.executable, "-m", "pytest", *options, str(folder / "tiny.ipynb")]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


SHOWN = (
    "tokens 17, 3 rounds in 0.25 s, 68 tokens/s on cpu, torch 2.11.0, 2024-05-06, "
    "<A object at 0x7f00deadbeef>"
)


@pytest.mark.slow
def test_nbval_forgives_the_machine(tmp_path):
    stored = (
        "tokens 17, 3 rounds in 1.5 s, 11.3 tokens/s on cuda:0, torch 2.13.0+cpu, 2026-01-02, "
        "<A object at 0x7fffdeadbeef>"
    )
    run = run_nbval(tmp_path, stored + "\n", f"print({SHOWN!r})")
    assert run.returncode == 0, run.stdout
    assert "1 passed" in run.stdout


@pytest.mark.slow
def test_nbval_refuses_another_output(tmp_path):
    run = run_nbval(tmp_path, SHOWN.replace("17", "18") + "\n", f"print({SHOWN!r})")
    assert run.returncode == 1
    assert "Cell outputs differ" in run.stdout
