"""The charts of `specviz study heads`, from its tables."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go

from specviz.util.files import write
from specviz.views.charts.plot import line_chart
from specviz.views.display import to_png
from specviz.zoo.heads.contenders import CURVES

SCALE = 2
BLOCKS = {
    "clover": "block and gate: Clover",
    "clover-gate": "gate alone",
    "clover-block": "block alone",
    "clover-neither": "neither: Medusa",
}
UNROLLED = {
    "eagle3": "EAGLE-3",
    "eagle1": "EAGLE-1's loss",
    "eagle3-alone": "EAGLE-3 without chains",
}


def write_charts(tables: Mapping[str, pd.DataFrame], out: Path) -> list[Path]:
    """Write the charts that the tables allow to `out`, as PNG. Return their paths.

    Without a browser to draw with there are none.
    """
    charts = {
        "heads-blocks.png": block_chart(tables["steps"]),
        "heads-tokens.png": length_chart(tables["training"]),
        "heads-steps.png": step_chart(tables["steps"]),
    }
    paths = []
    for name, chart in charts.items():
        picture = None if chart is None else to_png(chart, SCALE)
        if picture is not None:
            paths.append(write(out / name, picture))
    return paths


def length_chart(trainings: pd.DataFrame) -> go.Figure | None:
    """Return the length by training tokens; None unless a head was trained for two shares."""
    series = {}
    for kind in CURVES:
        of_kind = trainings[trainings["head"] == kind].sort_values("tokens")
        if len(of_kind) > 1:
            series[kind] = (of_kind["tokens"] / 1e6, of_kind["length"])
    if not series:
        return None
    return line_chart(
        {name: (list(x), list(y)) for name, (x, y) in series.items()},
        title="Mean acceptance length by training tokens",
        words="each point is a training of its own, at whose end the rates are 0; K = 4",
        x="training tokens, millions",
        y="new tokens a round",
        theme="light",
    )


def block_chart(steps: pd.DataFrame) -> go.Figure | None:
    """Return top-5 by head of Clover and of what is left of it; None if none was trained."""
    series = _by_step(steps, BLOCKS, "top5")
    if not series:
        return None
    return line_chart(
        series,
        title="The next token is among a head's first five",
        words="heads trained for the same CPU time; the tokens before it are given",
        x="head",
        y="share of positions",
        theme="light",
    )


def step_chart(steps: pd.DataFrame) -> go.Figure | None:
    """Return top-1 by step of a chain; None without EAGLE heads of the whole budget."""
    series = _by_step(steps, UNROLLED, "top1")
    if not series:
        return None
    return line_chart(
        series,
        title="The next token is a head's first choice, by step of its own chain",
        words="heads trained for the same CPU time; the tokens before it are given",
        x="step",
        y="share of positions",
        dashed=[name for name in series if name.endswith("without chains")],
        theme="light",
    )


def _by_step(
    steps: pd.DataFrame, heads: Mapping[str, str], column: str
) -> dict[str, tuple[list[float], list[float]]]:
    """Return a column by step of these heads, where they were trained for the whole budget."""
    series = {}
    for head, name in heads.items():
        of_head = steps[(steps["head"] == head) & (steps["share"] == 1)]
        if len(of_head):
            series[name] = (list(of_head["step"]), list(of_head[column]))
    return series
