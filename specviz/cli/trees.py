"""`specviz study trees`: trees of drafts against chains, at equal verified drafts."""

import argparse

from specviz.engine.names import WITHOUT_TEMPERATURE, check_temperature
from specviz.prompts import load_prompts
from specviz.studies.arguments import (
    add_models,
    add_out,
    check_counts,
    check_models,
    check_table,
    integer,
    load_models,
    number,
)
from specviz.studies.output import show
from specviz.util.validate import short


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    text = "drafts verified of each row, on average (%(default)s)"
    nodes = [1, 2, 4, 6, 8, 12, 16]
    parser.add_argument("--nodes", type=integer, nargs="+", default=nodes, metavar="N", help=text)
    text = "depth,width,children of the trees (6,3,3 12,3,3)"
    growths = [[6, 3, 3], [12, 3, 3]]
    parser.add_argument(
        "--growths", type=_growth, nargs="+", default=growths, metavar="D,W,C", help=text
    )
    text = "instead of all this: how many K/V slots each strategy moves"
    parser.add_argument("--moves", action="store_true", help=text)
    parser.add_argument("--batch-size", type=integer, default=32, metavar="B")
    text = "bundled prompts (all)"
    parser.add_argument("--limit", type=integer, metavar="N", help=text)
    text = "budget of each text (%(default)s)"
    parser.add_argument("--max-new-tokens", type=integer, default=128, metavar="N", help=text)
    text = "draw the texts at this temperature, with the Gumbel coupling (greedy)"
    parser.add_argument("--temperature", type=number, metavar="T", help=text)
    text = "bootstrap samples of the texts, for the intervals (%(default)s)"
    parser.add_argument("--samples", type=integer, default=60, metavar="N", help=text)
    parser.add_argument("--seed", type=integer, default=0, help="of all sampling (%(default)s)")
    add_out(parser)


def run(options: argparse.Namespace) -> None:
    check_models(options)
    check_counts(options, "nodes", "batch_size", "max_new_tokens", "samples")
    check_counts(options, "seed", minimum=0)
    if options.temperature is not None:
        check_temperature(options.temperature, WITHOUT_TEMPERATURE)
    check_table(options.out)
    prompts = load_prompts(limit=options.limit)

    from specviz.studies.calibration import check_prompts
    from specviz.studies.tree_sizes import check_growths, check_sizes, sampling_at
    from specviz.studies.trees import compare_trees

    check_prompts(prompts)
    check_growths(options.growths)
    check_sizes(options.nodes, options.samples)
    sampling_at(options.temperature)
    if options.moves:
        from specviz.studies.tree_moves import count_moves

        run = {"batch_size": options.batch_size, "max_new_tokens": options.max_new_tokens}
        show(*count_moves(load_models(options), prompts, **run), options.out)
        return
    table, found = compare_trees(
        load_models(options),
        prompts,
        options.nodes,
        options.growths,
        batch_size=options.batch_size,
        max_new_tokens=options.max_new_tokens,
        temperature=options.temperature,
        samples=options.samples,
        seed=options.seed,
    )
    show(table, found, options.out)


def _growth(text: str) -> list[int]:
    """Return the numbers of a growth, as `compare_trees` takes them."""
    try:
        growth = [int(part) for part in text.split(",")]
    except ValueError:
        growth = []
    if len(growth) != 3:
        raise argparse.ArgumentTypeError(
            f"must be depth,width,children, got {short(text)}; pass for instance 6,3,3"
        )
    return growth
