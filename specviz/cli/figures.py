"""`specviz study figures`: the pictures and pages of figures/, from real runs."""

import argparse
from pathlib import Path

from specviz.studies.arguments import file_path
from specviz.util.files import check_writable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "folder (%(default)s)"
    parser.add_argument("--out", type=file_path, default=Path("runs/figures"), help=text)


def run(options: argparse.Namespace) -> None:
    check_writable(options.out, folder=True)

    from specviz.studies.figures import make_figures

    for path in make_figures(options.out):
        print(path)
