"""The batch law: which draft and which K give most tokens a second at each B, from costs.

Acceptance does not depend on B: a draft is right or wrong given the tokens before it. What changes
with B is what a round costs, so the lengths are those of one row. Runs no model.
"""

import json
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd

from specviz.costs.breakeven import round_seconds
from specviz.costs.ceilings import CPU_TABLE, Ceilings
from specviz.costs.roofline import Roofline
from specviz.costs.shapes import ModelShape, named_pair
from specviz.zoo.ladder.rungs import Size

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# By device: tokens of a row that are attended to.
SLOTS = {"cpu": 256, "assumed": 1024}
# No device of this name was measured: 4 TB/s, 600 TFLOP/s, and a microsecond for each kernel of a
# replayed graph.
ASSUMED = Ceilings(
    bandwidth=((1e6, 4e12),),
    matmul={"bfloat16": ((1, 6e14),)},
    launch_s=5e-6,
    replay_s=1e-6,
    device="assumed",
)


def embedded_shape() -> ModelShape:
    """Return the shape of the embedded target."""
    path = Path(str(resources.files("specviz"))) / "zoo" / "weights" / "target" / "config.json"
    return ModelShape.from_config(json.loads(path.read_text(encoding="utf-8")))


def draft_shape(size: Size) -> ModelShape:
    """Return the shape of a draft of this size for the embedded target."""
    form = size.form()
    return ModelShape(
        layers=form["layers"],
        hidden=form["hidden_size"],
        heads=form["heads"],
        kv_heads=form["kv_heads"],
        head_dim=form["hidden_size"] // form["heads"],
        intermediate=form["mlp"],
        vocabulary=embedded_shape().vocabulary,
        tied=True,
    )


@cache
def costs_of(device: str, size: Size) -> Roofline:
    """Return the costs of rounds.

    Args:
        device: "cpu" is the embedded target with a draft of this size in float32, on the two CPU
            cores whose ceilings come with specviz. "assumed" is Qwen3-8B with Qwen3-0.6B in
            bfloat16 on ASSUMED, whatever the size.
        size: of the draft.
    """
    if device == "cpu":
        return Roofline(embedded_shape(), draft_shape(size), Ceilings.load(CPU_TABLE))
    return Roofline(*named_pair("qwen3-8b/0.6b"), ASSUMED, "bfloat16", captured=True)


def batch_table(lengths: pd.DataFrame) -> pd.DataFrame:
    """Return one entry for each device, draft and B: the K with most tokens a second.

    lengths: as `length_table` returns it.

    Columns: device, as in `costs_of`; size and mark of the draft; batch_size; num_draft_tokens,
    the best K, 0 where no K is faster than autoregressive decoding; length at this K; tokens_per_s
    of all rows; speedup over autoregressive decoding at the same B.
    """
    return pd.DataFrame(_best(lengths))


def _best(lengths: pd.DataFrame) -> Iterator[dict[str, Any]]:
    drafts = ["size", "layers", "width", "mark"]
    for (name, layers, width, mark), of_draft in lengths.groupby(drafts, sort=False):
        size = Size(layers, width)
        by_k = {0: 1.0} | dict(zip(of_draft["num_draft_tokens"], of_draft["length"], strict=True))
        for device, slots in SLOTS.items():
            costs = costs_of(device, size).phase_seconds
            for b in BATCH_SIZES:
                speeds = {}
                for k, length in by_k.items():
                    speeds[k] = b * length / round_seconds(costs, b, k, slots)
                best = max(speeds, key=lambda k: speeds[k])
                yield {
                    "device": device,
                    "size": name,
                    "mark": mark,
                    "batch_size": b,
                    "num_draft_tokens": best,
                    "length": by_k[best],
                    "tokens_per_s": speeds[best],
                    "speedup": speeds[best] / speeds[0],
                }
