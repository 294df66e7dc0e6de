"""`specviz study losses`: what each habit of the published EQSPEC and EXSPEC costs."""

import argparse

from specviz.prompts import load_prompts
from specviz.studies.arguments import (
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
from specviz.studies.output import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    add_lengths(parser)
    sizes = [1, 4, 8, 16]
    parser.add_argument("--batch-sizes", type=integer, nargs="+", default=sizes, metavar="B")
    parser.add_argument("--limit", type=integer, help="how many of the bundled prompts (all)")
    add_repetitions(parser)
    add_out(parser)


def run(options: argparse.Namespace) -> None:
    check_models(options)
    check_counts(options, "num_draft_tokens", "max_new_tokens", "batch_sizes", "repetitions")
    check_table(options.out)
    prompts = load_prompts(limit=options.limit)

    from specviz.studies.losses import measure_losses

    table, found = measure_losses(
        load_models(options),
        prompts,
        options.batch_sizes,
        repetitions=options.repetitions,
        **lengths(options),
    )
    show(table, found, options.out)
