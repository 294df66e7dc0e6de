"""Write the schematics, and the page of notation as SVG and PDF."""

from html import escape
from pathlib import Path

from specviz.studies.schematics.ideas import IDEAS
from specviz.studies.schematics.notation import FORMULAS, drawing, worked
from specviz.util.files import check_writable, make_folder, write
from specviz.util.validate import require_path
from specviz.views.stepper.browser import check_browser, printed

_STYLE = """
@page { size: A4; margin: 10mm }
body { font: 8.5pt/1.3 'DejaVu Sans', sans-serif; margin: 0 }
h1 { font-size: 15pt; margin: 0 0 3mm } h2 { font-size: 11pt; margin: 4mm 0 1mm }
svg { display: block; width: 160mm; height: auto; margin: 0 auto }
table { border-collapse: collapse; width: 100% }
td { border-top: .3pt solid #999; padding: .6mm 2mm .6mm 0; vertical-align: top }
td:last-child { font-family: 'DejaVu Sans Mono', monospace; font-size: 7.5pt }
"""


def make_schematics(out: str | Path) -> list[Path]:
    """Write NAME.svg for each idea, notation.svg and notation.pdf below `out`.

    Returns:
        The files.

    Raises:
        OSError: there is no browser to print with, or a file cannot be written.
    """
    out = require_path("out", out)
    check_writable(out, folder=True)
    check_browser()
    make_folder(out)
    files = []
    for picture in [*(idea() for idea in IDEAS), drawing()]:
        path = out / f"{picture.name}.svg"
        write(path, picture.svg().encode())
        files.append(path)
    pdf = out / "notation.pdf"
    write(pdf, printed(page()))
    return [*files, pdf]


def page() -> str:
    """Return the page of notation as HTML for a printer."""
    formulas = "".join(_line(each.words, each.text) for each in FORMULAS)
    numbers = "".join(_line(words, text) for words, text in worked())
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Notation</title>'
        f"<style>{_STYLE}</style></head><body><h1>Batch speculative decoding: notation</h1>"
        f"{drawing().svg()}<h2>Formulas</h2><table>{formulas}</table>"
        f"<h2>Worked arithmetic</h2><table>{numbers}</table></body></html>"
    )


def _line(words: str, text: str) -> str:
    return f"<tr><td>{escape(words)}</td><td>{escape(text)}</td></tr>"
