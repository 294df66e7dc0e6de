"""`specviz bench`: strategies and baselines on equal work, every speed beside its exact match with decoding alone.

from specviz.bench import Grid, StoredPair, run_bench
table, conditions = run_bench(StoredPair(), sv.load_prompts(), Grid(("autoregressive", "hf_generate", "exspec:window=16"), (1, 8)))
"""

from specviz.bench.baselines import BASELINES, Baseline, HfAssisted, HfGenerate
from specviz.bench.grid import STANDARD, SYNTHETIC, Cell, Grid, standard
from specviz.bench.methods import Method, method
from specviz.bench.on_ray import OnRay
from specviz.bench.running import Job, Setting, run_bench
from specviz.bench.sources import LoadedPair, ShapePair, PairSource, StoredPair, build_shape_pair
from specviz.bench.table import failures, make_table, readable, sections

__all__ = [
    "BASELINES", "STANDARD", "SYNTHETIC", "Baseline", "Cell", "Grid", "LoadedPair", "HfAssisted", "HfGenerate", "Job", "Method", "OnRay",
    "Setting", "ShapePair", "PairSource", "StoredPair", "build_shape_pair", "failures", "make_table", "method", "readable", "run_bench", "sections",
    "standard",
]  # fmt: skip
