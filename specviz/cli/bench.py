"""`specviz bench`: strategies and baselines on equal work, every text compared with decoding alone.

Goes on where it was interrupted.
"""

import argparse
from pathlib import Path
from typing import Any

from specviz.bench import failures, readable, run_bench, sections
from specviz.bench.grid import SYNTHETIC, Grid, standard
from specviz.bench.on_ray import OnRay
from specviz.bench.report import save_report
from specviz.bench.sources import PairSource, ShapePair, StoredPair
from specviz.engine.drafters import drafter
from specviz.prompts import load_prompts, spread
from specviz.studies.arguments import (
    DEVICES,
    DTYPES,
    add_device_map,
    add_repetitions,
    add_spec_bench,
    add_target_and_draft,
    check_target_and_draft,
    int_or_word,
)
from specviz.studies.output import print_conditions, print_written

# A draft with random weights assists nothing, so hf_assisted is left out.
FOR_SHAPES = ("autoregressive", "hf_generate", "rollback", "eqspec", "exspec", "inplace")
AXES = (
    "batch_sizes", "num_draft_tokens", "max_new_tokens", "prompt_tokens", "dtypes", "devices",
    "repetitions",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_pairs(parser)
    _add_axes(parser)
    add_repetitions(parser)
    text = "turns that methods take, for a machine of uneven speed (%(default)s: one by one)"
    parser.add_argument("--turns", type=int, default=1, metavar="N", help=text)
    parser.add_argument(
        "--recording", action="store_true", help="measure what recording costs, too"
    )
    text = "run cells as tasks of Ray, on this machine or on the cluster at ADDRESS"
    parser.add_argument("--ray", nargs="?", const="", metavar="ADDRESS", help=text)
    text = "with --ray: GPUs of a cell on CUDA (1)"
    parser.add_argument("--gpus", type=int, metavar="N", help=text)
    text = "with --ray: CPUs of a cell (a node's for a cell on the CPU, else 1)"
    parser.add_argument("--cpus", type=int, metavar="N", help=text)
    text = "folder for bench.csv and bench.json (%(default)s)"
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help=text)
    text = "page with charts and tables (bench.html in that folder)"
    parser.add_argument("--report", type=Path, help=text)
    text = "discard an interrupted run in that folder"
    parser.add_argument("--fresh", action="store_true", help=text)


def _add_pairs(parser: argparse.ArgumentParser) -> None:
    add_target_and_draft(parser)
    add_device_map(parser)
    text = "published pairs with random weights: qwen3-8b/0.6b ..."
    parser.add_argument("--shapes", nargs="+", metavar="NAME", help=text)
    add_spec_bench(parser)
    text = (
        "how many prompts, of SpecBench's spread evenly over the file; beyond those that there "
        "are come their first halves, and so on"
    )
    parser.add_argument("--limit", type=int, metavar="N", help=text)


def _add_axes(parser: argparse.ArgumentParser) -> None:
    text = "with options: exspec:window=32,fallback=wait (a standard list)"
    parser.add_argument("--strategies", nargs="+", metavar="NAME", help=text)
    text = "model, lookup, synthetic (model; synthetic with --shapes)"
    parser.add_argument("--drafters", nargs="+", metavar="NAME", help=text)
    text = "acceptance of synthetic drafts at positions 1..K (0.7 0.5 0.4 ...)"
    parser.add_argument("--rates", type=float, nargs="+", metavar="R", help=text)
    sizes = list(Grid.batch_sizes)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=sizes, metavar="B")
    text = "numbers, or auto"
    parser.add_argument(
        "--num-draft-tokens", type=int_or_word, nargs="+", default=[5], metavar="K", help=text
    )
    parser.add_argument("--max-new-tokens", type=int, nargs="+", default=[64], metavar="N")
    text = "cut prompts to their last N tokens"
    parser.add_argument(
        "--prompt-tokens", type=int, nargs="+", default=[None], metavar="N", help=text
    )
    parser.add_argument("--dtype", dest="dtypes", nargs="+", default=[None], help=DTYPES)
    parser.add_argument("--device", dest="devices", nargs="+", default=[None], help=DEVICES)


