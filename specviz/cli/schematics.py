"""`specviz study schematics`: the drawings of figures/schematics, and the page of notation."""

import argparse
from pathlib import Path

from specviz.studies.arguments import file_path
from specviz.util.files import check_writable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "folder (%(default)s)"
    parser.add_argument("--out", type=file_path, default=Path("runs/schematics"), help=text)


def run(options: argparse.Namespace) -> None:
    check_writable(options.out, folder=True)

    from specviz.studies.schematics.make import make_schematics

    for path in make_schematics(options.out):
        print(path)
