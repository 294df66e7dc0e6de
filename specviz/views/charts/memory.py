"""`memory_bars`: what runs hold in memory, part by part, beside a budget.

Contract: reads tables of the memory model, as `memory` returns them or `plan.parts` has them;
returns a plotly Figure of fixed size. Not known here: models and runs.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from specviz.costs.memory import ALWAYS, as_size
from specviz.util.text import escape, shorten
from specviz.util.validate import (
    require_bool,
    require_kind,
    require_mapping,
    require_positive,
    require_str,
)
from specviz.views.charts.canvas import WIDTH, Look, boxes, canvas, lines, texts, title, write_into
from specviz.views.theme import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SANS,
    Theme,
    ThemeName,
    solid,
    themed,
)

MEMORY_LOOKS = {
    "weights": Look("weights", GREY, 0.3),
    "target K/V": Look("target K/V", BLUE, 0.6),
    "draft K/V": Look("draft K/V", BLUE, 0.22),
    "logits": Look("logits", GREEN, 0.35),
    "other": Look("other", AMBER, 0.18),
    "workspace": Look("workspace of the largest phase", ORANGE, 0.3, hatched=True),
}
_SEGMENT_OF = {
    "target weights": "weights",
    "draft weights": "weights",
    "target K/V": "target K/V",
    "draft K/V": "draft K/V",
    "draft logits": "logits",
    "target logits": "logits",
}
_COLUMNS = {"part", "when", "bytes"}

# all in px
_TOP = 92  # of the first bar
_ROW = 60  # from one bar to the next
_BAR = 26  # height of a bar
_RIGHT = 690  # end of the longest bar, or the budget if that is longer
_LETTER = 7.2  # width of a letter
_NAME_COLUMNS = 32  # a longer name is cut; in characters
_SMALLEST = 1e-9  # avoids a division by zero


def memory_bars(
    tables: Mapping[str, pd.DataFrame],
    *,
    budget_bytes: float | None = None,
    weights: bool = True,
    heading: str = "Memory at its peak",
    theme: ThemeName = "auto",
) -> go.Figure:
    """Draw the memory of each run as a bar of its parts, and the budget as a line across them.

    Parts that are always held are added up. Of those that phases need for a while, the largest
    phase counts: the line below a bar names it, with the parts that are too small for a label.

    Args:
        tables: by the names that the chart shows; with the columns part, when and bytes.
        budget_bytes: where the line stands; None for no line.
        weights: whether the models' weights are drawn and counted.
        heading: above the chart.
        theme: see the package.

    Raises ValueError when there are no tables, or one lacks a column.
    """
    _check(tables, budget_bytes, weights, heading)
    painted = themed(theme)
    left = 30 + _LETTER * min(max(map(len, tables)), _NAME_COLUMNS)
    tops = [_TOP + _ROW * number for number in range(len(tables))]
    sizes = np.array([_segments(table, weights=weights) for table in tables.values()])
    totals = sizes.sum(axis=1)
    scale = (_RIGHT - left) / max(_SMALLEST, totals.max(), budget_bytes or 0)  # px per byte
    figure = canvas(painted, WIDTH, _TOP + len(tables) * _ROW + 34)
    names = [painted.inked(f"<b>{escape(shorten(name, _NAME_COLUMNS))}</b>") for name in tables]
    middles = [top + _BAR / 2 for top in tops]
    figure.add_trace(texts("names", 8, middles, names, 12.5, "right"))
    fits = sizes * scale > [_LETTER * len(f"{name} 99.9 GB") for name in MEMORY_LOOKS]
    figure.add_traces(_bars(painted, sizes, fits, left, scale, tops))
    words = [_total_words(total, budget_bytes) for total in totals]
    ends = (left + totals * scale + 6).tolist()
    if budget_bytes is not None:
        # No total stands on the line.
        edge = left + budget_bytes * scale
        ends = [max(end, edge + 6) if end > edge - 150 else end for end in ends]
        figure.add_traces(_budget_line(painted, edge, budget_bytes, tops))
    figure.add_trace(texts("totals", ends, middles, [painted.inked(w) for w in words], 12, "right"))
    below = [
        painted.faded(_small_parts(*each))
        for each in zip(sizes, fits, tables.values(), strict=True)
    ]
    places = [top + _BAR + 12 for top in tops]
    figure.add_trace(texts("small parts", left, places, below, 10.5, "right"))
    subtitle = "parts that are always held, and the workspace of the phase that needs most"
    return figure.add_traces(title(painted, heading, subtitle))


def _check(
    tables: Mapping[str, pd.DataFrame], budget_bytes: object, weights: object, heading: object
) -> None:
    require_str("heading", heading)
    require_bool("weights", weights)
    require_mapping("tables", tables, "pass {name: plan.parts}")
    remedy = "pass plan.parts, or a table of specviz.costs.memory.memory"
    for name, table in tables.items():
        require_kind(f"tables[{name!r}]", table, pd.DataFrame, remedy)
        lacking = ", ".join(sorted(_COLUMNS - set(table.columns)))
        if lacking:
            raise ValueError(f"tables[{name!r}] lacks {lacking}; {remedy}")
    if not tables:
        raise ValueError("tables is empty; pass at least one table")
    if budget_bytes is not None:
        require_positive("budget_bytes", budget_bytes)


def _segments(table: pd.DataFrame, *, weights: bool) -> list[float]:
    """Return the bytes of each segment, in the order of `MEMORY_LOOKS`."""
    sums = dict.fromkeys(MEMORY_LOOKS, 0.0)
    held = table[table["when"] == ALWAYS]
    for part, size in zip(held["part"], held["bytes"], strict=True):
        sums[_SEGMENT_OF.get(part, "other")] += float(size)
    # Weights may be far larger than all else, and are the same for each bar.
    if not weights:
        sums["weights"] = 0.0
    sums["workspace"] = _largest_phase(table)[1]
    return list(sums.values())


def _largest_phase(table: pd.DataFrame) -> tuple[str, float]:
    """Return which phase needs most for a while, in the table's words, and how much."""
    temporary = table[table["when"] != ALWAYS]
    needs = temporary.groupby("when")["bytes"].sum()
    if needs.empty or needs.max() == 0:
        return "", 0.0
    phase = needs.idxmax()
    parts = temporary[(temporary["when"] == phase) & (temporary["bytes"] > 0)]["part"]
    return ", ".join(parts), float(needs.max())


