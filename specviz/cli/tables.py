"""`specviz study tables`: what a drafter proposes at every position of greedy texts."""

import argparse
from pathlib import Path

from specviz.engine.names import DRAFTER_NAMES, require_known
from specviz.prompts import load_prompts
from specviz.studies.arguments import (
    add_models,
    check_counts,
    check_models,
    file_path,
    integer,
    load_models,
)
from specviz.studies.output import print_conditions, print_table, print_written
from specviz.util.files import check_writable, make_folder
from specviz.util.validate import require_int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    text = "whose drafts: model, or a head such as eagle3 (%(default)s)"
    parser.add_argument("--drafter", default="model", metavar="NAME", help=text)
    text = "drafts at each position (%(default)s)"
    parser.add_argument("--depth", type=integer, default=10, metavar="D", help=text)
    text = "bundled prompts (all)"
    parser.add_argument("--limit", type=integer, metavar="N", help=text)
    text = "budget of each text (%(default)s)"
    parser.add_argument("--max-new-tokens", type=integer, default=128, metavar="N", help=text)
    text = "safetensors file for the table (%(default)s)"
    out = Path("runs/table.safetensors")
    parser.add_argument("--out", type=file_path, default=out, metavar="PATH", help=text)


def run(options: argparse.Namespace) -> None:
    check_models(options)
    check_counts(options, "depth", "max_new_tokens")
    require_known("drafter", DRAFTER_NAMES, options.drafter)
    check_writable(options.out)
    prompts = load_prompts(limit=options.limit)

    from specviz.simulation.tables import MAX_DEPTH
    from specviz.studies.tables import make_table, summarise

    require_int("depth", options.depth, maximum=MAX_DEPTH)
    table = make_table(
        load_models(options),
        prompts,
        options.depth,
        drafter=options.drafter,
        max_new_tokens=options.max_new_tokens,
    )
    print_table(summarise(table))
    print_conditions(table.meta)
    make_folder(options.out.parent)
    print_written([table.save(options.out)])
