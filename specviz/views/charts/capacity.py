"""`capacity_line`: the scores of a round in order, and a line to drag through them.

Contract: numbers in, a control for `explore` out. Not known here: what is drawn for a capacity.
"""

from importlib.resources import files

import numpy as np
import traitlets
from numpy.typing import ArrayLike

from specviz.util.validate import require_int
from specviz.views.charts.scores import score_grid
from specviz.views.charts.sliders import Slider


def capacity_line(scores: ArrayLike, capacity: int) -> "CapacityLine":
    """Return a control for `explore` whose value is the capacity C of a round.

    Its page draws a bar for each draft, the largest score first, and a line behind the C-th bar
    that can be dragged. Of equal scores the earlier position comes first, then the earlier row.

    Args:
        scores: (b, K), 0 to 1, as for `score_map`; NaN where a row has no draft.
        capacity: C, where the line stands first; 1 or more, and at most the number of drafts.

    Raises:
        ValueError: the numbers are out of range.
    """
    grid = score_grid(scores)
    row, draft = np.nonzero(np.isfinite(grid))
    require_int("capacity", capacity, maximum=row.size)
    order = np.lexsort((row, draft, -grid[row, draft]))
    bars = [
        [f"row {row[n]}", f"draft {draft[n] + 1}", float(grid[row[n], draft[n]])] for n in order
    ]
    return CapacityLine(bars, capacity)


class CapacityLine(Slider):
    """Made by `capacity_line`. Its page is `capacity.js`.

    Attributes:
        bars: row, draft and score of each draft, the largest score first.
    """

    _esm = (files("specviz.views.charts") / "capacity.js").read_text(encoding="utf-8")

    bars = traitlets.List(traitlets.List()).tag(sync=True)

    def __init__(self, bars: list[list[object]], capacity: int) -> None:
        choices = [capacity, *(n for n in range(1, len(bars) + 1) if n != capacity)]
        super().__init__("capacity", choices)
        self.bars = bars
