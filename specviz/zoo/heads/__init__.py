"""Training of draft heads: data, the target's features, losses, measures and the shipped weights.

`specviz train --heads` runs `train_heads`, for the embedded target. For a target and data of one's
own there is `train_head`. `specviz study heads` runs `study_heads`.
"""

from specviz.zoo.heads.measure import greedy_texts, measure_coverage, measure_head
from specviz.zoo.heads.pipeline import train_heads
from specviz.zoo.heads.study import study_heads
from specviz.zoo.heads.training import HeadPlan, TrainedHead, kept_layers, train_head

__all__ = [
    "HeadPlan",
    "TrainedHead",
    "greedy_texts",
    "kept_layers",
    "measure_coverage",
    "measure_head",
    "study_heads",
    "train_head",
    "train_heads",
]
