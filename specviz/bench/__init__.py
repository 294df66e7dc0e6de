"""`specviz bench`: strategies and baselines on equal work, each speed with its exact match.

from specviz.bench import Grid, StoredPair, run_bench
grid = Grid(("autoregressive", "hf_generate", "exspec:window=16"), (1, 8))
table, conditions = run_bench(StoredPair(), sv.load_prompts(), grid)
"""

from specviz.bench.baselines import (
    BASELINES,
    Baseline,
    HfAssisted,
    HfGenerate,
    OpenVino,
    OpenVinoSpeculative,
)
from specviz.bench.equal_work import LineResult, MethodComparison, comparisons
from specviz.bench.grid import STANDARD, SYNTHETIC, Cell, Grid, standard
from specviz.bench.jobs import Job, Setting
from specviz.bench.markdown import readable
from specviz.bench.methods import Method, method
from specviz.bench.on_ray import OnRay
from specviz.bench.running import run_bench
from specviz.bench.sources import LoadedPair, PairSource, ShapePair, StoredPair, build_shape_pair
from specviz.bench.stored import read_table
from specviz.bench.table import failures, make_table, sections
from specviz.bench.verdict import pays

__all__ = [
    "BASELINES", "STANDARD", "SYNTHETIC", "Baseline", "Cell", "Grid", "HfAssisted", "HfGenerate",
    "Job", "LineResult", "LoadedPair", "Method", "MethodComparison", "OnRay", "OpenVino",
    "OpenVinoSpeculative", "PairSource", "Setting", "ShapePair", "StoredPair", "build_shape_pair",
    "comparisons", "failures", "make_table", "method", "pays", "read_table", "readable",
    "run_bench", "sections", "standard",
]  # fmt: skip
