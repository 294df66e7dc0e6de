"""`save_replay`: a saved record, or two, as a page or a figure.

Contract: files in, a file out. Not known here: what the page shows.
"""

import os

from specviz.record.log import read_record
from specviz.util.validate import require_int, require_path
from specviz.views.stepper.widget import StepThrough, step_through


def save_replay(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    other: str | os.PathLike[str] | None = None,
    step: int | None = None,
) -> None:
    """Turn a record or a log, or two, into a page (.html), or a figure of a step (.png, .svg).

    Args:
        path, other: of the records; a log ends in .jsonl.
        out: of the file; its suffix decides what is written.
        step: round * 5 + phase: where the page opens, or what the figure shows; None for where
            `step_through` opens.

    Raises:
        ValueError: an argument cannot be used. TraceError, a ValueError, for a file without a
            record.
        OSError: a figure without a browser, or a file that cannot be written.
    """
    exports = {
        ".html": StepThrough.export_html,
        ".png": StepThrough.export_png,
        ".svg": StepThrough.export_svg,
    }
    require_path("path", path)
    kind = require_path("out", out).suffix.lower()
    if other is not None:
        require_path("other", other)
    if step is not None:
        require_int("step", step, minimum=0)
    if kind not in exports:
        raise ValueError(
            f"out must end in one of {', '.join(exports)}, got {os.fspath(out)!r}; rename the file"
        )
    view = step_through(read_record(path), None if other is None else read_record(other))
    if step is not None:
        view.step = step
        view.row = 0
    exports[kind](view, out)