def _bars(
    theme: Theme,
    sizes: np.ndarray,
    fits: np.ndarray,
    left: float,
    scale: float,
    tops: Sequence[float],
) -> list[go.Bar]:
    widths = sizes * scale
    starts = left + np.cumsum(widths, axis=1) - widths
    bars = []
    for column, (name, look) in enumerate(MEMORY_LOOKS.items()):
        part = boxes(
            name, look, starts[:, column].tolist(), tops, widths[:, column].tolist(), _BAR, 2
        )
        labels = [
            f"{name} {as_size(size)}" if fit else ""
            for size, fit in zip(sizes[:, column], fits[:, column], strict=True)
        ]
        write_into(part, labels, theme.inked("%{text}"), 11.5, SANS)
        # A part that no bar has needs no place in the legend.
        is_drawn = bool(sizes[:, column].any())
        bars.append(part.update(name=theme.inked(look.legend), showlegend=is_drawn))
    return bars


def _budget_line(
    theme: Theme, edge: float, budget_bytes: float, tops: Sequence[float]
) -> list[go.Scatter]:
    # Down to each bar's lower edge, so that it does not touch the words below.
    line = lines("budget", "", [(edge, y - 8, edge, y + _BAR) for y in tops], solid(ORANGE))
    line.update(showlegend=False, line={"color": solid(ORANGE), "width": 2, "dash": "dash"})
    words = theme.inked(f"<b>budget {as_size(budget_bytes)}</b>")
    return [line, texts("budget words", edge, _TOP - 20, [words], 11.5)]


def _total_words(total: float, budget_bytes: float | None) -> str:
    words = f"<b>{as_size(total)}</b>"
    if budget_bytes is not None and total > budget_bytes:
        words += f", {as_size(total - budget_bytes)} too much"
    return words


def _small_parts(sizes: np.ndarray, fits: np.ndarray, table: pd.DataFrame) -> str:
    """Return the parts whose labels do not fit their segments, and which phase is the largest."""
    phase, _ = _largest_phase(table)
    said = [
        f"{name} {as_size(size)}"
        for name, size, inside in zip(MEMORY_LOOKS, sizes, fits, strict=True)
        if not inside and size > 0
    ]
    if phase:
        said.append(f"largest phase: {phase}")
    return escape(" · ".join(said))
