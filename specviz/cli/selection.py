"""`specviz study selection`: which drafts are worth verifying."""

import argparse
from pathlib import Path

from specviz.studies.arguments import add_out, check_counts, check_table, file_path, integer
from specviz.studies.output import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "tables of specviz study tables, one for each drafter (runs/table.safetensors)"
    table = [Path("runs/table.safetensors")]
    parser.add_argument(
        "--table", type=file_path, nargs="+", default=table, metavar="PATH", help=text
    )
    sizes = [1, 8, 32, 64]
    parser.add_argument("--batch-sizes", type=integer, nargs="+", default=sizes, metavar="B")
    text = "drafts verified in each row, on average (%(default)s)"
    drafts = [1, 2, 3, 4, 5, 6]
    parser.add_argument(
        "--num-draft-tokens", type=integer, nargs="+", default=drafts, metavar="K", help=text
    )
    text = "drafts a row beyond those (%(default)s)"
    extras = [1, 2, 3, 4, 5]
    parser.add_argument("--extras", type=integer, nargs="+", default=extras, metavar="E", help=text)
    text = "TETRIS also with a limit of so many rounds without a verified draft (none)"
    parser.add_argument("--max-wait", type=integer, nargs="+", metavar="ROUNDS", help=text)
    text = "bootstrap samples of the texts, for the intervals (%(default)s)"
    parser.add_argument("--samples", type=integer, default=100, metavar="N", help=text)
    parser.add_argument("--seed", type=integer, default=0, help="of all sampling (%(default)s)")
    add_out(parser)


def run(options: argparse.Namespace) -> None:
    check_counts(options, "batch_sizes", "num_draft_tokens", "extras", "max_wait", "samples")
    check_counts(options, "seed", minimum=0)
    check_table(options.out)

    import pandas as pd

    from specviz.simulation.tables import AcceptanceTable
    from specviz.studies.selection import compare_selectors

    tables = [AcceptanceTable.load(path) for path in options.table]
    parts = []
    for table in tables:
        part, found = compare_selectors(
            table,
            options.batch_sizes,
            options.num_draft_tokens,
            options.extras,
            options.max_wait,
            samples=options.samples,
            seed=options.seed,
        )
        part.insert(0, "drafter", table.meta.get("drafter", "model"))
        parts.append(part)
    found["drafter"] = [part["drafter"][0] for part in parts]
    found["draft"] = [table.meta.get("draft") for table in tables]
    show(pd.concat(parts), found, options.out)
