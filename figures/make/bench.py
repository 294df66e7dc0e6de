"""Tables of speeds: strategies, drafters and baselines, each text compared with decoding alone.

`specviz bench` measures the same on other models. An interrupted table goes on where it stopped.
"""

from collections.abc import Sequence
from typing import Any

from calibration import calibrated_tree
from measure import RUNS, Measured, command
from published import EqSpecAsPublished, ExSpecAsPublished

import specviz as sv
from specviz.bench import Grid, PairSource, ShapePair, StoredPair, run_bench, standard

MODES = ("autoregressive", "inplace", "eqspec")
TETRIS = "inplace:selector=tetris+extra="
GRAPHS = "graphs=true,compile=true"
EMBEDDED = StoredPair()
PUBLISHED = (EqSpecAsPublished(), ExSpecAsPublished())
LONG: dict[str, Any] = {"max_new_tokens": (64, 128), "repetitions": 2}


def bench(
    grid: Grid | Sequence[Grid],
    limit: int | None = 32,
    turns: int = 1,
    recording: bool = False,
    source: PairSource = EMBEDDED,
    name: str = "bench",
) -> Measured:
    """Measure a grid. name: of the log of what is measured so far."""
    prompts = [] if isinstance(source, ShapePair) else sv.load_prompts()
    path = RUNS / f"{name}.csv"
    path.unlink(missing_ok=True)  # of an earlier run; figures/data has it
    return run_bench(source, prompts, grid, path, limit=limit, turns=turns, recording=recording)


def heads(**options: Any) -> Grid:
    """Return a grid of draft heads at K = 4."""
    return Grid(num_draft_tokens=(4,), dtypes=("float32",), **options)


TABLES: dict[str, dict[str, Any]] = {
    "bench": {
        "grid": [*standard(**LONG), Grid(PUBLISHED, **LONG)],
        "limit": 64,
        "turns": 60,
    },
    "bench-hybrid": {
        "grid": Grid(
            (
                "autoregressive", "hf_generate", "rollback", "masking", "eqspec", "exspec",
                "inplace",
            ),
            num_draft_tokens=(4,),
            max_new_tokens=(64,),
            dtypes=("float32",),
            repetitions=2,
        ),
        "source": StoredPair("hybrid"),
        "limit": 16,
        "turns": 6,
    },
    "compiled": {
        "grid": Grid(
            (
                "autoregressive", "autoregressive:compile=true",
                "inplace", "inplace:compile=true",
            ),
            max_new_tokens=(64,),
            dtypes=("float32",),
            repetitions=2,
        ),
        "limit": 16,
        "turns": 6,
    },
    "auto": {
        "grid": Grid(
            ("autoregressive", "inplace"),
            num_draft_tokens=(1, 2, 3, 4, 5, 6, 7, "auto"),
            max_new_tokens=(128,),
            dtypes=("float32",),
            repetitions=2,
        ),
        "turns": 20,
    },
    "recording": {
        "grid": Grid(("autoregressive", "eqspec", "inplace"), (1, 4, 8)),
        "limit": 8,
        "turns": 8,
        "recording": True,
    },
    "selection-speed": {
        "grid": Grid(
            ("autoregressive", "inplace", f"{TETRIS}1", f"{TETRIS}2"),
            (8, 32),
            (1, 2, 3, 4, 5),
            (48,),
            repetitions=2,
        ),
        "turns": 8,
    },
    "trees-speed": {
        "grid": Grid(
            ("autoregressive", "inplace", f"{TETRIS}2"),
            (1, 8),
            (4, 8),
            (48,),
            drafters=("model", calibrated_tree(8, 3, 3)),
            dtypes=("float32",),
            repetitions=2,
        ),
        "limit": 16,
        "turns": 8,
    },
    "heads": {
        "grid": heads(
            strategies=("autoregressive", "inplace", "inplace:compile=true", "hf_assisted"),
            drafters=("model", "eagle3", "mtp", "dflash", "clover", "medusa"),
            repetitions=4,
        ),
        "limit": 16,
        "turns": 10,
    },
    "heads-one-row": {
        "grid": heads(
            strategies=("autoregressive", "inplace"),
            batch_sizes=(1,),
            drafters=("model", "eagle3"),
            repetitions=10,
        ),
        "limit": 16,
        "turns": 16,
    },
    # Heads that figures/make/heads.py has trained for two minutes each.
    "heads-equal": {
        "grid": heads(
            strategies=("autoregressive", "inplace"),
            drafters=("eagle3", "clover", "medusa"),
            repetitions=2,
        ),
        "source": StoredPair(heads="training/equal/weights/heads"),
        "limit": 16,
        "turns": 10,
    },
    "gpu-h200": {
        "grid": Grid(
            (
                "autoregressive", f"autoregressive:{GRAPHS}", f"eqspec:{GRAPHS}",
                "inplace", f"inplace:{GRAPHS}",
            ),
            (1, 8, 32),
            max_new_tokens=(48,),
            prompt_tokens=(512, 4096),
            drafters=("synthetic:rates=0.7/0.5/0.4/0.25/0.15",),
            devices=("cuda",),
        ),
        "source": ShapePair("qwen3-8b/0.6b"),
        "limit": 8,
    },
}  # fmt: skip

if __name__ == "__main__":
    tables = {name: options | {"name": name} for name, options in TABLES.items()}
    small = Grid(MODES, (2,), max_new_tokens=(8,), repetitions=1)
    command(bench, tables, {"grid": small, "limit": 2, "turns": 1, "source": EMBEDDED})
