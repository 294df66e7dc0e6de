"""`step_through`: a recorded run, phase by phase, in a notebook, in a page, or in a figure.

Contract: reads Traces, runs no model. The widget carries everything that it shows in one compressed
trait, so stepping needs no kernel. `step` and `row` are what the reader looks at, synchronised in
both directions. Not known here: how anything is drawn (static/), files and browsers (`export`).
"""

import base64
import gzip
import json
import os
from typing import Any

import anywidget
import traitlets
from IPython.display import DisplayHandle, display

from specviz.record.schema import PHASES
from specviz.record.trace import Trace
from specviz.util.validate import require_bool
from specviz.views.display import picture_wanted
from specviz.views.stepper import export
from specviz.views.stepper.arguments import (
    FIGURE_THEMES,
    check_figure,
    check_file,
    check_same_prompts,
    check_trace,
    checked_row,
    checked_step,
    step_of,
)
from specviz.views.stepper.assets import script, style
from specviz.views.stepper.browser import browser_starts
from specviz.views.stepper.embedded import Embedded
from specviz.views.stepper.png import as_output, with_palette
from specviz.views.stepper.reel import name_of, reel

_WIDTH = 1200  # CSS px of a figure
# Of the static picture that a notebook keeps, which should stay small: about 200 KB.
_STATIC_WIDTH = 1000
_STATIC_SCALE = 1.5


