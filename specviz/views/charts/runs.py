"""Charts of recorded runs: one round as a picture, acceptance per request and per position, time per phase.

Contract: each function reads a Trace or a Result (`acceptance_map`, `stage_bars` and `acceptance_by_position` need its counts
alone) and returns a plotly Figure of fixed size. theme: "auto" takes its text colour from the page that it lands on; "light"
and "dark" bring their own page, for files. `show` displays one in a notebook. None, the trace of a run that was not recorded,
raises ValueError. Not known here: models.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from specviz import metrics
from specviz.metrics import Run, check_recorded
from specviz.record.schema import PHASES
from specviz.util.text import escape, shorten
from specviz.views.charts.canvas import Look, boxes, canvas, lines, texts, write_into
from specviz.views.charts.picture import batch_picture
from specviz.views.display import show, to_png
from specviz.views.theme import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SANS,
    Theme,
    ThemeName,
    solid,
    themed,
    tint,
)

__all__ = [
    "acceptance_by_position",
    "acceptance_map",
    "batch_picture",
    "pick_ragged_round",
    "show",
    "stage_bars",
    "to_png",
]

WIDTH = 900  # px, of every chart here but the narrow one
_SMALLEST = 1e-9  # of what bars are scaled to: a record without times has bars without length
PHASE_LOOKS = {
    "schedule": Look("schedule", tint(GREY, 0.3), solid(GREY), 1),
    "draft": Look("draft", tint(BLUE, 0.22), solid(BLUE), 1),
    "verify": Look("verify", tint(BLUE, 0.6), solid(BLUE), 1),
    "accept": Look("accept", tint(GREEN, 0.35), solid(GREEN), 1),
    "synchronise": Look(
        "synchronise", tint(ORANGE, 0.3), solid(ORANGE), 1, hatch=tint(ORANGE, 0.6)
    ),
}


def pick_ragged_round(run: Run) -> int:
    """The round that shows raggedness best: a full batch at work, a full and an empty acceptance, many different a in between.

    Of equals the first. Raises ValueError when the run has no rounds or drafted nothing.
    """
    check_recorded(run)
    scores = {round: _raggedness(run, round) for round in range(len(run.rounds["batch"]))}
    if not scores or max(score[0] for score in scores.values()) == 0:
        raise ValueError("the run drafted nothing, so no round is ragged; choose a run with drafts")
    return max(scores, key=lambda round: (*scores[round], -round))


def _raggedness(run: Run, round: int) -> tuple[int, int, int]:
    """(rows that drafted and go on, whether a = 0 and a = K occur, different a) of one round; to be compared."""
    here = (run.rows["round"] == round) & (run.rows["drafted"] > 0)
    accepted = run.rows["accepted"][here]
    going_on = int((run.rows["finished"][here] == 0).sum())
    extremes = int((accepted == 0).any()) + int((accepted == run.rows["drafted"][here]).any())
    return going_on, extremes, len(np.unique(accepted))


def acceptance_map(run: Run, *, theme: ThemeName = "auto") -> go.Figure:
    """Requests down, each one's own rounds to the right, counted from 0, the number of accepted drafts a as colour and figure; its
    mean at the side.

    Raises ValueError when the run has no rounds.
    """
    check_recorded(run)
    lists = _accepted_per_request(run)
    if not lists:
        raise ValueError("the run has no rounds; choose one that decoded something")
    rounds, drafts = max(map(len, lists.values())), run.meta["num_draft_tokens"]
    painted, row = themed(theme), min(26.0, max(3.0, 520 / len(lists)))
    left, top, cell = 84, 92, min(26.0, 600 / rounds)
    figure = canvas(painted, WIDTH, top + len(lists) * row + 20)
    grid = np.full((len(lists), rounds), np.nan)
    for line, accepted in zip(grid, lists.values(), strict=True):
        line[: len(accepted)] = accepted
    figure.add_trace(_heat(grid, painted, drafts, left + cell / 2, top + row / 2, cell, row))
    middles = [top + row * (number + 0.5) for number in range(len(lists))]
    if row >= 12:
        figure.add_trace(
            texts(
                "requests",
                [8] * len(lists),
                middles,
                [painted.inked(f"request {name}") for name in lists],
                11.5,
                "right",
            )
        )
    figure.add_traces(_mean_lengths(run, painted, left + rounds * cell + 34, middles, row))
    ticks = range(0, rounds, 5)
    numbers = [painted.faded(str(tick)) for tick in ticks]
    figure.add_trace(
        texts(
            "ticks",
            [left + cell * (tick + 0.5) for tick in ticks],
            [top - 10] * len(ticks),
            numbers,
            10,
        )
    )
    words = f"each line is a request, each cell one of its rounds: how many of its {drafts} drafts were accepted"
    figure.add_traces(_title(painted, f"{run.meta['strategy']} · accepted drafts", words))
    figure.add_trace(texts("axis", [8], [top - 10], [painted.faded("its round")], 10, "right"))
    return figure.update_layout(showlegend=False)


def _accepted_per_request(run: Run) -> dict[int, list[int]]:
    """Accepted drafts a in each round in which a request was at work, by request."""
    lists: dict[int, list[int]] = {}
    working = run.rows["gained"] > 0
    for request, accepted in zip(
        run.rows["request"][working].tolist(), run.rows["accepted"][working].tolist(), strict=True
    ):
        lists.setdefault(request, []).append(accepted)
    return dict(sorted(lists.items()))


def _heat(
    grid: np.ndarray, theme: Theme, most: int, x0: float, y0: float, dx: float, dy: float
) -> go.Heatmap:
    """Cells tinted by their value 0..most, with the value in them where it can be read."""
    readable = min(dx, dy) >= 13
    return go.Heatmap(
        meta={"kind": "acceptance"}, z=grid.tolist(), x0=x0, dx=dx, y0=y0, dy=dy, zmin=0, zmax=max(most, 1), showscale=False,
        xgap=2 if dx > 6 else 0, ygap=2 if dy > 6 else 0, colorscale=[[0, tint(GREEN, 0.06)], [1, tint(GREEN, 0.78)]],
        texttemplate=theme.inked("%{z}") if readable else "", textfont={"size": 11}, hoverinfo="skip", hoverongaps=False,
    )  # fmt: skip


def _mean_lengths(
    run: Run, theme: Theme, left: float, middles: list[float], row: float
) -> list[go.Bar | go.Scatter]:
    """A bar and its value for each request: mean acceptance length, from 0."""
    means = metrics.requests(run)["mean_acceptance_length"].tolist()
    scale = (WIDTH - 60 - left) / (run.meta["num_draft_tokens"] + 1)
    top = [middle - max(row - 6, 2) / 2 for middle in middles]
    bars = boxes(
        "means",
        Look("", tint(BLUE, 0.3), solid(BLUE), 1),
        [left] * len(means),
        top,
        [mean * scale for mean in means],
        max(row - 6, 2),
    )
    heading = texts(
        "means heading",
        [left],
        [middles[0] - row / 2 - 10],
        [theme.faded("mean acceptance length")],
        10,
        "right",
    )
    if row < 12:
        return [bars, heading]
    values = [theme.inked(f"{mean:.2f}") for mean in means]
    return [
        bars,
        heading,
        texts(
            "mean values",
            [left + mean * scale + 5 for mean in means],
            middles,
            values,
            11.5,
            "right",
        ),
    ]


def stage_bars(runs: Mapping[str, Run], *, theme: ThemeName = "auto") -> go.Figure:
    """Milliseconds of a round by phase, one bar for each run, and the tokens per second that come of it.

    runs: by the names that the chart shall show. Raises ValueError when there are none.
    """
    if not runs:
        raise ValueError("runs is empty; pass at least one run")
    for name, run in runs.items():
        check_recorded(run, f"runs[{name!r}]")
    painted, top, row = themed(theme), 96, 62
    figure = canvas(painted, WIDTH, top + len(runs) * row + 34)
    parts = {
        name: metrics.stage_totals(run).set_index("phase")["ms_per_round"].to_dict()
        for name, run in runs.items()
    }
    speeds = np.nan_to_num(
        [metrics.summary(run)["tokens_per_s"].iloc[0] for run in runs.values()]
    ).tolist()
    tops = [top + row * number for number in range(len(runs))]
    names = [painted.inked(f"<b>{escape(shorten(name, 40))}</b>") for name in runs]
    left = 30 + 7.2 * min(max(map(len, runs)), 40)
    figure.add_trace(texts("runs", [8] * len(runs), [y + 13 for y in tops], names, 12.5, "right"))
    figure.add_traces(
        _phase_bars(list(parts.values()), painted, left=left, width=562 - left, tops=tops)
    )
    figure.add_traces(_speed_bars(speeds, painted, left=650, width=170, tops=tops))
    for x, text in ((left, "milliseconds a round"), (650, "tokens per second")):
        figure.add_trace(texts(text, [x], [top - 14], [painted.faded(text)], 10.5, "right"))
    words = "where a round's time goes; with speculation a round takes longer and gains more tokens"
    figure.add_traces(_title(painted, "Time by phase", words))
    return figure


def _phase_bars(
    parts: list[dict[str, float]], theme: Theme, left: float, width: float, tops: Sequence[float]
) -> list[go.Bar | go.Scatter]:
    """A bar of five segments for each run; what is too narrow for its label is told below the bar."""
    scale = width / max(_SMALLEST, *(sum(part.values()) for part in parts))
    offsets = [dict(zip(PHASES, np.cumsum([0, *part.values()]), strict=False)) for part in parts]
    inside = [
        {phase for phase in PHASES if part[phase] * scale > 7.5 * len(phase) + 28} for part in parts
    ]
    traces: list[go.Bar | go.Scatter] = []
    for phase in PHASES:
        bars = boxes(
            phase,
            PHASE_LOOKS[phase],
            [left + at[phase] * scale for at in offsets],
            tops,
            [p[phase] * scale for p in parts],
            26,
        )
        labels = [
            f"{phase} {part[phase]:.1f}" if phase in fits else ""
            for part, fits in zip(parts, inside, strict=True)
        ]
        traces.append(
            write_into(bars, labels, theme.inked("%{text}"), 11.5, SANS).update(
                name=theme.inked(phase), marker_cornerradius=2
            )
        )
    ends = [left + sum(part.values()) * scale + 6 for part in parts]
    totals = [theme.inked(f"<b>{sum(part.values()):.1f}</b>") for part in parts]
    rest = [
        " · ".join(f"{p} {part[p]:.2f}" for p in PHASES if p not in fits)
        for part, fits in zip(parts, inside, strict=True)
    ]
    small = texts(
        "small phases",
        [left] * len(parts),
        [y + 38 for y in tops],
        [theme.faded(text) for text in rest],
        10.5,
        "right",
    )
    return [*traces, texts("totals", ends, [y + 13 for y in tops], totals, 12, "right"), small]


def _speed_bars(
    speeds: list[float], theme: Theme, left: float, width: float, tops: Sequence[float]
) -> list[go.Bar | go.Scatter]:
    widths = [speed * width / max(_SMALLEST, *speeds) for speed in speeds]
    bars = boxes(
        "speeds",
        Look("", tint(GREY, 0.3), solid(GREY), 1, corner_px=2),
        [left] * len(speeds),
        tops,
        widths,
        26,
    )
    values = [theme.inked(f"<b>{speed:.0f}</b>") for speed in speeds]
    return [
        bars,
        texts(
            "speed values",
            [left + w + 6 for w in widths],
            [y + 13 for y in tops],
            values,
            12,
            "right",
        ),
    ]


def acceptance_by_position(run: Run, *, theme: ThemeName = "auto") -> go.Figure:
    """How often the draft at each position 1..K was accepted: of all rounds as a bar, of those that reached it as a mark.

    Raises ValueError when the run drafted nothing.
    """
    check_recorded(run)
    if not run.rows["drafted"].any():
        raise ValueError(
            "the run drafted nothing, so there are no positions; choose a run with drafts"
        )
    table, painted = metrics.acceptance(run), themed(theme)
    left, top, height, step = 60, 86, 200, 84
    middles = [left + step * (number + 0.5) for number in range(len(table))]
    figure = canvas(painted, max(left + step * len(table) + 30, 520), top + height + 70)
    share, conditional = (
        np.nan_to_num(table[name].to_numpy()) for name in ("acceptance", "conditional_acceptance")
    )
    bars = boxes(
        "acceptance", Look(painted.inked("of all rounds"), tint(GREEN, 0.35), solid(GREEN), 1), [x - 26 for x in middles],
        [top + height * (1 - value) for value in share], 52, [height * value for value in share],
    )  # fmt: skip
    y = [top + height * (1 - value) for value in conditional]
    marks = [(x - 32, level, x + 32, level) for x, level in zip(middles, y, strict=True)]
    figure.add_traces(
        [
            bars,
            lines(
                "conditional",
                painted.inked("of the rounds that accepted all drafts before it"),
                marks,
                solid(BLUE),
            ),
        ]
    )
    values = [painted.inked(f"{value:.2f}") for value in share]
    figure.add_trace(texts("values", middles, [top + height - 12] * len(table), values, 12))
    figure.add_trace(
        texts(
            "conditional values",
            middles,
            [level - 9 for level in y],
            [painted.inked(f"{value:.2f}") for value in conditional],
            11,
        )
    )
    positions = [painted.inked(f"draft {position}") for position in table["position"]]
    figure.add_trace(texts("positions", middles, [top + height + 14] * len(table), positions, 11.5))
    figure.add_traces(
        _title(
            painted,
            f"{run.meta['strategy']} · acceptance by position",
            "share of rounds in which a draft was accepted",
        )
    )
    return figure


def _title(theme: Theme, title: str, words: str) -> Sequence[go.Scatter]:
    return [
        texts("title", [8], [18], [theme.inked(f"<b>{escape(title)}</b>")], 16, "right"),
        texts("sentence", [8], [42], [theme.inked(escape(words))], 13, "right"),
    ]
