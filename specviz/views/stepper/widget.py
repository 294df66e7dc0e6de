"""`step_through`: a recorded run, phase by phase, in a notebook, and from there in a page of its own or in a figure.

Contract: reads Traces, runs no model. The widget carries all that it shows in one compressed trait, so stepping needs no kernel; `step` and
`row` are what the reader looks at, both ways. Not known here: how anything is drawn (static/), files and browsers (`export`).
"""

import base64
import gzip
import json
import os
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anywidget
import traitlets
from IPython.display import DisplayHandle, display

from specviz.record.schema import PHASES
from specviz.record.trace import Trace
from specviz.util.text import harmless
from specviz.util.validate import is_int, is_real, require_int
from specviz.views.display import picture_wanted
from specviz.views.stepper import export
from specviz.views.stepper.assets import script, style
from specviz.views.stepper.browser import browser_starts
from specviz.views.stepper.film import Json, collector_paused, film
from specviz.views.stepper.png import with_palette

_WIDTH = 1200  # CSS px of a figure
_KEPT_WIDTH, _KEPT_SCALE = (
    1000,
    1.5,
)  # of the picture in a notebook that is kept, which is to stay small: about 200 KB
_WIDTHS, _SCALES = (400, 4000), (0.5, 4)
_JSON = json.JSONEncoder(
    separators=(",", ":"), check_circular=False
)  # to check costs a quarter of the time


