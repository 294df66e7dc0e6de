"""`specviz bench`: strategies and baselines on equal work, each speed with its exact match.

from specviz.bench import Grid, StoredPair, check, run_bench
grid = Grid(("autoregressive", "hf_generate", "exspec:window=16"), (1, 8))
table, conditions = run_bench(StoredPair(), sv.load_prompts(), grid)
print(check(table))
"""

from specviz.bench.cells import STANDARD, SYNTHETIC, Grid, standard
from specviz.bench.equal_work import check, comparisons
from specviz.bench.measuring import pays
from specviz.bench.on_ray import OnRay
from specviz.bench.running import run_bench
from specviz.bench.sources import (
    Baseline,
    LoadedPair,
    PairSource,
    ShapePair,
    StoredPair,
    Written,
)  # fmt: skip
from specviz.bench.table import failures, make_table, read_table, readable, sections

__all__ = [
    "STANDARD", "SYNTHETIC", "Baseline", "Grid", "LoadedPair", "OnRay", "PairSource", "ShapePair",
    "StoredPair", "Written", "check", "comparisons", "failures", "make_table", "pays",
    "read_table", "readable", "run_bench", "sections", "standard",
]  # fmt: skip
