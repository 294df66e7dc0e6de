"""`specviz replay`: a recorded run as a page that steps through it, or as a figure of one step."""

import argparse

from specviz.studies.arguments import check_counts, file_path, integer
from specviz.util.files import check_writable
from specviz.util.text import size


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "a file saved by generate --record, or the log of any engine (.jsonl)"
    parser.add_argument("run_file", type=file_path, metavar="RUN", help=text)
    text = "page (.html) or figure (.png, .svg); default: a page next to RUN"
    parser.add_argument("-o", "--out", type=file_path, help=text)
    text = "a second run of the same prompts, shown next to the first"
    parser.add_argument("--other", type=file_path, help=text)
    text = (
        "the step that the page opens at or the figure shows: round * 5 + phase; default: the "
        "first difference, violation or uneven acceptance"
    )
    parser.add_argument("--step", type=integer, help=text)


def run(options: argparse.Namespace) -> None:
    check_counts(options, "step", minimum=0)
    out = options.out or options.run_file.with_suffix(".html")
    if options.out is not None:
        check_writable(out)

    from specviz.views.stepper.replays import save_replay

    save_replay(options.run_file, out, options.other, options.step)
    hint = "; open it in a browser and press ? for the keys" if out.suffix == ".html" else ""
    print(f"{out} ({size(out.stat().st_size)}){hint}")
