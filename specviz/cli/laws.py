"""`specviz study laws`: how acceptance length grows with a draft's training and size."""

import argparse
from pathlib import Path

from specviz.studies.arguments import check_counts, file_path, integer
from specviz.studies.output import print_conditions, print_table, print_written
from specviz.util.files import check_writable, save_measured
from specviz.zoo.ladder.rungs import MARKS, SIZES, checked_marks, sizes_of

# Tables that are too long to print.
LONG = ("lengths", "prompts", "batch")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "folder for checkpoints, counts, tables and charts (%(default)s)"
    parser.add_argument("--out", type=file_path, default=Path("runs/laws"), help=text)
    text = f"layers x width of the drafts ({' '.join(SIZES)})"
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), metavar="LxW", help=text)
    text = f"training tokens, from each of which the rates fall to 0 ({' '.join(map(str, MARKS))})"
    parser.add_argument(
        "--marks", type=integer, nargs="+", default=list(MARKS), metavar="N", help=text
    )
    text = "documents that the target writes for the drafts (1600)"
    parser.add_argument("--continuations", type=integer, metavar="N", help=text)
    text = "bundled prompts on which drafts are measured (all)"
    parser.add_argument("--limit", type=integer, metavar="N", help=text)
    text = "bootstrap samples of the prompts, for the intervals (%(default)s)"
    parser.add_argument("--samples", type=integer, default=1000, metavar="N", help=text)
    parser.add_argument("--seed", type=integer, default=0, help="of the samples (%(default)s)")
    text = "lengths of heads to draw beside the drafts: heads-training.csv of specviz study heads"
    parser.add_argument("--heads", type=file_path, metavar="CSV", help=text)


def run(options: argparse.Namespace) -> None:
    sizes_of(options.sizes)
    checked_marks(options.marks)
    check_counts(options, "continuations", "limit", "samples")
    check_counts(options, "seed", minimum=0)
    check_writable(options.out, folder=True)

    from specviz.zoo.ladder.charts import read_heads, write_charts

    heads = None if options.heads is None else read_heads(options.heads)

    from specviz.zoo.ladder.study import CONTINUATIONS, study_laws

    tables, found = study_laws(
        options.out,
        sizes=options.sizes,
        marks=options.marks,
        continuations=options.continuations or CONTINUATIONS,
        limit=options.limit,
        samples=options.samples,
        seed=options.seed,
    )
    paths = []
    for name, table in tables.items():
        if name not in LONG:
            print_table(table)
            print()
        paths += save_measured(table, found, options.out / f"laws-{name}.csv")
    print_conditions(found)
    print_written([*paths, *write_charts(tables, options.out, heads)])


def kept(options: argparse.Namespace) -> str:
    """Say what an interrupted study leaves."""
    return f"finished drafts are kept in {options.out}, and the same command goes on there"
