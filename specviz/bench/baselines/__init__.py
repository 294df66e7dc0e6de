"""What the strategies are measured against: decoders that are not specviz's own."""

from specviz.bench.baselines.base import Baseline, Written
from specviz.bench.baselines.hf import HfAssisted, HfGenerate
from specviz.bench.baselines.openvino import OpenVino, OpenVinoSpeculative

BASELINES: dict[str, type[Baseline]] = {
    kind.name: kind for kind in (HfGenerate, HfAssisted, OpenVino, OpenVinoSpeculative)
}

__all__ = [
    "BASELINES", "Baseline", "HfAssisted", "HfGenerate", "OpenVino", "OpenVinoSpeculative",
    "Written",
]  # fmt: skip
