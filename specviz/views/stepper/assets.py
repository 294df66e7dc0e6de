"""The step-through's script and style, the same in a notebook and in a file.

Contract: one ES module and one style sheet; nothing is loaded from elsewhere. The module is written
by esbuild from the sources in js/, which this package does not need.
"""

from functools import cache
from importlib.resources import files


@cache
def script() -> str:
    """Return the module, whose default export is anywidget's `render`."""
    return _read("stepper.js")


@cache
def style() -> str:
    """Return the style sheet."""
    return _read("stepper.css")


def _read(name: str) -> str:
    return (files("specviz.views.stepper") / "static" / name).read_text(encoding="utf-8")
