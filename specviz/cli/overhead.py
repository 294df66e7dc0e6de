"""`specviz study overhead`: what each phase of a round takes inside and outside the models."""

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
    parser.add_argument("--batch-sizes", type=integer, nargs="+", default=[1, 8], metavar="B")
    text = "how many of the bundled prompts (%(default)s)"
    parser.add_argument("--limit", type=integer, default=8, help=text)
    add_repetitions(parser)
    add_out(parser)


def run(options: argparse.Namespace) -> None:
    check_models(options)
    check_counts(options, "num_draft_tokens", "max_new_tokens", "batch_sizes", "repetitions")
    check_table(options.out)
    prompts = load_prompts(limit=options.limit)

    from specviz.studies.overhead import measure_overhead

    table, found = measure_overhead(
        load_models(options),
        prompts,
        batch_sizes=options.batch_sizes,
        repetitions=options.repetitions,
        **lengths(options),
    )
    show(table, found, options.out)
