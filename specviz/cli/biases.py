"""`specviz study biases`: how far rules that look right take a text from the target's."""

import argparse

from specviz.studies.arguments import add_out, check_counts, check_table, integer
from specviz.studies.output import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "random pairs of distributions p and q (%(default)s)"
    parser.add_argument("--cases", type=integer, default=20, metavar="N", help=text)
    add_out(parser)


def run(options: argparse.Namespace) -> None:
    check_counts(options, "cases")
    check_table(options.out)

    from specviz.studies.biases import measure_biases

    show(*measure_biases(options.cases), options.out)
