"""`specviz study couplings`: what the ways to accept drafts reach, and what they change."""

import argparse

from specviz.engine.names import DRAFTER_NAMES, check_temperature, require_known
from specviz.prompts import load_prompts
from specviz.studies.arguments import (
    add_lengths,
    add_models,
    add_out,
    check_counts,
    check_models,
    check_table,
    integer,
    lengths,
    load_models,
    number,
)
from specviz.studies.output import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    add_lengths(parser)
    text = "what drafts: model, or a head such as medusa (%(default)s)"
    parser.add_argument("--drafter", default="model", metavar="NAME", help=text)
    parser.add_argument("--batch-size", type=integer, default=8, metavar="B")
    parser.add_argument("--temperatures", type=number, nargs="+", default=[0.6, 1.0], metavar="T")
    parser.add_argument("--seeds", type=integer, nargs="+", default=[0, 1, 2, 3], metavar="SEED")
    add_out(parser)


def run(options: argparse.Namespace) -> None:
    check_models(options)
    check_counts(options, "num_draft_tokens", "max_new_tokens", "batch_size")
    check_counts(options, "seeds", minimum=0)
    for temperature in options.temperatures:
        check_temperature(temperature, greedy="")
    require_known("drafter", DRAFTER_NAMES, options.drafter)
    check_table(options.out)

    from specviz.studies.couplings import couplings_of, measure_couplings

    couplings_of(options.temperatures)
    table, found = measure_couplings(
        load_models(options),
        load_prompts(),
        options.temperatures,
        options.seeds,
        batch_size=options.batch_size,
        drafter=options.drafter,
        **lengths(options),
    )
    show(table, found, options.out)
