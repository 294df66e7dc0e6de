"""`specviz bench`: strategies and baselines on equal work, every text compared with decoding alone.

Goes on where it was interrupted.
"""

import argparse
from pathlib import Path

from specviz.cli.bench_check import (
    add_check,
    check_file,
    check_lines,
    check_options,
    checks_file,
    report_check,
)
from specviz.costs.acceptance import check_rates
from specviz.costs.shapes import named_pair
from specviz.engine.names import (
    DRAFTER_NAMES,
    STRATEGY_NAMES,
    check_device_map,
    head_folders,
    parse,
    require_known,
)
from specviz.prompts import load_prompts, spread
from specviz.studies.arguments import (
    DEVICES,
    DTYPE_NAMES,
    DTYPES,
    add_device_map,
    add_repetitions,
    add_spec_bench,
    add_target_and_draft,
    check_counts,
    check_device,
    check_table,
    check_target_and_draft,
    file_path,
    int_or_word,
    integer,
    number,
)
from specviz.studies.output import print_conditions, print_written
from specviz.util.files import check_writable
from specviz.util.validate import require_choice

# The keys of BASELINES, which imports torch.
BASELINE_NAMES = ("hf_generate", "hf_assisted", "openvino", "openvino_speculative")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_pairs(parser)
    _add_axes(parser)
    add_repetitions(parser)
    text = "turns that methods take, for a machine of uneven speed (%(default)s: one by one)"
    parser.add_argument("--turns", type=integer, default=1, metavar="N", help=text)
    parser.add_argument(
        "--recording", action="store_true", help="measure what recording costs, too"
    )
    text = "run cells as tasks of Ray, on this machine or on the cluster at ADDRESS"
    parser.add_argument("--ray", nargs="?", const="", metavar="ADDRESS", help=text)
    text = "with --ray: GPUs of a cell on CUDA (1)"
    parser.add_argument("--gpus", type=integer, metavar="N", help=text)
    text = "with --ray: CPUs of a cell (a node's for a cell on the CPU, else 1)"
    parser.add_argument("--cpus", type=integer, metavar="N", help=text)
    text = "folder for bench.csv and bench.json (%(default)s)"
    parser.add_argument("--out", type=file_path, default=Path("runs/bench"), help=text)
    text = "page with charts and tables (bench.html in that folder)"
    parser.add_argument("--report", type=file_path, help=text)
    text = "discard an interrupted run in that folder"
    parser.add_argument("--fresh", action="store_true", help=text)
    add_check(parser)


def _add_pairs(parser: argparse.ArgumentParser) -> None:
    add_target_and_draft(parser)
    add_device_map(parser)
    text = "folder of draft heads of your own, which specviz train --heads wrote"
    parser.add_argument("--heads", type=file_path, metavar="FOLDER", help=text)
    text = "published pairs with random weights: qwen3-8b/0.6b ..."
    parser.add_argument("--shapes", nargs="+", metavar="NAME", help=text)
    add_spec_bench(parser)
    text = (
        "how many prompts, of SpecBench's spread evenly over the file; beyond those that there "
        "are come their first halves, and so on"
    )
    parser.add_argument("--limit", type=integer, metavar="N", help=text)


def _add_axes(parser: argparse.ArgumentParser) -> None:
    text = "with options: exspec:window=32,fallback=wait (a standard list)"
    parser.add_argument("--strategies", nargs="+", metavar="NAME", help=text)
    text = "model, lookup, synthetic (model; synthetic with --shapes)"
    parser.add_argument("--drafters", nargs="+", metavar="NAME", help=text)
    text = "acceptance of synthetic drafts at positions 1..K (0.7 0.5 0.4 ...)"
    parser.add_argument("--rates", type=number, nargs="+", metavar="R", help=text)
    sizes = [1, 4, 8, 16]
    parser.add_argument("--batch-sizes", type=integer, nargs="+", default=sizes, metavar="B")
    text = "numbers, or auto"
    parser.add_argument(
        "--num-draft-tokens", type=int_or_word, nargs="+", default=[5], metavar="K", help=text
    )
    parser.add_argument("--max-new-tokens", type=integer, nargs="+", default=[64], metavar="N")
    text = "cut prompts to their last N tokens"
    parser.add_argument(
        "--prompt-tokens", type=integer, nargs="+", default=[None], metavar="N", help=text
    )
    parser.add_argument("--dtype", dest="dtypes", nargs="+", default=[None], help=DTYPES)
    parser.add_argument("--device", dest="devices", nargs="+", default=[None], help=DEVICES)


def run(options: argparse.Namespace) -> None:
    check_options(options, add_arguments)
    if checks_file(options):
        check_lines(options)
        check_file(options)
        return
    _check(options)
    check_lines(options)
    prompts = prompts_of(options)

    from specviz.bench import failures, readable, run_bench, sections
    from specviz.bench.report import save_report
    from specviz.cli.bench_plan import grids_of, pairs_of, runner_of

    path = options.out / "bench.csv"
    table, conditions = run_bench(
        pairs_of(options),
        prompts,
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
    if options.check:
        report_check(table, options)


def _check(options: argparse.Namespace) -> None:
    """Raise ValueError or WriteError for what cannot be used, as far as it shows without torch."""
    check_target_and_draft(options)
    check_counts(
        options, "batch_sizes", "num_draft_tokens", "max_new_tokens", "prompt_tokens",
        "repetitions", "limit", "turns", "gpus", "cpus",
    )  # fmt: skip
    for i, name in enumerate(options.dtypes):
        if name is not None:
            require_choice(f"dtypes[{i}]", name, DTYPE_NAMES)
    for name in options.devices:
        check_device(name)
    for name in options.shapes or ():
        named_pair(name)
    for name in options.strategies or ():
        require_known("strategy", (*STRATEGY_NAMES, *BASELINE_NAMES), parse(name)[0])
    for name in options.drafters or ():
        require_known("drafter", DRAFTER_NAMES, parse(name)[0])
    if options.device_map is not None:
        check_device_map(options.device_map, None)
    if options.heads is not None and not options.shapes:
        head_folders(options.heads)
    if options.rates is not None:
        check_rates(options.rates)
    check_table(options.out / "bench.csv")
    check_writable(options.report or options.out / "bench.html")


def kept(options: argparse.Namespace) -> str:
    """Say what an interrupted benchmark leaves."""
    log = options.out / "bench.jsonl.partial"
    if log.exists():
        return f"measurements so far are kept in {log}, and the same command goes on there"
    return "nothing is measured yet"


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
