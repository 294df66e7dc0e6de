"""`specviz study calibration`: how often drafts are right, by their rank and their q."""

import argparse

from specviz.prompts import load_prompts
from specviz.studies.arguments import (
    add_models,
    add_out,
    check_counts,
    check_models,
    check_table,
    integer,
    load_models,
)
from specviz.studies.output import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    text = "the likeliest tokens that get a curve each (%(default)s)"
    parser.add_argument("--ranks", type=integer, default=4, metavar="R", help=text)
    text = "bundled prompts (all)"
    parser.add_argument("--limit", type=integer, metavar="N", help=text)
    text = "budget of each text (%(default)s)"
    parser.add_argument("--max-new-tokens", type=integer, default=128, metavar="N", help=text)
    add_out(parser)


def run(options: argparse.Namespace) -> None:
    check_models(options)
    check_counts(options, "ranks", "max_new_tokens")
    check_table(options.out)
    prompts = load_prompts(limit=options.limit)

    from specviz.studies.calibration import check_prompts, check_ranks, measure_calibration

    check_prompts(prompts)
    check_ranks(options.ranks)
    table, found = measure_calibration(
        load_models(options), prompts, ranks=options.ranks, max_new_tokens=options.max_new_tokens
    )
    show(table, found, options.out)
