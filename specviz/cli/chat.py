"""`specviz study chat`: what conversations read again by budget, and how long turns take."""

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
    add_lengths(parser, max_new_tokens=32)
    text = "conversations side by side (%(default)s)"
    parser.add_argument("--conversations", type=integer, default=4, metavar="N", help=text)
    text = "turns of each; each says one of the bundled prompts (%(default)s)"
    parser.add_argument("--turns", type=integer, default=3, metavar="N", help=text)
    text = "conversations that are decoded at a time (%(default)s)"
    parser.add_argument("--batch-size", type=integer, default=2, metavar="B", help=text)
    text = "budgets, in per cent of what a turn and all kept K/V take (%(default)s)"
    shares = [100, 80, 60, 40]
    parser.add_argument("--percents", type=integer, nargs="+", default=shares, help=text)
    add_repetitions(parser)
    add_out(parser)


def run(options: argparse.Namespace) -> None:
    check_models(options)
    check_counts(options, "num_draft_tokens", "max_new_tokens", "batch_size", "repetitions")
    check_counts(options, "percents", "conversations", "turns")
    check_table(options.out)
    prompts = load_prompts(limit=options.conversations * options.turns)
    # Later messages begin a function of their own.
    later = ["\n\n" + prompt for prompt in prompts[options.conversations :]]
    messages = [*prompts[: options.conversations], *later]

    from specviz.studies.chat import compare_chats

    table, found = compare_chats(
        load_models(options),
        messages,
        options.percents,
        conversations=options.conversations,
        batch_size=options.batch_size,
        repetitions=options.repetitions,
        **lengths(options),
    )
    show(table, found, options.out)
