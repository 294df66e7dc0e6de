"""`specviz bench`: strategies and baselines on equal work, every speed beside its exact match with decoding alone.

from specviz.bench import Grid, Stored, run_bench
table, conditions = run_bench(Stored(), sv.load_prompts(), Grid(("autoregressive", "hf_generate", "exspec:window=16"), (1, 8)))
"""

from specviz.bench.baselines import BASELINES, Baseline, HfAssisted, HfGenerate
from specviz.bench.grid import STANDARD, SYNTHETIC, Cell, Grid, standard
from specviz.bench.methods import Method, method
from specviz.bench.on_ray import OnRay
from specviz.bench.running import Job, Setting, run_bench
from specviz.bench.sources import Held, Shape, Source, Stored, build_shape_pair
from specviz.bench.table import failures, make_table, readable, sections

__all__ = [
    "BASELINES", "STANDARD", "SYNTHETIC", "Baseline", "Cell", "Grid", "Held", "HfAssisted", "HfGenerate", "Job", "Method", "OnRay",
    "Setting", "Shape", "Source", "Stored", "build_shape_pair", "failures", "make_table", "method", "readable", "run_bench", "sections",
    "standard",
]  # fmt: skip
