"""`specviz study memory`: tokens a second under memory budgets, with and without speculation."""

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
    text = "rows of the run without a budget (%(default)s)"
    parser.add_argument("--batch-size", type=integer, default=8, metavar="B", help=text)
    text = "budgets, in per cent of that run's generation memory (%(default)s)"
    shares = [100, 80, 60, 50, 40, 35, 30]
    parser.add_argument("--percents", type=integer, nargs="+", default=shares, help=text)
    text = "how many of the bundled prompts (%(default)s)"
    parser.add_argument("--limit", type=integer, default=32, help=text)
    add_repetitions(parser)
    add_out(parser)


def run(options: argparse.Namespace) -> None:
    check_models(options)
    check_counts(options, "num_draft_tokens", "max_new_tokens", "batch_size", "repetitions")
    check_counts(options, "percents")
    check_table(options.out)
    prompts = load_prompts(limit=options.limit)

    from specviz.studies.memory import compare_budgets

    table, found = compare_budgets(
        load_models(options),
        prompts,
        options.percents,
        batch_size=options.batch_size,
        repetitions=options.repetitions,
        **lengths(options),
    )
    show(table, found, options.out)
