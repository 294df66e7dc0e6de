"""`specviz replay`: a recorded run as a page that steps through it, or as a figure of one step."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from specviz.util.files import check_writable, make_folder
from specviz.util.text import size


def replay(
    run: Positional[Path],
    *,
    out: Annotated[Path | None, arg(aliases=["-o"])] = None,
    other: Path | None = None,
    step: int | None = None,
) -> None:
    """Turn a recorded run into a page that steps through it, or into a figure of one step.

    Args:
        run: a file saved by generate --record, or the log of any engine (.jsonl).
        out: page (.html) or figure (.png, .svg); left out, a page next to the run.
        other: a second run of the same prompts, shown next to the first.
        step: the step that the page opens at or the figure shows: round * 5 + phase (the first
            difference, violation or uneven acceptance).
    """
    from specviz.views.stepper.replays import save_replay

    path = out or run.with_suffix(".html")
    if out is not None:
        check_writable(out)
        make_folder(out.parent)
    save_replay(run, path, other, step)
    hint = "; open it in a browser and press ? for the keys" if path.suffix == ".html" else ""
    print(f"{path} ({size(path.stat().st_size)}){hint}")
