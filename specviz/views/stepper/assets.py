"""The step-through's own script and style: the files in static/ as one ES module and one style sheet, the same in a notebook and in a file.

Contract: nothing is loaded from elsewhere. Each file says in its first lines what it knows; later ones use what earlier ones define.
"""

from functools import cache
from importlib.resources import files

SCRIPTS = (
    "film", "pen", "layout", "lanes", "reading", "stage", "panels", "sight", "mask", "maskpaint", "verdicts", "verify", "pool", "time",
    "invariants", "elements", "theme", "compare", "legend", "section", "run", "keys", "controls", "figure", "ahead",
    "shell", "render",
)  # fmt: skip
PAGE, FIGURE = (
    "page",
    "picture",
)  # what a saved page and a page that only draws append to the module


@cache
def script(*more: str) -> str:
    """The module, whose default export is anywidget's `render`; more: names of files to append."""
    return "\n".join(_read(f"{name}.js") for name in (*SCRIPTS, *more))


@cache
def style() -> str:
    return _read("stepper.css")


def _read(name: str) -> str:
    return (files("specviz.views.stepper") / "static" / name).read_text(encoding="utf-8")
