"""`specviz metrics`: what a server's Prometheus page says about speculative decoding."""

import argparse
from typing import TYPE_CHECKING

from specviz.cli.rooflines import add_roofline, check_roofline, roofline_of
from specviz.studies.arguments import file_path, integer, number
from specviz.studies.output import print_table
from specviz.util.text import harmless
from specviz.util.validate import require_int, require_ints, require_positive

if TYPE_CHECKING:
    import pandas as pd

    from specviz.costs.roofline import Roofline
    from specviz.servers import Counters

MOST = 2**31 - 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "address of a server, http://..., or a file in which its page was saved"
    parser.add_argument("source", metavar="URL_OR_FILE", help=text)
    text = "a page saved earlier: read what was counted after it"
    parser.add_argument("--since", type=file_path, metavar="FILE", help=text)
    text = "that the server may take (%(default)s)"
    parser.add_argument("--timeout", type=number, default=10.0, metavar="SECONDS", help=text)
    add_roofline(parser)
    sizes = [1, 8, 32]
    text = "with --shapes: choose K for each B (%(default)s)"
    parser.add_argument(
        "--batch-sizes", type=integer, nargs="+", default=sizes, metavar="B", help=text
    )
    text = "with --shapes: (%(default)s)"
    parser.add_argument("--prompt-tokens", type=integer, default=512, metavar="N", help=text)
    parser.add_argument("--max-new-tokens", type=integer, default=128, metavar="N", help=text)


def run(options: argparse.Namespace) -> None:
    require_positive("timeout", options.timeout)
    require_ints("batch_sizes", options.batch_sizes, maximum=MOST)
    require_int("prompt_tokens", options.prompt_tokens, maximum=MOST)
    require_int("max_new_tokens", options.max_new_tokens, maximum=MOST)
    check_roofline(options)
    roofline = roofline_of(options)

    from specviz.servers import read_page

    found = read_page(options.source, since=options.since, timeout_s=options.timeout)
    parts = [(counters, _choice(counters, roofline, options)) for counters in found]
    for counters, choice in parts:
        _show(counters, choice)


def _choice(
    counters: "Counters", roofline: "Roofline | None", options: argparse.Namespace
) -> "pd.DataFrame | None":
    """Return what K the cost model chooses for each B; None without a pair or rates."""
    rates = counters.likely_rates
    if roofline is None or rates is None:
        return None

    from specviz.generation.cost import Case

    case = Case(
        roofline,
        options.batch_sizes,
        len(rates),
        options.prompt_tokens,
        options.max_new_tokens,
        rates=rates.tolist(),
    )
    columns = ["batch_size", "mean_acceptance_length", "speedup"]
    chosen = ["best_num_draft_tokens", "best_speedup"]
    return case.paying()[columns + chosen]


def _show(counters: "Counters", choice: "pd.DataFrame | None") -> None:
    name = counters.model or "(no name)"
    print(harmless(f"\n{counters.engine}, model {name}\n"))
    print_table(counters.summary())
    positions = counters.positions()
    if len(positions):
        print("\nAcceptance by position, of all rounds and of those that got there\n")
        print_table(positions)
    if choice is not None:
        print("\nThe cost model: speedup at the server's K, and the best K up to it\n")
        print_table(choice)
    print("\nWhat this page does not say:")
    for sentence in counters.unanswered():
        print(f"- {sentence}")
