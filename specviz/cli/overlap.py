"""`specviz study overlap`: what it gains to verify one half of the rows while the other drafts."""

import argparse
from pathlib import Path

from specviz.prompts import load_prompts
from specviz.simulation.policy import Policy
from specviz.studies.arguments import (
    add_fresh,
    add_lengths,
    add_models,
    add_out,
    add_repetitions,
    check_counts,
    check_models,
    check_table,
    integer,
    lengths,
    load_models,
)
from specviz.studies.output import print_conditions, print_precise_table, print_written

OUT = Path("runs/overlap.csv")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    add_lengths(parser)
    text = "rows in flight, even numbers (%(default)s)"
    sizes = [4, 8, 16, 32]
    parser.add_argument(
        "--batch-sizes", type=integer, nargs="+", default=sizes, metavar="B", help=text
    )
    text = "how many of the bundled prompts (%(default)s)"
    parser.add_argument("--limit", type=integer, default=32, help=text)
    text = "inplace, eqspec or exspec (%(default)s)"
    parser.add_argument("--strategy", default="inplace", metavar="NAME", help=text)
    text = "compile the models' forwards, which run without Python's lock"
    parser.add_argument("--compile", action="store_true", help=text)
    add_repetitions(parser)
    add_fresh(parser)
    add_out(parser, default=str(OUT))


def run(options: argparse.Namespace) -> None:
    check_models(options)
    check_counts(options, "num_draft_tokens", "max_new_tokens", "batch_sizes", "repetitions")
    check_counts(options, "limit")
    for size in options.batch_sizes:
        Policy(options.strategy, size, options.num_draft_tokens, overlap=True)
    path = options.out or OUT
    check_table(path)

    from specviz.studies.overlap import measure_overlap

    table, found = measure_overlap(
        load_models(options),
        load_prompts(limit=options.limit),
        options.batch_sizes,
        path,
        strategy=options.strategy,
        repetitions=options.repetitions,
        compile=options.compile,
        fresh=options.fresh,
        **lengths(options),
    )
    print_precise_table(table.T.reset_index())
    print_conditions(found)
    print_written([path, path.with_suffix(".json")])


def kept(options: argparse.Namespace) -> str:
    """Say what an interrupted study leaves."""
    table = options.out or OUT
    return f"the entries so far are kept in {table}, and the same command goes on there"
