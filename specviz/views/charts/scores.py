"""`score_map`: what a round drafted, how likely each draft is to be accepted, what is verified.

Contract: numbers in, a plotly Figure of fixed size out. Not known here: records and selectors.
"""

from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike, NDArray

from specviz.util.validate import short
from specviz.views.charts.canvas import canvas, lines, texts, title
from specviz.views.theme import BLUE, ORANGE, Theme, ThemeName, solid, themed, tint

# all in px
_LEFT = 84
_TOP = 100
_CELL = 64.0
_LARGEST_ROW = 34.0
_READABLE_ROW = 14  # in lower rows nothing can be written


def score_map(scores: ArrayLike, verified: ArrayLike, *, theme: ThemeName = "auto") -> go.Figure:
    """Draw the score of each draft of a round, and the frontier between verified and left out.

    Rows go down, a row's drafts to the right. The frontier stands behind the last draft of each
    row that is verified. The number of these drafts is written at the side.

    Args:
        scores: (b, K), 0 to 1, as q or a product of q; NaN where a row has no draft.
        verified: (b,), how many of each row's drafts are verified, 0 to K.
        theme: "auto" takes its text colour from the page; "light", "dark".

    Raises:
        ValueError: the numbers are out of range, or the shapes do not fit.
    """
    grid = score_grid(scores)
    counts = _counts(verified, grid)
    painted = themed(theme)
    b, k = grid.shape
    row = min(_LARGEST_ROW, max(4.0, 520 / b))
    right = _LEFT + k * _CELL
    figure = canvas(painted, max(right + 110, 560), _TOP + b * row + 44)
    figure.add_trace(_heatmap(grid, painted, row))
    frontier = lines("frontier", painted.inked("frontier"), _steps(counts, row), solid(ORANGE))
    figure.add_trace(frontier.update(line={"width": 4}))

    middles = [_TOP + row * (number + 0.5) for number in range(b)]
    if row >= _READABLE_ROW:
        names = [painted.inked(f"row {number}") for number in range(b)]
        figure.add_trace(texts("rows", 8, middles, names, 12, "right"))
        words = [painted.inked(f"{count} verified") for count in counts]
        figure.add_trace(texts("counts", right + 14, middles, words, 12, "right"))
    columns = [_LEFT + _CELL * (number + 0.5) for number in range(k)]
    positions = [painted.faded(f"draft {number + 1}") for number in range(k)]
    figure.add_trace(texts("positions", columns, _TOP - 12, positions, 11))

    drafted = int(np.isfinite(grid).sum())
    heading = f"{sum(counts)} of {drafted} drafts are verified"
    subtitle = "in each cell the score of a draft; those left of the frontier are verified"
    return figure.add_traces(title(painted, heading, subtitle))


def _numbers(values: Any) -> NDArray[np.float64]:
    """Return the values as floats, or an empty array if they are not numeric."""
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return np.zeros(0)


def score_grid(scores: Any) -> NDArray[np.float64]:
    """Return the scores as floats (b, K). Raise ValueError if they are not."""
    grid = _numbers(scores)
    is_outside = bool(((grid < 0) | (grid > 1)).any())
    if grid.ndim != 2 or grid.size == 0 or is_outside:
        raise ValueError(
            f"scores must be a table (b, K) of numbers from 0 to 1, got {short(scores)}; "
            "pass one line a row, with NaN where a row has no draft"
        )
    return grid


def _counts(verified: Any, grid: NDArray[np.float64]) -> list[int]:
    b, k = grid.shape
    counts = _numbers(verified)
    fits = counts.shape == (b,) and bool(((counts >= 0) & (counts <= k)).all())
    if not fits or bool((counts % 1 != 0).any()):
        raise ValueError(
            f"verified must be {b} ints from 0 to {k}, got {short(verified)}; "
            "pass for each row how many of its drafts are verified"
        )
    return [int(count) for count in counts]


def _heatmap(grid: NDArray[np.float64], theme: Theme, row: float) -> go.Heatmap:
    """Draw cells tinted by their score, with the score in them where it can be read."""
    return go.Heatmap(
        meta={"kind": "scores"},
        z=grid.tolist(),
        x0=_LEFT + _CELL / 2,
        y0=_TOP + row / 2,
        dx=_CELL,
        dy=row,
        zmin=0,
        zmax=1,
        colorscale=[[0, tint(BLUE, 0.05)], [1, tint(BLUE, 0.55)]],
        showscale=False,
        xgap=2,
        ygap=2 if row > 6 else 0,
        texttemplate=theme.inked("%{z:.2f}") if row >= _READABLE_ROW else "",
        textfont={"size": 12},
        hoverinfo="skip",
        hoverongaps=False,
    )


def _steps(counts: list[int], row: float) -> list[tuple[float, float, float, float]]:
    """Return the frontier from the first row to the last: down each row, across between rows."""
    segments = []
    for number, count in enumerate(counts):
        x = _LEFT + count * _CELL
        y = _TOP + number * row
        # The frontier is one line, so a step across joins rows of different counts.
        if number and counts[number - 1] != count:
            before = _LEFT + counts[number - 1] * _CELL
            segments.append((before, y, x, y))
        segments.append((x, y, x, y + row))
    return segments
