"""`specviz study survey`: every way to handle raggedness, valid or not, on the same prompts."""

import argparse

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
)
from specviz.studies.output import print_written
from specviz.util.text import count, harmless


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    add_lengths(parser)
    parser.add_argument("--batch-size", type=integer, default=8, metavar="B")
    text = "how many of the bundled prompts (%(default)s)"
    parser.add_argument("--limit", type=integer, default=16, help=text)
    add_out(parser)


def run(options: argparse.Namespace) -> None:
    check_models(options)
    check_counts(options, "num_draft_tokens", "max_new_tokens", "batch_size")
    check_table(options.out)
    prompts = load_prompts(limit=options.limit)

    from specviz.studies.survey import survey

    found = survey(load_models(options), prompts, batch_size=options.batch_size, **lengths(options))
    meta = found.reference.meta
    sizes = f"B = {options.batch_size}, K = {options.num_draft_tokens}"
    print(f"\n{count(len(prompts), 'prompt')}, {sizes}, on {meta['device']} in {meta['dtype']}\n")
    # The names, which hold the options, head the columns.
    columns = found.table.drop(columns=["strategy", "options"]).round(3)
    print(columns.set_axis(found.names).T.to_string())
    prompt = found.telling_prompt
    print(
        f"\nThe texts after prompt {prompt}, {prompts[prompt][-60:]!r}; "
        "‖ is where a text leaves the one written alone\n"
    )
    for name, text in found.texts(prompt).items():
        print(harmless(f"{name:>30}: {text}"))
    if options.out is not None:
        print_written(found.save(options.out))
