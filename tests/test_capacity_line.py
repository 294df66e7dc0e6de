"""The control whose line is dragged through the scores of a round."""

from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from specviz.engine.selectors import largest
from specviz.views.charts.capacity import capacity_line
from specviz.views.charts.plot import line_chart
from specviz.views.charts.sliders import explore

SCORES = [[0.9, 0.72, 0.5], [0.6, 0.54, 0.5], [0.9, 0.38, np.nan]]


def test_what_is_left_of_the_line_is_what_a_selector_verifies() -> None:
    scores = torch.tensor(SCORES)
    bars = capacity_line(SCORES, capacity=4).bars
    for capacity in range(1, len(bars) + 1):
        counts = largest(scores, ~scores.isnan(), capacity).tolist()
        left = [row for row, _, _ in bars[:capacity]]
        assert [left.count(f"row {row}") for row in range(3)] == counts
    assert bars[-2:] == [["row 1", "draft 3", 0.5], ["row 2", "draft 2", 0.38]]


def test_the_page_moves_the_line_and_the_chart_is_drawn_for_it() -> None:
    asked = []

    def draw(C: int) -> go.Figure:
        asked.append(C)
        return line_chart({"a": ([1], [C])}, title="t", x="x", y="y")

    line = explore(draw, "a chart", C=capacity_line(SCORES, capacity=4)).sliders["C"]
    state = line.get_state()
    assert (state["name"], state["index"], len(state["bars"])) == ("capacity", 3, 8)
    line.set_state({"index": 6})  # what the page sends
    line.set_state({"index": 99})
    assert asked == [4, 7, 8]


@pytest.mark.parametrize(
    ("scores", "capacity", "message"),
    [
        (SCORES, 0, "capacity must be an int >= 1, got 0; pass 1 or more"),
        (SCORES, 9, "capacity must be at most 8, got 9; pass a smaller one"),
        ([0.5], 1, r"scores must be a table \(b, K\) of numbers from 0 to 1"),
    ],
)
def test_numbers_out_of_range_are_named(scores: Any, capacity: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        capacity_line(scores, capacity)
