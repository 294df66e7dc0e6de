"""`specviz evaluate`: what a pair reaches on files that it was not trained on."""

import argparse

from specviz.prompts import load_prompts
from specviz.studies.arguments import (
    add_lengths,
    add_models,
    check_counts,
    check_models,
    integer,
    lengths,
    load_models,
)
from specviz.studies.output import print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    add_lengths(parser, max_new_tokens=128)
    text = "bundled prompts (all)"
    parser.add_argument("--limit", type=integer, metavar="N", help=text)


def run(options: argparse.Namespace) -> None:
    check_models(options)
    check_counts(options, "num_draft_tokens", "max_new_tokens")
    prompts = load_prompts(limit=options.limit)

    from specviz.zoo.measure import measure_pair

    print_table(measure_pair(load_models(options), prompts, **lengths(options)))
