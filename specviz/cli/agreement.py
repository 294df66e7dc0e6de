"""`specviz study agreement`: do the valid strategies write what the target writes alone?"""

import argparse
from pathlib import Path

from specviz.engine.names import STRATEGY_NAMES, require_known
from specviz.prompts import load_prompts, spread
from specviz.studies.arguments import (
    add_fresh,
    add_lengths,
    add_models,
    add_out,
    add_spec_bench,
    check_counts,
    check_models,
    check_table,
    integer,
    load_models,
)
from specviz.studies.output import print_conditions, print_precise_table, print_written

BATCH_SIZES = [1, 4, 8, 16, 32]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    add_lengths(parser)
    add_spec_bench(parser)
    text = "how many prompts, spread evenly over the file (all)"
    parser.add_argument("--limit", type=integer, metavar="N", help=text)
    text = "cut longer prompts to their last tokens (%(default)s)"
    parser.add_argument("--max-prompt-tokens", type=integer, default=256, metavar="N", help=text)
    parser.add_argument("--batch-sizes", type=integer, nargs="+", default=BATCH_SIZES, metavar="B")
    text = "(all valid ones)"
    parser.add_argument("--strategies", nargs="+", metavar="NAME", help=text)
    text = "measure everything in the deterministic mode, too"
    parser.add_argument("--deterministic", action="store_true", help=text)
    add_fresh(parser)
    add_out(parser, default="runs/agreement-<dtype>.csv")


def run(options: argparse.Namespace) -> None:
    check_models(options)
    check_counts(options, "num_draft_tokens", "max_new_tokens", "max_prompt_tokens", "batch_sizes")
    for name in options.strategies or ():
        require_known("strategy", STRATEGY_NAMES, name)
    check_table(options.out or Path("runs/agreement-float32.csv"))
    source = "bundled" if options.spec_bench is None else "spec_bench"
    prompts = spread(load_prompts(source, options.spec_bench), options.limit)

    from specviz.studies.agreement import VALID, Setups, measure_agreement

    setups = Setups(
        options.strategies or VALID,
        options.batch_sizes,
        (False, True) if options.deterministic else (False,),
        options.num_draft_tokens,
        options.max_new_tokens,
        options.max_prompt_tokens,
    )
    pair = load_models(options)
    dtype = str(pair.target.dtype).removeprefix("torch.")
    path = options.out or Path(f"runs/agreement-{dtype}.csv")
    table, found = measure_agreement(
        pair, prompts, setups, path, source=source, fresh=options.fresh
    )
    print_precise_table(table)
    print_conditions(found)
    print_written([path, path.with_suffix(".json")])


def kept(options: argparse.Namespace) -> str:
    """Say what an interrupted study leaves."""
    table = options.out or Path("runs/agreement-<dtype>.csv")
    return f"the results so far are kept in {table}, and the same command goes on there"
