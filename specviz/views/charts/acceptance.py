"""`acceptance_map` and `acceptance_by_position`: which drafts of a run were accepted.

Contract: reads the counts of a Trace or a Result; returns a plotly Figure of fixed size.
"""

import numpy as np
import plotly.graph_objects as go

from specviz import metrics
from specviz.metrics import RecordedRun, check_recorded
from specviz.views.charts.canvas import WIDTH, Look, boxes, canvas, lines, texts, title
from specviz.views.theme import BLUE, GREEN, Theme, ThemeName, solid, themed, tint

# all in px
_LARGEST_CELL = 26.0
_READABLE_ROW = 12  # in lower rows nothing can be written
_READABLE_CELL = 13


def acceptance_map(run: RecordedRun, *, theme: ThemeName = "auto") -> go.Figure:
    """Draw the number of accepted drafts a of each request in each of its rounds.

    Requests go down, each one's own rounds to the right, counted from 0. The mean acceptance
    length of each request is drawn at the side.

    Raises ValueError when the run has no rounds, or is None.
    """
    check_recorded(run)
    accepted = _accepted_per_request(run)
    if not accepted:
        raise ValueError("run must have rounds, got none; pass a run that decoded something")
    painted = themed(theme)
    rounds = max(len(counts) for counts in accepted.values())
    drafts = run.meta["num_draft_tokens"]
    left = 84
    top = 92
    cell = min(_LARGEST_CELL, 600 / rounds)
    row = min(_LARGEST_CELL, max(3.0, 520 / len(accepted)))
    figure = canvas(painted, WIDTH, top + len(accepted) * row + 20)

    grid = np.full((len(accepted), rounds), np.nan)
    for line, counts in zip(grid, accepted.values(), strict=True):
        line[: len(counts)] = counts
    heatmap = _heatmap(grid, painted, drafts, cell, row)
    figure.add_trace(heatmap.update(x0=left + cell / 2, y0=top + row / 2))

    middles = [top + row * (number + 0.5) for number in range(len(accepted))]
    if row >= _READABLE_ROW:
        names = [painted.inked(f"request {request}") for request in accepted]
        figure.add_trace(texts("requests", 8, middles, names, 11.5, "right"))
    figure.add_traces(_mean_lengths(run, painted, left + rounds * cell + 34, middles, row))

    ticks = range(0, rounds, 5)
    columns = [left + cell * (tick + 0.5) for tick in ticks]
    numbers = [painted.faded(str(tick)) for tick in ticks]
    figure.add_trace(texts("ticks", columns, top - 10, numbers, 10))
    figure.add_trace(texts("axis", 8, top - 10, [painted.faded("its round")], 10, "right"))

    heading = f"{run.meta['strategy']} · accepted drafts"
    subtitle = f"how many of its {drafts} drafts each request accepted in each of its rounds"
    figure.add_traces(title(painted, heading, subtitle))
    return figure.update_layout(showlegend=False)


def _accepted_per_request(run: RecordedRun) -> dict[int, list[int]]:
    """Return for each request its accepted drafts a, by rounds in which it gained tokens."""
    working = run.rows["gained"] > 0
    requests = run.rows["request"][working].tolist()
    accepted = run.rows["accepted"][working].tolist()
    by_request: dict[int, list[int]] = {}
    for request, count in zip(requests, accepted, strict=True):
        by_request.setdefault(request, []).append(count)
    return dict(sorted(by_request.items()))


def _heatmap(grid: np.ndarray, theme: Theme, drafts: int, cell: float, row: float) -> go.Heatmap:
    """Draw cells tinted by their value 0..drafts, with the value in them where it can be read."""
    readable = min(cell, row) >= _READABLE_CELL
    return go.Heatmap(
        meta={"kind": "acceptance"},
        z=grid.tolist(),
        dx=cell,
        dy=row,
        zmin=0,
        zmax=max(drafts, 1),
        colorscale=[[0, tint(GREEN, 0.06)], [1, tint(GREEN, 0.78)]],
        showscale=False,
        xgap=2 if cell > 6 else 0,
        ygap=2 if row > 6 else 0,
        texttemplate=theme.inked("%{z}") if readable else "",
        textfont={"size": 11},
        hoverinfo="skip",
        hoverongaps=False,
    )


def _mean_lengths(
    run: RecordedRun, theme: Theme, left: float, middles: list[float], row: float
) -> list[go.Bar | go.Scatter]:
    """Draw a bar and its value for each request: mean acceptance length, from 0."""
    means = metrics.requests(run)["mean_acceptance_length"].tolist()
    scale = (WIDTH - 60 - left) / (run.meta["num_draft_tokens"] + 1)
    widths = [mean * scale for mean in means]
    height = max(row - 6, 2)
    look = Look("", BLUE, 0.3)
    tops = [middle - height / 2 for middle in middles]
    bars = boxes("means", look, left, tops, widths, height)
    words = [theme.faded("mean acceptance length")]
    above = middles[0] - row / 2 - 10
    heading = texts("means heading", left, above, words, 10, "right")
    if row < _READABLE_ROW:
        return [bars, heading]
    ends = [left + width + 5 for width in widths]
    values = [theme.inked(f"{mean:.2f}") for mean in means]
    return [bars, heading, texts("mean values", ends, middles, values, 11.5, "right")]


def acceptance_by_position(run: RecordedRun, *, theme: ThemeName = "auto") -> go.Figure:
    """Draw how often the draft at each position 1..K was accepted.

    A bar shows the share of all rounds (unconditional), a line the share of the rounds that
    accepted all drafts before it (conditional).

    Raises ValueError when the run drafted nothing, or is None.
    """
    check_recorded(run)
    if not run.rows["drafted"].any():
        raise ValueError("run must have drafts, got none; pass a run of a strategy that drafts")
    painted = themed(theme)
    table = metrics.acceptance(run)
    share = np.nan_to_num(table["acceptance"].to_numpy())  # (K,)
    conditional = np.nan_to_num(table["conditional_acceptance"].to_numpy())  # (K,)
    left = 60
    top = 86
    height = 200
    step = 84
    middles = [left + step * (number + 0.5) for number in range(len(table))]
    figure = canvas(painted, max(left + step * len(table) + 30, 520), top + height + 70)

    look = Look(painted.inked("of all rounds"), GREEN, 0.35)
    tops = [top + height * (1 - value) for value in share]
    heights = [height * value for value in share]
    bars_left = [middle - 26 for middle in middles]
    figure.add_trace(boxes("acceptance", look, bars_left, tops, 52, heights))
    levels = [top + height * (1 - value) for value in conditional]
    marks = [(x - 32, level, x + 32, level) for x, level in zip(middles, levels, strict=True)]
    legend = painted.inked("of the rounds that accepted all drafts before it")
    figure.add_trace(lines("conditional", legend, marks, solid(BLUE)))

    values = [painted.inked(f"{value:.2f}") for value in share]
    figure.add_trace(texts("values", middles, top + height - 12, values, 12))
    above = [level - 9 for level in levels]
    values = [painted.inked(f"{value:.2f}") for value in conditional]
    figure.add_trace(texts("conditional values", middles, above, values, 11))
    positions = [painted.inked(f"draft {position}") for position in table["position"]]
    figure.add_trace(texts("positions", middles, top + height + 14, positions, 11.5))
    heading = f"{run.meta['strategy']} · acceptance by draft"
    return figure.add_traces(title(painted, heading, "share of rounds that accepted the draft"))
