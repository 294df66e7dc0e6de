"""Train a draft head for any target: `train_head`; measure it: `measure_head`.

It reads the target's features of token windows, and learns the target's distributions.
"""

from specviz.zoo.heads.chains import unroll
from specviz.zoo.heads.export import export_head
from specviz.zoo.heads.measure import greedy_texts, measure_coverage, measure_head
from specviz.zoo.heads.training import HeadPlan, TrainedHead, kept_layers, train_head

__all__ = [
    "HeadPlan",
    "TrainedHead",
    "export_head",
    "greedy_texts",
    "kept_layers",
    "measure_coverage",
    "measure_head",
    "train_head",
    "unroll",
]
