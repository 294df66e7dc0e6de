"""Checks of what `step_through` and the exports are given.

Contract: each raises a ValueError that says what to pass instead. Not known here: films and pages.
"""

from specviz.record.schema import PHASES
from specviz.record.trace import Trace
from specviz.util.files import check_writable
from specviz.util.validate import is_int, is_real, quoted_path, require_path, short

FIGURE_THEMES = ("light", "dark")
_EXPORTS = ("html", "png", "svg")
_FORMATS = {f".{kind}": kind for kind in (*_EXPORTS, "gif", "jpeg", "jpg", "json", "pdf", "webp")}
_FORMATS[".htm"] = "html"
_WIDTHS = (400, 4000)  # CSS px
_SCALES = (0.5, 4)  # pixels per CSS px


def check_trace(trace: object, name: str) -> None:
    """Raise ValueError unless `trace` is a Trace with at least one round."""
    if trace is None:
        raise ValueError(
            f"{name}=None: the run was not recorded; "
            "run it again with record=True and pass result.trace, or of two lanes "
            "result.lanes[0].trace and result.lanes[1].trace"
        )
    if not isinstance(trace, Trace):
        remedy = "pass result.trace of a run with record=True, or Trace.load(path)"
        if hasattr(trace, "trace"):
            lanes = getattr(trace, "lanes", ())
            both = "pass its lanes[0].trace and lanes[1].trace"
            remedy = both if lanes else "pass its .trace"
        raise ValueError(f"{name} must be a Trace, got {type(trace).__name__}; {remedy}")
    if trace.num_rounds == 0:
        raise ValueError(f"{name}={trace!r} has no rounds; run it with a budget of at least 1")


def check_same_prompts(trace: Trace, other: Trace) -> None:
    """Raise ValueError unless both have the same prompts in the same order, or are two lanes."""
    if are_lanes(trace, other):
        return
    if trace.num_requests != other.num_requests:
        raise ValueError(
            f"other has {other.num_requests} prompts and trace {trace.num_requests}; "
            "pass two runs of the same prompts"
        )
    for request in range(trace.num_requests):
        if trace.prompt(request) != other.prompt(request):
            raise ValueError(
                f"other differs from trace in prompt {request}; "
                "pass two runs of the same prompts, in the same order"
            )


def are_lanes(trace: Trace, other: Trace) -> bool:
    """Return whether two records are the two lanes of one run."""
    prompts = [
        [each.prompt(request) for request in range(each.num_requests)] for each in (trace, other)
    ]
    numbers = {each.meta.get("lane") for each in (trace, other)}
    return numbers == {0, 1} and prompts[0] == prompts[1]


def step_of(trace: Trace, round: object, phase: object) -> int:
    """Return round * 5 + phase. Raise ValueError unless the run has this round and phase."""
    last = trace.num_rounds - 1
    if not is_int(round) or not 0 <= round <= last:
        raise ValueError(
            f"round must be an int from 0 to {last}, got {short(round)}; "
            f"pass one of the run's {last + 1} rounds"
        )
    if not isinstance(phase, str) or phase not in PHASES:
        raise ValueError(
            f"phase must be one of {', '.join(PHASES)}, got {short(phase)}; choose one of them"
        )
    return int(round) * len(PHASES) + PHASES.index(str(phase))


def checked_step(step: object, num_rounds: int) -> int:
    """Return `step` as an int. Raise ValueError unless it is a step of a run of `num_rounds`."""
    last = num_rounds * len(PHASES) - 1
    if not is_int(step) or not 0 <= step <= last:
        raise ValueError(
            f"step must be an int from 0 to {last}, got {short(step)}; "
            f"pass round * {len(PHASES)} + phase"
        )
    return int(step)


def checked_row(row: object, rows: int) -> int:
    """Return `row` as an int. Raise ValueError unless it is one of a batch of `rows`."""
    last = max(rows - 1, 0)
    if not is_int(row) or not 0 <= row <= last:
        raise ValueError(
            f"row must be an int from 0 to {last}, got {short(row)}; pass a row of the batch"
        )
    return int(row)


def check_file(path: object, kind: str) -> None:
    """Raise ValueError for a path that no file can have, or that ends as a file of another format
    than `kind` does, and WriteError unless it can be written.
    """
    place = require_path("path", path)
    named = _FORMATS.get(place.suffix.lower(), kind)
    if named != kind:
        remedy = f"end it in .{kind}"
        if named in _EXPORTS:
            remedy += f", or call export_{named}"
        raise ValueError(
            f"path={quoted_path(place)} would hold {kind.upper()}, not {named.upper()}; {remedy}"
        )
    check_writable(place)


def check_figure(theme: object, width: object, scale: object) -> None:
    """Raise ValueError unless a figure can have this theme, width and scale."""
    if not isinstance(theme, str) or theme not in FIGURE_THEMES:
        raise ValueError(f"theme must be light or dark, got {short(theme)}; choose one of them")
    for name, value, (low, high) in (("width", width, _WIDTHS), ("scale", scale, _SCALES)):
        if not is_real(value) or not low <= value <= high:
            raise ValueError(
                f"{name} must be a number from {low} to {high}, got {short(value)}; choose one"
            )
