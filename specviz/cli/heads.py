"""`specviz study heads`: what the parts of a draft head are worth at equal training time."""

import argparse
from pathlib import Path

from specviz.studies.arguments import check_counts, file_path, integer, number
from specviz.studies.output import print_conditions, print_table, print_written
from specviz.util.files import check_writable, save_measured
from specviz.util.validate import require_choice, require_positive

PARTS = ("blocks", "unrolling", "tokens", "gates")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "folder for checkpoints, counts, tables and charts (%(default)s)"
    parser.add_argument("--out", type=file_path, default=Path("runs/heads"), help=text)
    text = "CPU seconds of a training (%(default)g)"
    parser.add_argument("--budget", type=number, default=240.0, metavar="S", help=text)
    text = f"what to compare: {', '.join(PARTS)} (all)"
    parser.add_argument("--parts", nargs="+", default=list(PARTS), metavar="PART", help=text)
    text = "documents that the target writes (as `specviz train --heads`)"
    parser.add_argument("--continuations", type=integer, metavar="N", help=text)
    text = "bundled prompts on which heads are measured (all)"
    parser.add_argument("--limit", type=integer, metavar="N", help=text)
    text = "bootstrap samples of the prompts, for the intervals (%(default)s)"
    parser.add_argument("--samples", type=integer, default=1000, metavar="N", help=text)
    parser.add_argument("--seed", type=integer, default=0, help="of the samples (%(default)s)")


def run(options: argparse.Namespace) -> None:
    require_positive("budget", options.budget)
    for i, part in enumerate(options.parts):
        require_choice(f"parts[{i}]", part, PARTS)
    check_counts(options, "continuations", "limit", "samples")
    check_counts(options, "seed", minimum=0)
    check_writable(options.out, folder=True)

    from specviz.zoo.heads.pipeline import CONTINUATIONS
    from specviz.zoo.heads.study import study_heads
    from specviz.zoo.heads.study_charts import write_charts

    tables, found = study_heads(
        options.out,
        budget=options.budget,
        parts=options.parts,
        continuations=options.continuations or CONTINUATIONS,
        limit=options.limit,
        samples=options.samples,
        seed=options.seed,
    )
    paths = []
    for name, table in tables.items():
        if len(table):
            print_table(table)
            print()
            paths += save_measured(table, found, options.out / f"heads-{name}.csv")
    print_conditions(found)
    print_written([*paths, *write_charts(tables, options.out)])


def kept(options: argparse.Namespace) -> str:
    """Say what an interrupted study leaves."""
    return f"finished trainings are kept in {options.out}, and the same command goes on there"
