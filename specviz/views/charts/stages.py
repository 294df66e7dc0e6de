"""`stage_bars`: the time of a round by phase, and the throughput, of one run or several.

Contract: reads the counts and times of a Trace or a Result; returns a plotly Figure of fixed size.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from specviz import metrics
from specviz.metrics import RecordedRun, check_recorded
from specviz.record.schema import PHASES
from specviz.util.text import escape, shorten
from specviz.util.validate import require_mapping
from specviz.views.charts.canvas import WIDTH, Look, boxes, canvas, texts, title, write_into
from specviz.views.theme import BLUE, GREEN, GREY, ORANGE, SANS, Theme, ThemeName, themed

PHASE_LOOKS = {
    "schedule": Look("schedule", GREY, 0.3),
    "draft": Look("draft", BLUE, 0.22),
    "verify": Look("verify", BLUE, 0.6),
    "accept": Look("accept", GREEN, 0.35),
    "synchronise": Look("synchronise", ORANGE, 0.3, hatched=True),
}

# all in px
_TOP = 96  # of the first bar
_ROW = 62  # from one run to the next
_BAR = 26  # height of a bar
_PHASES_END = 562  # right edge of the longest bar of phases
_SPEEDS_LEFT = 650
_SPEEDS_WIDTH = 170
_NAME_COLUMNS = 40  # a longer name of a run is cut; in characters
_SMALLEST = 1e-9  # avoids a division by zero where a record has no times


def stage_bars(runs: Mapping[str, RecordedRun], *, theme: ThemeName = "auto") -> go.Figure:
    """Draw the milliseconds of a round by phase, a bar for each run, beside its tokens per second.

    Args:
        runs: by the names that the chart shows.
        theme: see the package.

    Raises ValueError when there are no runs, or one is None.
    """
    require_mapping("runs", runs, "pass {name: run}")
    if not runs:
        raise ValueError("runs is empty; pass at least one run")
    for name, run in runs.items():
        check_recorded(run, f"runs[{name!r}]")
    painted = themed(theme)
    figure = canvas(painted, WIDTH, _TOP + len(runs) * _ROW + 34)
    tops = [_TOP + _ROW * number for number in range(len(runs))]
    names = [painted.inked(f"<b>{escape(shorten(name, _NAME_COLUMNS))}</b>") for name in runs]
    left = 30 + 7.2 * min(max(map(len, runs)), _NAME_COLUMNS)
    figure.add_trace(texts("runs", 8, [y + 13 for y in tops], names, 12.5, "right"))
    figure.add_traces(_phase_bars(list(runs.values()), painted, left, tops))
    figure.add_traces(_speed_bars(list(runs.values()), painted, tops))
    for x, heading in ((left, "milliseconds a round"), (_SPEEDS_LEFT, "tokens per second")):
        text = painted.faded(heading)
        figure.add_trace(texts(heading, x, _TOP - 14, [text], 10.5, "right"))
    subtitle = "mean of all rounds; rounds with speculation take longer and gain more tokens"
    return figure.add_traces(title(painted, "Time by phase", subtitle))


def _phase_bars(
    runs: list[RecordedRun], theme: Theme, left: float, tops: Sequence[float]
) -> list[go.Bar | go.Scatter]:
    """Draw a bar of five segments for each run. A label that does not fit goes below."""
    measured = np.array([_ms_by_phase(run) for run in runs])  # (runs, phases), NaN: not logged
    is_known = np.isfinite(measured)
    times = np.nan_to_num(measured)
    totals = times.sum(axis=1)
    scale = (_PHASES_END - left) / max(_SMALLEST, totals.max())  # px per ms
    widths = times * scale
    starts = left + np.cumsum(widths, axis=1) - widths
    label_widths = np.array([7.5 * len(phase) + 28 for phase in PHASES])
    fits = widths > label_widths
    traces: list[go.Bar | go.Scatter] = []
    for phase, ms, left_of, width, inside in zip(
        PHASES, times.T, starts.T.tolist(), widths.T.tolist(), fits.T, strict=True
    ):
        bars = boxes(phase, PHASE_LOOKS[phase], left_of, tops, width, _BAR, corner_px=2)
        labels = [
            f"{phase} {each:.1f}" if fit else "" for each, fit in zip(ms, inside, strict=True)
        ]
        write_into(bars, labels, theme.inked("%{text}"), 11.5, SANS)
        traces.append(bars.update(name=theme.inked(phase)))
    ends = (left + totals * scale + 6).tolist()
    sums = [theme.inked(_sum_words(*each)) for each in zip(totals, is_known, strict=True)]
    traces.append(texts("totals", ends, [y + 13 for y in tops], sums, 12, "right"))
    # A phase without a time has nothing to write below either.
    labelled = fits | ~is_known
    small = [theme.faded(_small_phases(*each)) for each in zip(times, labelled, strict=True)]
    below = [y + 38 for y in tops]
    traces.append(texts("small phases", left, below, small, 10.5, "right"))
    return traces


def _sum_words(total: float, is_known: np.ndarray) -> str:
    """Return the time of a round, or that a log does not say it."""
    if not is_known.any():
        return "times were not logged"
    return f"<b>{total:.1f}</b>{'' if is_known.all() else ', other times were not logged'}"


def _ms_by_phase(run: RecordedRun) -> list[float]:
    by_phase = metrics.stage_totals(run).set_index("phase")["ms_per_round"]
    return [float(by_phase[phase]) for phase in PHASES]


def _small_phases(times: np.ndarray, fits: np.ndarray) -> str:
    """Return the phases whose labels do not fit their segments, with their times."""
    parts = zip(PHASES, times, fits, strict=True)
    return " · ".join(f"{phase} {ms:.2f}" for phase, ms, inside in parts if not inside)


def _speed_bars(
    runs: list[RecordedRun], theme: Theme, tops: Sequence[float]
) -> list[go.Bar | go.Scatter]:
    measured = [metrics.summary(run)["tokens_per_s"].iloc[0] for run in runs]
    speeds = np.nan_to_num(measured).tolist()
    widths = [speed * _SPEEDS_WIDTH / max(_SMALLEST, *speeds) for speed in speeds]
    look = Look("", GREY, 0.3)
    bars = boxes("speeds", look, _SPEEDS_LEFT, tops, widths, _BAR, corner_px=2)
    shown = ["–" if np.isnan(speed) else f"<b>{speed:.0f}</b>" for speed in measured]
    values = [theme.inked(each) for each in shown]
    ends = [_SPEEDS_LEFT + width + 6 for width in widths]
    return [bars, texts("speed values", ends, [y + 13 for y in tops], values, 12, "right")]