def run(options: argparse.Namespace) -> None:
    path = options.out / "bench.csv"
    table, conditions = run_bench(
        pairs_of(options),
        prompts_of(options),
        grids_of(options),
        path,
        limit=options.limit,
        recording=options.recording,
        turns=options.turns,
        fresh=options.fresh,
        runner=runner_of(options),
    )
    for heading, section in sections(table):
        print(f"\n{heading}\n\n{readable(section)}")
    for text in failures(table):
        print(f"\nno speed: {text}")
    print_conditions(conditions)
    report = save_report(table, conditions, options.report or path.with_suffix(".html"))
    print_written([path, path.with_suffix(".json"), report])


def kept(options: argparse.Namespace) -> str:
    """Say what an interrupted benchmark leaves."""
    log = options.out / "bench.jsonl.partial"
    if log.exists():
        return f"measurements so far are kept in {log}, and the same command goes on there"
    return "nothing is measured yet"


def pairs_of(options: argparse.Namespace) -> list[PairSource]:
    """Return where the pairs come from.

    Raises:
        ValueError: only one model is named, or models or a device map come with shapes, or a
            shape is unknown.
    """
    check_target_and_draft(options)
    if not options.shapes:
        return [StoredPair(options.target, options.draft, options.device_map)]
    if options.device_map is not None:
        raise ValueError(
            f"--device-map {options.device_map} is for stored models, and --shapes makes models "
            "on one device; leave it out"
        )
    if options.target is not None:
        raise ValueError(
            f"--target {options.target} and --shapes exclude each other; give one of them"
        )
    return [ShapePair(name) for name in options.shapes]


def prompts_of(options: argparse.Namespace) -> list[str]:
    """Return the bundled prompts, or some of SpecBench's; [] for shapes, which draw their own.

    Raises:
        ValueError, OSError: the file cannot be used, or comes with shapes.
    """
    if options.shapes and options.spec_bench is not None:
        raise ValueError(
            f"--spec-bench {options.spec_bench} and --shapes exclude each other, since shapes "
            "draw their prompts; leave it out"
        )
    if options.shapes:
        return []
    if options.spec_bench is None:
        return load_prompts()
    return spread(load_prompts("spec_bench", options.spec_bench), options.limit)


def grids_of(options: argparse.Namespace) -> list[Grid]:
    """Return the standard grids, unless strategies, drafters or shapes are named.

    Raises:
        ValueError: as `Grid`, or there are rates without a synthetic drafter.
    """
    axes: dict[str, Any] = {name: getattr(options, name) for name in AXES}
    synthetic = SYNTHETIC if options.rates is None else drafter("synthetic", rates=options.rates)
    if not options.strategies and not options.drafters and not options.shapes:
        return standard(synthetic, **axes)
    names = options.drafters or (["synthetic"] if options.shapes else ["model"])
    if options.rates is not None and "synthetic" not in names:
        rates = " ".join(map(str, options.rates))
        raise ValueError(
            f"--rates {rates} needs a synthetic drafter; give --drafters synthetic, too"
        )
    drafters = [synthetic if name == "synthetic" else name for name in names]
    default = FOR_SHAPES if options.shapes else Grid.strategies
    return [Grid(options.strategies or default, drafters=drafters, **axes)]


def runner_of(options: argparse.Namespace) -> OnRay | None:
    """Return what runs the cells; None: this process.

    Raises:
        ImportError: Ray is asked for and not installed.
        ValueError: GPUs or CPUs of a task are given without Ray.
    """
    if options.ray is None:
        for name in ("gpus", "cpus"):
            number = getattr(options, name)
            if number is not None:
                raise ValueError(f"--{name} {number} needs Ray; give --ray too")
        return None
    gpus = 1 if options.gpus is None else options.gpus
    return OnRay(options.ray or None, gpus, options.cpus)
