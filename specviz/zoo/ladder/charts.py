"""The charts of `specviz study laws`, from its tables."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go

from specviz.util.files import is_file, write
from specviz.util.validate import quoted_path, short
from specviz.views.charts.plot import line_chart
from specviz.views.display import to_png
from specviz.views.theme import ThemeName

SCALE = 2
HEADS = ("eagle3", "clover", "medusa")
_REMEDY = "pass heads-training.csv of specviz study heads"
_HEAD_COLUMNS = ("head", "share", "tokens", "length")


def read_heads(path: Path) -> pd.DataFrame:
    """Return the trainings of `specviz study heads`. Raise ValueError if `path` holds none."""
    if not is_file(path):
        raise ValueError(f"heads={quoted_path(path)} is not a file; {_REMEDY}")
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"heads={quoted_path(path)} cannot be read as a table: {short(str(error))}; {_REMEDY}"
        ) from error
    missing = [name for name in _HEAD_COLUMNS if name not in table]
    if missing:
        raise ValueError(f"heads={quoted_path(path)} must have the column {missing[0]}; {_REMEDY}")
    return table


def write_charts(
    tables: Mapping[str, pd.DataFrame], out: Path, heads: pd.DataFrame | None = None
) -> list[Path]:
    """Write the charts to `out`, as PNG. Return their paths.

    heads: as `read_heads` returns them; None for none. Without a browser there are no charts.
    """
    charts = {
        "laws-tokens.png": token_chart(tables["drafts"]),
        "laws-size.png": size_chart(tables["drafts"]),
        "laws-batch.png": batch_chart(tables["batch"]),
    }
    if heads is not None:
        charts["laws-heads.png"] = head_chart(tables["drafts"], heads)
    paths = []
    for name, chart in charts.items():
        picture = to_png(chart, SCALE)
        if picture is not None:
            paths.append(write(out / name, picture))
    return paths


def token_chart(drafts: pd.DataFrame, theme: ThemeName = "light") -> go.Figure:
    """Return length - 1, at K = 16, by training tokens: a line for each size."""
    series = {}
    for size, points in drafts.groupby("size", sort=False):
        series[str(size)] = (_thousands(points["tokens"]), list(points["length_k16"] - 1))
    return line_chart(
        series,
        title="Accepted drafts by training tokens",
        words="layers x width of the draft; K = 16; a straight line is a log-linear law",
        x="training tokens, thousands",
        y="accepted drafts a round",
        log="x",
        theme=theme,
    )


def size_chart(drafts: pd.DataFrame, theme: ThemeName = "light") -> go.Figure:
    """Return length - 1, at K = 16, by parameters: a line for each number of tokens."""
    series = {}
    for tokens, points in drafts.groupby("tokens", sort=False):
        points = points.sort_values("parameters")
        name = f"{tokens / 1e3:.0f}k tokens"
        millions = (points["parameters"] / 1e6).round(2)
        series[name] = (list(millions), list(points["length_k16"] - 1))
    return line_chart(
        series,
        title="Accepted drafts by the size of the draft",
        words="K = 16; a straight line is a log-linear law",
        x="parameters, millions",
        y="accepted drafts a round",
        log="x",
        theme=theme,
    )


def head_chart(drafts: pd.DataFrame, heads: pd.DataFrame, theme: ThemeName = "light") -> go.Figure:
    """Return length - 1, at K = 4, by training tokens, of drafts and of heads."""
    series = {}
    for size, points in drafts.groupby("size", sort=False):
        series[f"draft {size}"] = (
            _thousands(points["tokens"]),
            list(points["length_k4"] - 1),
        )
    of_heads = []
    for head in HEADS:
        points = heads[heads["head"] == head].sort_values("tokens")
        if len(points):
            of_heads.append(head)
            series[head] = (_thousands(points["tokens"]), list(points["length"] - 1))
    return line_chart(
        series,
        title="Drafts and heads on the same axes",
        words="K = 4; heads are dashed, and were trained on other texts of the same target",
        x="training tokens, thousands",
        y="accepted drafts a round",
        log="x",
        dashed=of_heads,
        theme=theme,
    )


def batch_chart(batch: pd.DataFrame, theme: ThemeName = "light") -> go.Figure:
    """Return the best K by B on each device: of the draft that is fastest there at B = 1."""
    series = {}
    for device, of_device in batch.groupby("device", sort=False):
        alone = of_device[of_device["batch_size"] == of_device["batch_size"].min()]
        best = alone.loc[alone["tokens_per_s"].idxmax()]
        points = of_device[
            (of_device["size"] == best["size"]) & (of_device["mark"] == best["mark"])
        ]
        name = f"{device}: {best['size']}"
        series[name] = (list(points["batch_size"]), list(points["num_draft_tokens"]))
    return line_chart(
        series,
        title="The best K by batch size",
        words="from costs; acceptance is the same at every B; K = 0 is autoregressive decoding",
        x="B",
        y="K",
        log="x",
        theme=theme,
    )


def _thousands(tokens: pd.Series) -> list[float]:
    """Return numbers of tokens in thousands, as ticks show them."""
    rounded: list[float] = (tokens / 1e3).round().tolist()
    return rounded