class StepThrough(anywidget.AnyWidget):
    """The step-through of one run, or of two runs of the same prompts, row by row.

    Made by `step_through`.

    Attributes:
        step: round * 5 + phase, of the longer run where there are two; 0 is the first round's
            schedule.
        row: the selected row of the batch, of the first run.
        theme: "auto" follows the page; "light", "dark".
        film, other: the runs, as gzipped JSON (see `specviz.views.stepper.film`); other is empty
            without a second run.
    """

    _esm = script()
    _css = style()

    film = traitlets.Bytes().tag(sync=True)
    other = traitlets.Bytes(b"").tag(sync=True)
    step = traitlets.Int(0).tag(sync=True)
    row = traitlets.Int(0, min=0).tag(sync=True)
    theme = traitlets.Enum(("auto", *FIGURE_THEMES), "auto").tag(sync=True)
    # Where the view opens by default: step, row, why, and by which coordinate.
    _opening = traitlets.Dict().tag(sync=True)
    # Where two runs first differ, and why.
    _difference = traitlets.Unicode("").tag(sync=True)
    # Settings of a picture that the page should draw, None where none is wanted.
    _picture_wanted = traitlets.Dict(default_value=None, allow_none=True).tag(sync=True)
    # That picture: PNG in base64.
    _picture = traitlets.Unicode("").tag(sync=True, echo_update=False)

    def __init__(self, trace: Trace, other: Trace | None = None, *, judge: bool = True) -> None:
        check_trace(trace, "trace")
        require_bool("judge", judge)
        self._names = [name_of(trace)]
        self._rounds = trace.num_rounds
        self._rows = int(trace.rounds["batch"].max())
        self._places: list[DisplayHandle] = []
        if other is not None:
            check_trace(other, "other")
            check_same_prompts(trace, other)
            self._names.append(name_of(other))
            self._rounds = max(self._rounds, other.num_rounds)
        super().__init__(**reel(trace, other, judge=judge))

    def __repr__(self) -> str:
        return f"StepThrough({' | '.join(self._names)})"

    @traitlets.validate("step")
    def _known_step(self, proposal: traitlets.Bunch) -> int:
        return checked_step(proposal["value"], self._rounds)

    @traitlets.validate("row")
    def _known_row(self, proposal: traitlets.Bunch) -> int:
        # One of any round, since the view keeps it while rounds have fewer rows.
        return checked_row(proposal["value"], self._rows)

    def go_to_opening(self) -> None:
        """Go where the view opens by default: see `step_through`."""
        self.step = self._opening["step"]
        self.row = self._opening["row"]

    def export_html(self, path: str | os.PathLike[str]) -> None:
        """Write the step-through as one self-contained page.

        It opens at the step that is shown now and needs no network and no kernel.

        Raises:
            ValueError: the path ends as a file of another format does.
            OSError: the file cannot be written.
        """
        check_file(path, "html")
        export.write(path, self._page().encode())

    def export_png(
        self,
        path: str | os.PathLike[str],
        step: int | None = None,
        row: int | None = None,
        *,
        theme: str = "light",
        width: int = _WIDTH,
        scale: float = 2,
    ) -> None:
        """Write one step as a figure.

        It shows the sentence, the batch with its legend, mask and verification of a row, and what
        is violated.

        Args:
            path: of the file; it ends in .png, or as no other format does.
            step, row: as the attributes; None for what is shown now.
            theme: "light" or "dark".
            width: of the figure in CSS px, 400 to 4000; a column of a paper is about 700.
            scale: pixels for each of them, 0.5 to 4.

        Raises:
            ValueError: an argument cannot be used.
            OSError: there is no Chromium, Chrome or Edge to draw with, or the file cannot be
                written.
        """
        check_file(path, "png")
        export.write(path, with_palette(self._figure("png", step, row, theme, width, scale)))

    def export_svg(
        self,
        path: str | os.PathLike[str],
        step: int | None = None,
        row: int | None = None,
        *,
        theme: str = "light",
        width: int = _WIDTH,
    ) -> None:
        """Write the same figure as vectors; arguments and errors as in `export_png`."""
        check_file(path, "svg")
        export.write(path, self._figure("svg", step, row, theme, width, 1))

    def _page(self) -> str:
        names = ("step", "row", "theme", "_opening", "_difference")
        settings = {name: getattr(self, name) for name in names}
        return export.page(f"specviz: {' | '.join(self._names)}", self._films, settings)

    @property
    def _films(self) -> list[bytes]:
        return [self.film, self.other] if self.other else [self.film]

    def _figure(
        self, kind: str, step: int | None, row: int | None, theme: str, width: int, scale: float
    ) -> bytes:
        check_figure(theme, width, scale)
        settings = {
            "format": kind,
            "theme": theme,
            "width": float(width),
            "scale": float(scale),
            "step": self.step if step is None else checked_step(step, self._rounds),
            "row": self.row if row is None else checked_row(row, self._rows),
            "difference": self._difference,
            "opening": self._opening,
        }
        return export.figure(self._films, settings)

    def _static_metadata(self) -> dict[str, Any]:
        """Return the metadata of the static picture in a notebook.

        nbconvert reads `alt`; stepper.css recognises the picture by its width and background.
        """
        rounds = json.loads(gzip.decompress(self.film))["rounds"]
        number, phase = divmod(min(self.step, len(rounds) * len(PHASES) - 1), len(PHASES))
        words = rounds[number]["stages"][phase]["words"]
        runs = " and ".join(self._names)
        alt = f"Step-through of {runs}; round {number}, {PHASES[phase]}: {words}"
        return {"image/png": {"width": _STATIC_WIDTH, "alt": alt}, "needs_background": "light"}

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the widget and, for pages that run no widget, a picture of the step.

        The same rule decides as for charts (see `display`).
        """
        # The result is None only without a view, which anywidget always has.
        data, metadata = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if picture_wanted() and browser_starts():
            png = self._figure("png", None, None, "light", _STATIC_WIDTH, _STATIC_SCALE)
            data |= as_output(png)
            metadata = {**metadata, **self._static_metadata()}
        return data, metadata

    def _ipython_display_(self) -> None:
        """Display the widget in a live session, and under it a place for its static picture.

        The picture is for readers who open the saved notebook without this kernel. The page draws
        it when it is idle, again after each step at which the reader rests, and hides it as long as
        the widget is there. It is not part of the same output, because JupyterLab shows an error in
        place of a widget whose kernel is gone, whatever else the output holds.
        """
        if picture_wanted():
            raise NotImplementedError  # IPython then takes what _repr_mimebundle_ returns
        data, metadata = self._repr_mimebundle_()
        display(data, metadata=metadata, raw=True)
        self.leave_picture_in(display({"text/html": ""}, raw=True, display_id=True))

    def leave_picture_in(self, place: DisplayHandle) -> None:
        """Keep a picture of the step that is shown in an output of the notebook."""
        self._picture_wanted = {
            "format": "png",
            "theme": "light",
            "width": _STATIC_WIDTH,
            "scale": 1,
        }
        self._places.append(place)

    def embed(self, height: int = 900, limit_mb: float = 1) -> Embedded:
        """Return the page of `export_html` as an output that stays alive without a kernel.

        Make it the last line of a cell. The notebook keeps the whole page, in a frame that may run
        its own script and nothing else; a code host shows no frames.

        Args:
            height: of the frame in CSS px, 200 to 4000.
            limit_mb: the most megabytes that it may add to the notebook.

        Raises:
            ValueError: an argument cannot be used, or the page is larger than `limit_mb`.
        """
        return Embedded(self._page(), repr(self), height, limit_mb)

    @traitlets.observe("_picture")
    def _keep_picture(self, change: traitlets.Bunch) -> None:
        if not change["new"]:
            return
        data = as_output(base64.b64decode(change["new"])) | {"text/plain": repr(self)}
        for place in self._places:
            place.update(data, metadata=self._static_metadata(), raw=True)
        self._picture = ""


def step_through(
    trace: Trace,
    other: Trace | None = None,
    *,
    round: int | None = None,
    phase: str | None = None,
    row: int | None = None,
    judge: bool = True,
) -> StepThrough:
    """Step through a recorded run: tokens, positions, masks and K/V of every row after every phase.

    Press ? in the view for its keys. A notebook that is executed and stored keeps a static
    picture of the step at which the view opens.

    Args:
        trace: `result.trace` of a run with `record=True`, or `Trace.load(path)`.
        other: a run of the same prompts; its rows stand below those of the first one. Or the other
            lane of the same run: the map then has both lanes on one clock.
        round, phase: where the view opens: right after this phase of this round of `trace`; by
            default the phase "schedule", round 0.
        row: the row of the batch that is selected; by default row 0. Without round, phase and row
            the view opens where two runs first differ, else at the first violation, else at the
            first round in which rows gain different numbers of tokens, and says so.
        judge: whether to check the invariants and report violations; pass False to look for
            them yourself.

    Raises:
        ValueError: an argument is not a trace, the two runs have different prompts, or there is
            no such round, phase or row.
    """
    view = StepThrough(trace, other, judge=judge)
    if round is None and phase is None and row is None:
        view.go_to_opening()
        return view
    view.step = step_of(trace, 0 if round is None else round, PHASES[0] if phase is None else phase)
    rows = int(trace.rounds["batch"][view.step // len(PHASES)])
    view.row = 0 if row is None else checked_row(row, rows)
    return view
