"""`specviz study packing`: what a verification costs as a rectangle and packed."""

import argparse

from specviz.studies.arguments import (
    add_models,
    add_out,
    add_repetitions,
    check_counts,
    check_models,
    check_table,
    integer,
    load_models,
)
from specviz.studies.output import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    parser.add_argument(
        "--batch-sizes", type=integer, nargs="+", default=[4, 8, 16, 32], metavar="B"
    )
    text = "drafts that a row verifies on average"
    parser.add_argument(
        "--num-draft-tokens", type=integer, nargs="+", default=[1, 3, 5], metavar="K", help=text
    )
    text = "the most drafts of a row beyond K"
    parser.add_argument("--extras", type=integer, nargs="+", default=[1, 2, 4], help=text)
    add_repetitions(parser)
    add_out(parser)


def run(options: argparse.Namespace) -> None:
    check_models(options)
    check_counts(options, "batch_sizes", "num_draft_tokens", "extras", "repetitions")
    check_table(options.out)

    from specviz.studies.packing import measure_packing

    table, found = measure_packing(
        load_models(options),
        options.batch_sizes,
        options.num_draft_tokens,
        options.extras,
        repetitions=options.repetitions,
    )
    show(table, found, options.out)