class StepThrough(anywidget.AnyWidget):
    """The step-through of one run, or of two runs of the same prompts side by side; made by `step_through`.

    Attributes:
        step: round * 5 + phase, of the longer run where there are two; 0 is the first round's schedule.
        row: the chosen row of the batch, of the first run.
        theme: "auto" follows the page; "light", "dark".
        film, other: the runs, as gzipped JSON (see `specviz.views.stepper.film`); other is empty without a second run.
    """

    _esm = script()
    _css = style()

    film = traitlets.Bytes().tag(sync=True)
    other = traitlets.Bytes(b"").tag(sync=True)
    step = traitlets.Int(0).tag(sync=True)
    row = traitlets.Int(0, min=0).tag(sync=True)
    theme = traitlets.Enum(export.THEMES, "auto").tag(sync=True)
    # settings of a picture that the page shall draw, None where none is wanted; and that picture, PNG in base64
    _still_wanted = traitlets.Dict(default_value=None, allow_none=True).tag(sync=True)
    _still = traitlets.Unicode("").tag(sync=True, echo_update=False)

    def __init__(self, trace: Trace, other: Trace | None = None, *, judge: bool = True) -> None:
        _check(trace, "trace")
        self._names = [_name(trace)]
        self._rounds = trace.num_rounds
        self._places: list[DisplayHandle] = []
        films = {"film": _packed(trace, judge)}
        if other is not None:
            _check(other, "other")
            _check_same_prompts(trace, other)
            self._names.append(_name(other))
            self._rounds = max(self._rounds, other.num_rounds)
            films["other"] = _packed(other, judge)
        super().__init__(**films)

    def __repr__(self) -> str:
        return f"StepThrough({' | '.join(self._names)})"

    @traitlets.validate("step")
    def _known_step(self, proposal: traitlets.Bunch) -> int:
        return _checked_step(proposal["value"], self._rounds)

    def export_html(self, path: str | os.PathLike[str]) -> None:
        """Write the step-through as one self-contained page, which opens at the step that is shown now and needs no network and no kernel.

        Raises OSError: the file cannot be written.
        """
        settings = {"step": self.step, "row": self.row, "theme": self.theme}
        title = f"specviz: {' | '.join(self._names)}"
        export.write(path, export.page(title, self._films, settings).encode())

    def export_png(
        self, path: str | os.PathLike[str], step: int | None = None, row: int | None = None, *, theme: str = "light", width: int = _WIDTH,
        scale: float = 2,
    ) -> None:  # fmt: skip
        """Write one step as a figure: the sentence, the batch with its legend, mask and verification of a row, and what is violated.

        Args:
            path: of the file.
            step, row: as the attributes; None for what is shown now.
            theme: "light" or "dark".
            width: of the figure in CSS px, 400 to 4000; a column of a paper is about 700.
            scale: pixels for each of them, 0.5 to 4.

        Raises:
            ValueError: an argument cannot be used.
            OSError: there is no Chromium, Chrome or Edge to draw with, or the file cannot be written.
        """
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
        """Write the same figure as vectors with text as text; arguments and errors as `export_png`."""
        export.write(path, self._figure("svg", step, row, theme, width, 1))

    @property
    def _films(self) -> list[bytes]:
        return [self.film, *([self.other] if self.other else [])]

    def _figure(
        self, kind: str, step: int | None, row: int | None, theme: str, width: int, scale: float
    ) -> bytes:
        if theme not in export.THEMES[1:]:
            raise ValueError(f"theme={theme!r} is no theme of a figure; choose light or dark")
        for name, value, (low, high) in (("width", width, _WIDTHS), ("scale", scale, _SCALES)):
            if not is_real(value) or not low <= value <= high:
                raise ValueError(f"{name}={value!r} is no number from {low} to {high}; choose one")
        shown = {
            "step": self.step if step is None else _checked_step(step, self._rounds),
            "row": self.row if row is None else require_int("row", row, minimum=0),
        }
        return export.figure(
            self._films,
            {"format": kind, "theme": theme, "width": float(width), "scale": float(scale), **shown},
        )

    def _kept(self) -> dict[str, Any]:
        """Metadata of the picture in a notebook: nbconvert reads alt; by width and background stepper.css knows it."""
        told = json.loads(gzip.decompress(self.film))["rounds"]
        number, phase = divmod(min(self.step, len(told) * len(PHASES) - 1), len(PHASES))
        alt = f"Step-through of {' and '.join(self._names)}; round {number}, {PHASES[phase]}: {told[number]['stages'][phase]['words']}"
        return {"image/png": {"width": _KEPT_WIDTH, "alt": alt}, "needs_background": "light"}

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The widget, and for pages that run none a picture of the step, under the same rule as charts (see `display`)."""
        data, metadata = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]  # None only without a view
        if picture_wanted() and browser_starts():
            data |= _as_output(self._figure("png", None, None, "light", _KEPT_WIDTH, _KEPT_SCALE))
            metadata = {**metadata, **self._kept()}
        return data, metadata

    def _ipython_display_(self) -> None:
        """In a live session: the widget, and under it a place for its picture, for who opens the saved notebook without this kernel.

        The page draws it when it has nothing else to do, and hides it as long as the widget is there. Not part of the same output,
        since JupyterLab shows an error in place of a widget whose kernel is gone, whatever else the output holds.
        """
        if picture_wanted():
            raise NotImplementedError  # IPython then takes what _repr_mimebundle_ returns
        data, metadata = self._repr_mimebundle_()
        self._still_wanted = {"format": "png", "theme": "light", "width": _KEPT_WIDTH, "scale": 1}
        display(data, metadata=metadata, raw=True)
        self._places.append(display({"text/html": ""}, raw=True, display_id=True))

    @traitlets.observe("_still")
    def _keep_still(self, change: traitlets.Bunch) -> None:
        if not change["new"]:
            return
        for place in self._places:
            place.update(
                _as_output(base64.b64decode(change["new"])) | {"text/plain": repr(self)},
                metadata=self._kept(),
                raw=True,
            )
        self._places.clear()
        self.set_trait("_still_wanted", None)
        self._still = ""


def step_through(
    trace: Trace,
    other: Trace | None = None,
    *,
    round: int = 0,
    phase: str = PHASES[0],
    row: int = 0,
    judge: bool = True,
) -> StepThrough:
    """Step through a recorded run: tokens, positions, masks and K/V of every row after every phase.

    Press ? in the view for its keys. A notebook that is executed and stored keeps a static
    picture of the step at which the view opens.

    Args:
        trace: `result.trace` of a run with `record=True`, or `Trace.load(path)`.
        other: a run of the same prompts, shown beside the first one.
        round, phase: where the view opens: right after this phase of this round of `trace`.
        row: the row of the batch that is selected.
        judge: whether to check the invariants and report violations; pass False to look for
            them yourself.

    Raises:
        ValueError: an argument is not a trace, the two runs have different prompts, or there is
            no such round, phase or row.
    """
    view = StepThrough(trace, other, judge=judge)
    view.step = _step_of(trace, round, phase)
    view.row = require_int("row", row, minimum=0)
    return view


def save_replay(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    other: str | os.PathLike[str] | None = None,
    step: int = 0,
) -> None:
    """Turn a saved record, or two, into a file to look at, by the end of its name: a page (.html), or a figure of one step (.png, .svg).

    Args:
        path, other: of the records.
        out: of the file.
        step: round * 5 + phase: where the page opens, or what the figure shows.

    Raises:
        ValueError: an argument cannot be used; TraceError, which is one, for a file that holds no record.
        OSError: a figure without a browser, or a file that cannot be written.
    """
    exports = {
        ".html": StepThrough.export_html,
        ".png": StepThrough.export_png,
        ".svg": StepThrough.export_svg,
    }
    kind = Path(out).suffix.lower()
    if kind not in exports:
        raise ValueError(
            f"out={os.fspath(out)!r} has no known ending; choose one of {', '.join(exports)}"
        )
    shown = step_through(Trace.load(path), None if other is None else Trace.load(other))
    shown.step = _checked_step(step, shown._rounds)
    exports[kind](shown, out)


def _check(trace: object, name: str) -> None:
    if trace is None:
        raise ValueError(
            f"{name}=None: the run was not recorded; run it again with record=True and pass result.trace"
        )
    if not isinstance(trace, Trace):
        remedy = (
            "pass its .trace"
            if hasattr(trace, "trace")
            else "pass result.trace of a run with record=True, or Trace.load(path)"
        )
        raise ValueError(f"{name}={type(trace).__name__} is no Trace; {remedy}")
    if trace.num_rounds == 0:
        raise ValueError(
            f"{name}={trace!r} has no rounds, so there is nothing to step through; run it with a budget of at least 1"
        )


def _check_same_prompts(trace: Trace, other: Trace) -> None:
    if trace.num_requests != other.num_requests:
        raise ValueError(
            f"other has {other.num_requests} prompts and trace {trace.num_requests}; pass two runs of the same prompts"
        )
    for request in range(trace.num_requests):
        if trace.prompt(request) != other.prompt(request):
            raise ValueError(
                f"other has another prompt {request} than trace; pass two runs of the same prompts, in the same order"
            )


def _step_of(trace: Trace, round: object, phase: object) -> int:
    last = trace.num_rounds - 1
    if not is_int(round) or not 0 <= round <= last:
        raise ValueError(
            f"round must be an int from 0 to {last}, got {round!r}; the run has {last + 1} rounds"
        )
    if phase not in PHASES:
        raise ValueError(f"phase must be one of {', '.join(PHASES)}, got {phase!r}")
    return int(round) * len(PHASES) + PHASES.index(str(phase))


def _checked_step(step: object, rounds: int) -> int:
    last = rounds * len(PHASES) - 1
    if not is_int(step) or not 0 <= step <= last:
        raise ValueError(
            f"step={step!r} is not in this run; choose a whole number from 0 to {last}: round * {len(PHASES)} + phase"
        )
    return int(step)


def _name(trace: Trace) -> str:
    return f"{harmless(trace.meta['strategy'])}, {trace.num_rounds} rounds, {trace.num_requests} requests"


def _as_output(png: bytes) -> dict[str, str]:
    return {"image/png": base64.b64encode(with_palette(png)).decode()}


def _packed(trace: Trace, judge: bool) -> bytes:
    """The film as gzipped JSON; while one part of it is written, those before are packed."""
    packer = zlib.compressobj(4, wbits=31)  # level 6: 13 % less, in thrice the time; 31: gzip
    with collector_paused(), ThreadPoolExecutor(1) as worker:
        packed = [worker.submit(packer.compress, part) for part in _parts(film(trace, judge=judge))]
    return b"".join([each.result() for each in packed] + [packer.flush()])


def _parts(told: Json) -> Iterator[bytes]:
    """The JSON of a film in parts, the longest first."""
    for n, name in enumerate(sorted(told, key=lambda name: name != "rounds")):
        yield f'{"," if n else "{"}"{name}":{_JSON.encode(told[name])}'.encode()
    yield b"}"
