"""`specviz study moves`: what a realignment costs by each way to move K/V. Runs no model."""

import argparse

from specviz.studies.arguments import (
    DEVICES,
    add_out,
    check_counts,
    check_device,
    check_table,
    integer,
)
from specviz.studies.output import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", help=DEVICES)
    parser.add_argument("--rows", type=integer, nargs="+", default=[4, 8, 16, 32], metavar="B")
    parser.add_argument("--slots", type=integer, nargs="+", default=[256, 1024], metavar="T")
    add_out(parser)


def run(options: argparse.Namespace) -> None:
    check_device(options.device)
    check_counts(options, "rows", minimum=2)
    check_counts(options, "slots", minimum=16)
    check_table(options.out)

    from specviz.engine.models.places import find_device
    from specviz.studies.moves import measure_moves

    device = find_device(options.device)
    table, found = measure_moves(device, options.rows, options.slots)
    show(table, found, options.out)
