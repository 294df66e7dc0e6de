"""`specviz study ceilings`: the best a device can do."""

import argparse
import re
from pathlib import Path

from specviz.studies.arguments import DEVICES, add_out, check_device, check_dtypes, check_table
from specviz.studies.output import print_conditions, print_precise_table, print_written
from specviz.util.files import save_measured


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", help=DEVICES)
    names = ["float32", "bfloat16"]
    text = "of matrix products (%(default)s)"
    parser.add_argument("--dtypes", nargs="+", default=names, metavar="DTYPE", help=text)
    add_out(parser, default="runs/ceilings-<device>.csv")


def run(options: argparse.Namespace) -> None:
    check_device(options.device)
    check_dtypes(options.dtypes)
    check_table(options.out or Path("runs/ceilings.csv"))

    from specviz.engine.models.places import find_device
    from specviz.studies.ceilings import measure_ceilings

    table, found = measure_ceilings(find_device(options.device), options.dtypes)
    print_precise_table(table)
    print_conditions(found)
    words = re.findall(r"[a-z0-9]+", str(found["device"]).lower())
    path = options.out or Path(f"runs/ceilings-{'-'.join(words)}.csv")
    print_written(save_measured(table, found, path))
